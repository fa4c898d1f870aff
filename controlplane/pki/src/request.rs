//! Certificate requests (PKCS#10, RFC 2986): making, reading and checking them.
//!
//! Source of the signers' rules: <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use std::net::IpAddr;
use std::str::FromStr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use crate::certificate::{alt_name_extension, name, signature_algorithm};
use crate::key::encode_pem;
use crate::{AltName, PkiError, PrivateKey, SubjectAttribute, Usage, der};

/// Longest request that is read, in bytes of PEM.
const LONGEST: usize = 64 * 1024;
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// A certificate request whose signature was verified: its maker has the private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Known subject attributes, in the request's order; others are dropped.
    pub subject: Vec<(SubjectAttribute, String)>,
    /// Alternative names.
    pub alt_names: Vec<AltName>,
    /// `SubjectPublicKeyInfo`, DER.
    pub(crate) public_key: Vec<u8>,
}

impl CertificateRequest {
    /// Reads a request: one PEM block `CERTIFICATE REQUEST`.
    ///
    /// # Errors
    /// [`PkiError::Malformed`] with what is wrong; among it a signature that does not verify, and RSA keys below 2048 bits.
    pub fn parse(text: &str) -> Result<Self, PkiError> {
        if text.len() > LONGEST {
            return Err(PkiError::Malformed("the request is too long"));
        }
        let block = pem::parse(text).map_err(|_| PkiError::Malformed("the request is not PEM"))?;
        if block.tag() != "CERTIFICATE REQUEST" {
            return Err(PkiError::Malformed("PEM block type must be CERTIFICATE REQUEST"));
        }
        let (rest, request) = X509CertificationRequest::from_der(block.contents())
            .map_err(|_| PkiError::Malformed("not a PKCS#10 request"))?;
        if !rest.is_empty() {
            return Err(PkiError::Malformed("bytes after the request"));
        }
        request
            .verify_signature()
            .map_err(|_| PkiError::Malformed("the request's signature does not verify"))?;
        let info = &request.certification_request_info;
        let mut subject = Vec::new();
        for attribute in info.subject.iter_attributes() {
            let arcs: Vec<u64> = attribute.attr_type().iter().into_iter().flatten().collect();
            if let [2, 5, 4, arc] = arcs.as_slice()
                && let Some(kind) = SubjectAttribute::from_arc(*arc)
            {
                let value = attribute
                    .as_str()
                    .map_err(|_| PkiError::Malformed("a subject attribute is not text"))?;
                if kind == SubjectAttribute::CommonName && subject.iter().any(|(k, _)| *k == kind) {
                    // Readers disagree on which of them is the user.
                    return Err(PkiError::Malformed("the subject has more than one common name"));
                }
                subject.push((kind, value.to_owned()));
            }
        }
        let mut alt_names = Vec::new();
        for extension in request.requested_extensions().into_iter().flatten() {
            match extension {
                ParsedExtension::SubjectAlternativeName(names) => {
                    for name in &names.general_names {
                        alt_names.push(alt_name(name)?);
                    }
                }
                ParsedExtension::BasicConstraints(constraints) if constraints.ca => {
                    return Err(PkiError::Malformed("the request asks to become an authority"));
                }
                ParsedExtension::ParseError { .. } => {
                    return Err(PkiError::Malformed("a requested extension cannot be read"));
                }
                _ => {}
            }
        }
        Ok(Self {
            subject,
            alt_names,
            public_key: info.subject_pki.raw.to_vec(),
        })
    }

    /// The common name; empty for none.
    pub fn common_name(&self) -> &str {
        let mut names = self.subject.iter();
        names
            .find(|(kind, _)| *kind == SubjectAttribute::CommonName)
            .map(|(_, value)| value.as_str())
            .unwrap_or_default()
    }

    /// The organizations: groups of a client certificate.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.subject
            .iter()
            .filter(|(kind, _)| *kind == SubjectAttribute::Organization)
            .map(|(_, value)| value.as_str())
    }

    /// DNS names asked for.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.alt_names.iter().filter_map(|n| match n {
            AltName::Dns(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Addresses asked for.
    pub fn ip_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.alt_names.iter().filter_map(|n| match n {
            AltName::Ip(ip) => Some(*ip),
            _ => None,
        })
    }
}

fn alt_name(name: &GeneralName<'_>) -> Result<AltName, PkiError> {
    match name {
        GeneralName::DNSName(name) => Ok(AltName::Dns((*name).to_owned())),
        GeneralName::RFC822Name(name) => Ok(AltName::Email((*name).to_owned())),
        GeneralName::URI(name) => Ok(AltName::Uri((*name).to_owned())),
        GeneralName::IPAddress(bytes) => {
            let ip = <[u8; 4]>::try_from(*bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            ip.map(AltName::Ip)
                .map_err(|_| PkiError::Malformed("an address has neither 4 nor 16 bytes"))
        }
        _ => Err(PkiError::Malformed(
            "an alternative name is of a kind that is not supported",
        )),
    }
}

/// A request for a certificate of `key`, PEM: what a kubelet sends.
///
/// # Errors
/// [`PkiError::Name`] for names that no certificate can hold.
pub fn new_request(
    key: &PrivateKey,
    common_name: &str,
    organizations: &[&str],
    alt_names: &[AltName],
) -> Result<String, PkiError> {
    let mut subject: Vec<(SubjectAttribute, String)> = organizations
        .iter()
        .map(|o| (SubjectAttribute::Organization, (*o).to_owned()))
        .collect();
    subject.push((SubjectAttribute::CommonName, common_name.to_owned()));
    let mut attributes = Vec::new();
    if let Some(extension) = alt_name_extension(alt_names, false)? {
        // extensionRequest, RFC 2985.
        let oid = der::oid(&[1, 2, 840, 113_549, 1, 9, 14]);
        attributes = der::sequence(&[oid, der::set(&[der::sequence(&[extension])])]);
    }
    let info = der::sequence(&[
        der::integer(&[0]),
        name(&subject),
        key.public_key(),
        der::explicit(0, &attributes),
    ]);
    let signature = key.sign(&info)?;
    let request = der::sequence(&[info, signature_algorithm(), der::bits(&signature)]);
    Ok(encode_pem("CERTIFICATE REQUEST", &request))
}

/// The built-in signers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// `kubernetes.io/kube-apiserver-client`: clients of the API.
    ApiServerClient,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: kubelets as clients.
    KubeletClient,
    /// `kubernetes.io/kubelet-serving`: kubelets as servers.
    KubeletServing,
}

/// Why a signer does not sign a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub &'static str);

impl FromStr for Signer {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Ok(Self::ApiServerClient),
            "kubernetes.io/kube-apiserver-client-kubelet" => Ok(Self::KubeletClient),
            "kubernetes.io/kubelet-serving" => Ok(Self::KubeletServing),
            _ => Err(()),
        }
    }
}

impl Signer {
    /// `spec.signerName`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServerClient => "kubernetes.io/kube-apiserver-client",
            Self::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
        }
    }

    /// Whether the signer's rules allow the request and the usages.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(self, request: &CertificateRequest, usages: &[Usage]) -> Result<(), Refusal> {
        let optional = [Usage::DigitalSignature, Usage::KeyEncipherment];
        let (needed, wanted) = match self {
            Self::ApiServerClient => (
                vec![Usage::ClientAuth],
                "usages must include client auth, and nothing but signature and key encipherment besides",
            ),
            Self::KubeletClient => (
                vec![Usage::ClientAuth, Usage::DigitalSignature],
                "usages did not match [digital signature client auth] or [key encipherment digital signature client auth]",
            ),
            Self::KubeletServing => (
                vec![Usage::ServerAuth, Usage::DigitalSignature],
                "usages did not match [digital signature server auth] or [key encipherment digital signature server auth]",
            ),
        };
        let fits = needed.iter().all(|u| usages.contains(u))
            && usages.iter().all(|u| needed.contains(u) || optional.contains(u));
        if !fits {
            return Err(Refusal(wanted));
        }
        match self {
            Self::ApiServerClient => Ok(()),
            Self::KubeletClient => {
                node_subject(request)?;
                match request.alt_names.is_empty() {
                    true => Ok(()),
                    false => Err(Refusal("subject alternative names are not allowed")),
                }
            }
            Self::KubeletServing => {
                node_subject(request)?;
                let odd = |n: &AltName| matches!(n, AltName::Email(_) | AltName::Uri(_));
                if request.alt_names.iter().any(odd) {
                    return Err(Refusal("email and URI subject alternative names are not allowed"));
                }
                match request.alt_names.is_empty() {
                    false => Ok(()),
                    true => Err(Refusal("DNS or IP subjectAltName is required")),
                }
            }
        }
    }
}

fn node_subject(request: &CertificateRequest) -> Result<(), Refusal> {
    if !request.organizations().eq([NODES]) {
        return Err(Refusal("organization in the request must be exactly system:nodes"));
    }
    match request.common_name().strip_prefix(NODE_PREFIX) {
        Some(node) if !node.is_empty() => Ok(()),
        _ => Err(Refusal("subject common name does not begin with system:node:")),
    }
}
