//! A certificate authority and what it issues.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::{self, SignedBy, Template};
use crate::key::encode_pem;
use crate::request::CertificateRequest;
use crate::{AltName, PkiError, PrivateKey, SubjectAttribute, Usage};

/// Life of an authority.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Life of what the control plane issues for itself; as kubeadm has it.
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Certificates are valid from a little before they are made, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_secs(300);

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS#8).
    pub key: String,
    /// When the certificate ends.
    pub expires: Timestamp,
}

impl Issued {
    /// The certificate and key as a TLS library takes them.
    ///
    /// # Errors
    /// [`PkiError::Malformed`] when the texts are no longer what was issued.
    pub fn to_tls(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| PkiError::Malformed("not PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| PkiError::Key("not PEM"))?;
        Ok((chain, key))
    }

    /// When to get the next one: at two thirds of what is left from `now`.
    pub fn renew_at(&self, now: Timestamp) -> Timestamp {
        now + (self.expires.duration_since(now) * 2) / 3
    }
}

/// Names and addresses that a serving certificate is good for.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// DNS names.
    pub names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

impl Serving {
    fn alt_names(&self) -> Vec<AltName> {
        let names = self.names.iter().cloned().map(AltName::Dns);
        let addresses = self.addresses.iter().copied().map(AltName::Ip);
        let mut all: Vec<AltName> = Vec::new();
        for name in names.chain(addresses) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }
}

/// A certificate authority: a self-signed certificate with its key. It may be trusted together with others (its
/// predecessor, say), which are then part of its bundle.
pub struct Authority {
    /// All trusted certificates, PEM.
    bundle: String,
    trusted: Vec<CertificateDer<'static>>,
    key: PrivateKey,
    /// Subject of the signing certificate, DER.
    name: Vec<u8>,
    key_id: Vec<u8>,
    expires: Timestamp,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// [`PkiError::Random`].
    pub fn generate(common_name: &str) -> Result<Self, PkiError> {
        let key = PrivateKey::generate()?;
        let certificate = Self::self_sign(common_name, &key)?;
        Self::from_parts(certificate, key)
    }

    /// The self-signed certificate of a key, PEM.
    pub(crate) fn self_sign(common_name: &str, key: &PrivateKey) -> Result<String, PkiError> {
        let public_key = key.public_key();
        let subject = [(SubjectAttribute::CommonName, common_name.to_owned())];
        let now = Timestamp::now();
        let template = Template {
            subject: &subject,
            alt_names: &[],
            usages: &[Usage::DigitalSignature, Usage::CertSign, Usage::CrlSign],
            not_before: now - BACKDATE,
            not_after: later(now, AUTHORITY_LIFE),
            authority: true,
        };
        let by = SignedBy {
            name: &certificate::name(&subject),
            key_id: &certificate::key_id(&public_key),
            key,
        };
        let certificate = certificate::sign(&template, &public_key, &by)?;
        Ok(encode_pem("CERTIFICATE", &certificate))
    }

    /// An authority of a bundle of certificates and the key of one of them.
    ///
    /// # Errors
    /// [`PkiError::Malformed`] when nothing in the bundle fits the key.
    pub fn from_pem(bundle: &str, key: &str) -> Result<Self, PkiError> {
        Self::from_parts(bundle.to_owned(), PrivateKey::from_pem(key)?)
    }

    pub(crate) fn from_parts(bundle: String, key: PrivateKey) -> Result<Self, PkiError> {
        let trusted = CertificateDer::pem_slice_iter(bundle.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| PkiError::Malformed("the authority's certificate is not PEM"))?;
        let public_key = key.public_key();
        let mut signing = None;
        for der in &trusted {
            let (_, certificate) =
                X509Certificate::from_der(der).map_err(|_| PkiError::Malformed("not an X.509 certificate"))?;
            if certificate.public_key().raw == public_key {
                signing = Some((
                    certificate.subject().as_raw().to_vec(),
                    subject_key_id(&certificate).unwrap_or_else(|| certificate::key_id(&public_key)),
                    certificate.validity().not_after.timestamp(),
                ));
                break;
            }
        }
        let (name, key_id, expires) =
            signing.ok_or(PkiError::Malformed("no certificate of the authority fits its key"))?;
        Ok(Self {
            bundle,
            trusted,
            key,
            name,
            key_id,
            expires: Timestamp::from_second(expires).map_err(|_| PkiError::Malformed("validity out of range"))?,
        })
    }

    /// The trusted certificates, PEM.
    pub fn certificate(&self) -> &str {
        &self.bundle
    }

    /// The trusted certificates, as a TLS library takes them.
    pub fn trusted(&self) -> &[CertificateDer<'static>] {
        &self.trusted
    }

    /// The authority's private key, PEM.
    pub fn key_pem(&self) -> String {
        self.key.to_pem()
    }

    /// When the signing certificate ends. Nothing issued outlives it.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// A serving certificate with a new key.
    ///
    /// # Errors
    /// [`PkiError::Name`] for names that no certificate can hold.
    pub fn issue_serving(&self, common_name: &str, serving: &Serving) -> Result<Issued, PkiError> {
        let subject = [(SubjectAttribute::CommonName, common_name.to_owned())];
        self.issue(&subject, &serving.alt_names(), Usage::ServerAuth, LEAF_LIFE)
    }

    /// A client certificate with a new key: the common name is the user, each organization a group.
    ///
    /// # Errors
    /// [`PkiError::Random`].
    pub fn issue_client(&self, user: &str, groups: &[&str], life: Duration) -> Result<Issued, PkiError> {
        let mut subject: Vec<(SubjectAttribute, String)> = groups
            .iter()
            .map(|group| (SubjectAttribute::Organization, (*group).to_owned()))
            .collect();
        subject.push((SubjectAttribute::CommonName, user.to_owned()));
        self.issue(&subject, &[], Usage::ClientAuth, life)
    }

    /// Signs what a request asks for, with these usages. The caller has checked that it may have that
    /// ([`crate::Signer::check`]). Only known subject attributes and alternative names are taken over, and never the
    /// power to sign. PEM.
    ///
    /// # Errors
    /// [`PkiError::Name`], [`PkiError::Random`].
    pub fn sign_request(
        &self,
        request: &CertificateRequest,
        usages: &[Usage],
        life: Duration,
    ) -> Result<String, PkiError> {
        let (certificate, _) = self.sign(&request.subject, &request.alt_names, usages, life, &request.public_key)?;
        Ok(encode_pem("CERTIFICATE", &certificate))
    }

    fn issue(
        &self,
        subject: &[(SubjectAttribute, String)],
        alt_names: &[AltName],
        usage: Usage,
        life: Duration,
    ) -> Result<Issued, PkiError> {
        let key = PrivateKey::generate()?;
        let usages = [Usage::DigitalSignature, usage];
        let (certificate, expires) = self.sign(subject, alt_names, &usages, life, &key.public_key())?;
        Ok(Issued {
            certificate: encode_pem("CERTIFICATE", &certificate),
            key: key.to_pem(),
            expires,
        })
    }

    fn sign(
        &self,
        subject: &[(SubjectAttribute, String)],
        alt_names: &[AltName],
        usages: &[Usage],
        life: Duration,
        public_key: &[u8],
    ) -> Result<(Vec<u8>, Timestamp), PkiError> {
        let now = Timestamp::now();
        let expires = later(now, life).min(self.expires);
        let template = Template {
            subject,
            alt_names,
            usages,
            not_before: now - BACKDATE,
            not_after: expires,
            authority: false,
        };
        let by = SignedBy {
            name: &self.name,
            key_id: &self.key_id,
            key: &self.key,
        };
        Ok((certificate::sign(&template, public_key, &by)?, expires))
    }
}

/// Life of certificates whose requester names none.
pub(crate) fn default_life() -> Duration {
    LEAF_LIFE
}

fn later(now: Timestamp, life: Duration) -> Timestamp {
    let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
    now.saturating_add(life).unwrap_or(now)
}

fn subject_key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension;
    certificate.iter_extensions().find_map(|e| match e.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}
