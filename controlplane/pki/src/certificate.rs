//! The encoding of certificates. Source: RFC 5280.

use std::net::IpAddr;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::{PkiError, PrivateKey, der};

/// Kinds of subject attributes that certificates of ours may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of RFC 4519")]
pub enum SubjectAttribute {
    CommonName,
    SerialNumber,
    Country,
    Locality,
    State,
    Street,
    Organization,
    OrganizationalUnit,
    PostalCode,
}

const ATTRIBUTES: &[(SubjectAttribute, u64)] = &[
    (SubjectAttribute::CommonName, 3),
    (SubjectAttribute::SerialNumber, 5),
    (SubjectAttribute::Country, 6),
    (SubjectAttribute::Locality, 7),
    (SubjectAttribute::State, 8),
    (SubjectAttribute::Street, 9),
    (SubjectAttribute::Organization, 10),
    (SubjectAttribute::OrganizationalUnit, 11),
    (SubjectAttribute::PostalCode, 17),
];

impl SubjectAttribute {
    /// By the last arc of its identifier under `2.5.4`.
    pub(crate) fn from_arc(arc: u64) -> Option<Self> {
        ATTRIBUTES.iter().find(|(_, a)| *a == arc).map(|(kind, _)| *kind)
    }

    fn oid(self) -> Vec<u8> {
        let arc = ATTRIBUTES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(0, |(_, arc)| *arc);
        der::oid(&[2, 5, 4, arc])
    }
}

/// A name that a certificate is good for, besides its subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AltName {
    /// A DNS name; may begin with a wildcard label.
    Dns(String),
    /// An address.
    Ip(IpAddr),
    /// A mail address.
    Email(String),
    /// A URI.
    Uri(String),
}

impl AltName {
    fn encode(&self) -> Result<Vec<u8>, PkiError> {
        let text = |number: u8, text: &str| {
            if text.is_empty() || !text.is_ascii() || text.bytes().any(|b| b.is_ascii_control()) {
                return Err(PkiError::Name(text.to_owned()));
            }
            Ok(der::implicit(number, text.as_bytes()))
        };
        match self {
            Self::Email(name) => text(1, name),
            Self::Dns(name) => text(2, name),
            Self::Uri(name) => text(6, name),
            Self::Ip(IpAddr::V4(ip)) => Ok(der::implicit(7, &ip.octets())),
            Self::Ip(IpAddr::V6(ip)) => Ok(der::implicit(7, &ip.octets())),
        }
    }
}

/// What a certificate may be used for: a bit of the key usage, or an extended usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as certificates.k8s.io names them")]
pub enum Usage {
    DigitalSignature,
    ContentCommitment,
    KeyEncipherment,
    DataEncipherment,
    KeyAgreement,
    CertSign,
    CrlSign,
    EncipherOnly,
    DecipherOnly,
    Any,
    ServerAuth,
    ClientAuth,
    CodeSigning,
    EmailProtection,
    IpsecEndSystem,
    IpsecTunnel,
    IpsecUser,
    Timestamping,
    OcspSigning,
    MicrosoftSgc,
    NetscapeSgc,
}

/// Where a usage is written.
enum Place {
    Bit(u8),
    Extended(&'static [u64]),
}

macro_rules! pkix {
    ($arc:literal) => {
        &[1, 3, 6, 1, 5, 5, 7, 3, $arc]
    };
}

/// Texts of `spec.usages`, the usage, and its place. Some usages have two texts.
/// Source: <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/certificate-signing-request-v1/>.
const USAGES: &[(&str, Usage, Place)] = &[
    ("digital signature", Usage::DigitalSignature, Place::Bit(0)),
    ("signing", Usage::DigitalSignature, Place::Bit(0)),
    ("content commitment", Usage::ContentCommitment, Place::Bit(1)),
    ("key encipherment", Usage::KeyEncipherment, Place::Bit(2)),
    ("data encipherment", Usage::DataEncipherment, Place::Bit(3)),
    ("key agreement", Usage::KeyAgreement, Place::Bit(4)),
    ("cert sign", Usage::CertSign, Place::Bit(5)),
    ("crl sign", Usage::CrlSign, Place::Bit(6)),
    ("encipher only", Usage::EncipherOnly, Place::Bit(7)),
    ("decipher only", Usage::DecipherOnly, Place::Bit(8)),
    ("any", Usage::Any, Place::Extended(&[2, 5, 29, 37, 0])),
    ("server auth", Usage::ServerAuth, Place::Extended(pkix!(1))),
    ("client auth", Usage::ClientAuth, Place::Extended(pkix!(2))),
    ("code signing", Usage::CodeSigning, Place::Extended(pkix!(3))),
    ("email protection", Usage::EmailProtection, Place::Extended(pkix!(4))),
    ("s/mime", Usage::EmailProtection, Place::Extended(pkix!(4))),
    ("ipsec end system", Usage::IpsecEndSystem, Place::Extended(pkix!(5))),
    ("ipsec tunnel", Usage::IpsecTunnel, Place::Extended(pkix!(6))),
    ("ipsec user", Usage::IpsecUser, Place::Extended(pkix!(7))),
    ("timestamping", Usage::Timestamping, Place::Extended(pkix!(8))),
    ("ocsp signing", Usage::OcspSigning, Place::Extended(pkix!(9))),
    (
        "microsoft sgc",
        Usage::MicrosoftSgc,
        Place::Extended(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ),
    (
        "netscape sgc",
        Usage::NetscapeSgc,
        Place::Extended(&[2, 16, 840, 1, 113_730, 4, 1]),
    ),
];

impl std::str::FromStr for Usage {
    type Err = PkiError;

    fn from_str(text: &str) -> Result<Self, PkiError> {
        let found = USAGES.iter().find(|(name, _, _)| *name == text);
        found
            .map(|(_, usage, _)| *usage)
            .ok_or_else(|| PkiError::Usage(text.to_owned()))
    }
}

/// A certificate before it is signed.
pub(crate) struct Template<'a> {
    /// Subject attributes in their order.
    pub(crate) subject: &'a [(SubjectAttribute, String)],
    pub(crate) alt_names: &'a [AltName],
    pub(crate) usages: &'a [Usage],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    /// Whether it is an authority (for leaves only).
    pub(crate) authority: bool,
}

/// Who signs.
pub(crate) struct SignedBy<'a> {
    /// Subject of the authority, DER.
    pub(crate) name: &'a [u8],
    /// Its key's identifier.
    pub(crate) key_id: &'a [u8],
    pub(crate) key: &'a PrivateKey,
}

/// A distinguished name: one attribute per relative name, so that there may be many organizations.
pub(crate) fn name(attributes: &[(SubjectAttribute, String)]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = attributes
        .iter()
        .map(|(kind, value)| der::set(&[der::sequence(&[kind.oid(), der::utf8(value)])]))
        .collect();
    der::sequence(&parts)
}

/// A key's identifier: RFC 7093, method 1.
pub(crate) fn key_id(subject_public_key_info: &[u8]) -> Vec<u8> {
    digest(&SHA256, subject_public_key_info).as_ref()[..20].to_vec()
}

/// Signs a certificate for a public key; DER.
pub(crate) fn sign(template: &Template<'_>, public_key: &[u8], by: &SignedBy<'_>) -> Result<Vec<u8>, PkiError> {
    let mut serial = [0_u8; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| PkiError::Random)?;
    // Positive, and never shorter: RFC 5280 allows 20 bytes.
    serial[0] = serial[0] & 0x3f | 0x40;
    let body = der::sequence(&[
        der::explicit(0, &der::integer(&[2])),
        der::integer(&serial),
        signature_algorithm(),
        by.name.to_vec(),
        der::sequence(&[der::time(template.not_before), der::time(template.not_after)]),
        name(template.subject),
        public_key.to_vec(),
        der::explicit(3, &extensions(template, public_key, by)?),
    ]);
    let signature = by.key.sign(&body)?;
    Ok(der::sequence(&[body, signature_algorithm(), der::bits(&signature)]))
}

/// ECDSA with SHA-256.
pub(crate) fn signature_algorithm() -> Vec<u8> {
    der::sequence(&[der::oid(&[1, 2, 840, 10045, 4, 3, 2])])
}

fn extension(arc: u64, critical: bool, content: &[u8]) -> Vec<u8> {
    let oid = der::oid(&[2, 5, 29, arc]);
    if critical {
        der::sequence(&[oid, der::boolean(true), der::octets(content)])
    } else {
        der::sequence(&[oid, der::octets(content)])
    }
}

fn extensions(template: &Template<'_>, public_key: &[u8], by: &SignedBy<'_>) -> Result<Vec<u8>, PkiError> {
    let constraints = if template.authority {
        der::sequence(&[der::boolean(true), der::integer(&[0])])
    } else {
        der::sequence(&[])
    };
    let mut all = vec![extension(19, true, &constraints)];
    let (mut flags, mut extended) = (Vec::new(), Vec::new());
    for usage in template.usages {
        match USAGES.iter().find(|(_, u, _)| u == usage) {
            Some((_, _, Place::Bit(bit))) => flags.push(*bit),
            Some((_, _, Place::Extended(oid))) => extended.push(der::oid(oid)),
            None => {}
        }
    }
    if !flags.is_empty() {
        all.push(extension(15, true, &der::named_bits(&flags)));
    }
    if !extended.is_empty() {
        all.push(extension(37, false, &der::sequence(&extended)));
    }
    all.push(extension(14, false, &der::octets(&key_id(public_key))));
    all.push(extension(35, false, &der::sequence(&[der::implicit(0, by.key_id)])));
    all.extend(alt_name_extension(template.alt_names, template.subject.is_empty())?);
    Ok(der::sequence(&all))
}

/// The alternative names; critical when there is no subject.
pub(crate) fn alt_name_extension(names: &[AltName], critical: bool) -> Result<Option<Vec<u8>>, PkiError> {
    if names.is_empty() {
        return Ok(None);
    }
    let names: Vec<Vec<u8>> = names.iter().map(AltName::encode).collect::<Result<_, _>>()?;
    Ok(Some(extension(17, critical, &der::sequence(&names))))
}
