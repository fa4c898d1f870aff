//! The certificate authority of one cluster.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// Failures of making, keeping or reading keys and certificates. No message holds key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key or certificate could not be made or parsed.
    #[error("certificates: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS#8).
    pub key: String,
}

/// Names and addresses that a serving certificate is good for.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// DNS names.
    pub names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

/// A cluster's CA and service-account signing key.
pub struct ClusterPki {
    ca_certificate: String,
    ca_key: String,
    service_account_key: String,
}

impl ClusterPki {
    /// Reads the keys kept in `directory`, making those that are not there yet.
    ///
    /// # Errors
    /// Files that cannot be read, written or parsed.
    pub fn load_or_create(directory: &Path, cluster: &str) -> Result<Self, PkiError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| PkiError::File { path, source }
        };
        std::fs::create_dir_all(directory).map_err(file(directory))?;
        let ca_key_path = directory.join("ca.key");
        let ca_key = keep(&ca_key_path, || Ok(KeyPair::generate()?.serialize_pem()))?;
        let ca_certificate = keep(&directory.join("ca.crt"), || {
            let key = KeyPair::from_pem(&ca_key)?;
            Ok(authority_params(cluster).self_signed(&key)?.pem())
        })?;
        let service_account_key = keep(&directory.join("sa.key"), || Ok(KeyPair::generate()?.serialize_pem()))?;
        Ok(Self {
            ca_certificate,
            ca_key,
            service_account_key,
        })
    }

    /// The CA certificate, PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.ca_certificate
    }

    /// The private key that signs service-account tokens: ECDSA P-256, PKCS#8 PEM.
    pub fn service_account_key(&self) -> &str {
        &self.service_account_key
    }

    /// A certificate for the API server.
    ///
    /// # Errors
    /// A name that is not a valid DNS name.
    pub fn issue_serving(&self, common_name: &str, serving: &Serving) -> Result<Issued, PkiError> {
        let mut params = CertificateParams::new(serving.names.clone())?;
        params
            .subject_alt_names
            .extend(serving.addresses.iter().map(|ip| SanType::IpAddress(*ip)));
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// A client certificate: the common name is the user, each organization a group.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn issue_client(&self, user: &str, groups: &[&str]) -> Result<Issued, PkiError> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Issued, PkiError> {
        let ca_key = KeyPair::from_pem(&self.ca_key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.ca_certificate, ca_key)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{cluster}-ca"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// The file's text; made and written durably, for the owner's eyes only, when it is not there.
fn keep(path: &Path, make: impl FnOnce() -> Result<String, PkiError>) -> Result<String, PkiError> {
    let failed = |source| PkiError::File {
        path: path.to_owned(),
        source,
    };
    match std::fs::read_to_string(path) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Err(_) => {}
    }
    let text = make()?;
    let directory = path.parent().unwrap_or(Path::new("."));
    // A temporary file is private from its creation on, and takes the final name as a whole.
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    std::fs::File::open(directory)
        .and_then(|d| d.sync_all())
        .map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_survive_a_reload() {
        let directory = tempfile::tempdir().unwrap();
        let first = ClusterPki::load_or_create(directory.path(), "c1").unwrap();
        let again = ClusterPki::load_or_create(directory.path(), "c1").unwrap();
        assert_eq!(first.ca_certificate(), again.ca_certificate());
        assert_eq!(first.service_account_key(), again.service_account_key());
        let mode = std::fs::metadata(directory.path().join("ca.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_client_certificate_names_user_and_groups() {
        let directory = tempfile::tempdir().unwrap();
        let pki = ClusterPki::load_or_create(directory.path(), "c1").unwrap();
        let issued = pki.issue_client("kubernetes-admin", &["system:masters"]).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let subject = certificate.subject();
        assert_eq!(
            subject.iter_common_name().next().unwrap().as_str().unwrap(),
            "kubernetes-admin"
        );
        assert_eq!(
            subject.iter_organization().next().unwrap().as_str().unwrap(),
            "system:masters"
        );
        let (_, ca) = x509_parser::pem::parse_x509_pem(pki.ca_certificate().as_bytes()).unwrap();
        assert_eq!(certificate.issuer(), ca.parse_x509().unwrap().subject());
    }
}
