//! The node's certificates: got by a bootstrap token at first, renewed in time, kept in files.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/>.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use minato_api::k8s::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use minato_api::k8s_openapi::ByteString;
use minato_api::kube::api::PostParams;
use minato_api::kube::runtime::wait::await_condition;
use minato_api::kube::{Api, Client};
use minato_pki::{AltName, Authority, Credential, PkiError, PrivateKey, Serving, Signer, kubeconfig_with, new_request};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::client::{ClientError, Connection, connection_of, read_kubeconfig};
use crate::settings::Settings;

/// How long one request is waited for before another is made.
const PATIENCE: Duration = Duration::from_secs(900);
/// Pause after a request that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Keys and requests.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The API server.
    #[error("certificate request: {0}")]
    Api(#[from] Box<minato_api::kube::Error>),
    /// A kubeconfig.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The request was refused.
    #[error("the certificate request was {0}")]
    Refused(String),
    /// Nobody signed it.
    #[error("nobody signed the certificate request within {} s", PATIENCE.as_secs())]
    Timeout,
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What was read is not a certificate with its key.
    #[error("not a certificate with its key: {0}")]
    Malformed(String),
    /// There is neither a usable kubeconfig nor a way to get one.
    #[error("{} does not work, and no --bootstrap-kubeconfig is given", .0.display())]
    NoCredentials(PathBuf),
}

/// A certificate and key, in one PEM text, and when to renew it.
pub(crate) struct Pair {
    pub(crate) pem: String,
    /// When its life began and when it ends.
    life: (Timestamp, Timestamp),
}

impl Pair {
    pub(crate) fn parse(pem: String) -> Result<Self, CertificateError> {
        let malformed = |error: &dyn std::fmt::Display| CertificateError::Malformed(error.to_string());
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| malformed(&e))?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| malformed(&e))?;
        let validity = certificate.validity();
        let time = |at: i64| Timestamp::from_second(at).map_err(|e| malformed(&e));
        let life = (
            time(validity.not_before.timestamp())?,
            time(validity.not_after.timestamp())?,
        );
        PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| malformed(&e))?;
        Ok(Self { pem, life })
    }

    fn read(path: &Path) -> Option<Self> {
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| Self::parse(text).ok())
    }

    fn is_valid(&self) -> bool {
        let now = Timestamp::now();
        self.life.0 <= now && now < self.life.1
    }

    /// At 70 to 90 % of its life, spread so that nodes that joined together do not renew together.
    fn renew_in(&self) -> Duration {
        let part = rand::random_range(0.7..0.9);
        let at = self.life.0 + self.life.1.duration_since(self.life.0).mul_f64(part);
        Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
    }

    fn certified_key(&self) -> Result<CertifiedKey, CertificateError> {
        let malformed = |error: &dyn std::fmt::Display| CertificateError::Malformed(error.to_string());
        let chain = CertificateDer::pem_slice_iter(self.pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| malformed(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.pem.as_bytes()).map_err(|e| malformed(&e))?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map_err(|e| malformed(&e))
    }
}

fn user_of(node: &str) -> String {
    format!("system:node:{node}")
}

/// Asks for a certificate and waits until it is signed.
async fn request(client: &Client, node: &str, signer: Signer, alt_names: &[AltName]) -> Result<Pair, CertificateError> {
    let key = PrivateKey::generate()?;
    let text = new_request(&key, &user_of(node), &["system:nodes"], alt_names)?;
    let purpose = if signer == Signer::KubeletServing {
        "server auth"
    } else {
        "client auth"
    };
    let mut object = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(text.into_bytes()),
            signer_name: signer.name().to_owned(),
            usages: Some(vec!["digital signature".to_owned(), purpose.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    object.metadata.generate_name = Some("csr-".to_owned());
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let made = api.create(&PostParams::default(), &object).await.map_err(Box::new)?;
    let name = made.metadata.name.unwrap_or_default();
    tracing::info!(request = name, signer = signer.name(), "asked for a certificate");
    let decided = |csr: Option<&CertificateSigningRequest>| csr.is_none_or(|csr| outcome(csr).is_some());
    let waiting = await_condition(api, &name, decided);
    let answer = match tokio::time::timeout(PATIENCE, waiting).await {
        Err(_) => return Err(CertificateError::Timeout),
        Ok(Err(error)) => return Err(CertificateError::Refused(format!("not to be followed: {error}"))),
        Ok(Ok(answer)) => answer,
    };
    match answer.as_ref().and_then(outcome) {
        Some(Ok(certificate)) => Pair::parse(format!("{}\n{}", certificate.trim_end(), key.to_pem())),
        Some(Err(why)) => Err(CertificateError::Refused(why)),
        None => Err(CertificateError::Refused("deleted".to_owned())),
    }
}

/// The certificate, or why there will be none; `None` while it is open.
fn outcome(csr: &CertificateSigningRequest) -> Option<Result<String, String>> {
    let status = csr.status.as_ref()?;
    let refusal = status
        .conditions
        .iter()
        .flatten()
        .find(|c| matches!(c.type_.as_str(), "Denied" | "Failed"));
    if let Some(refusal) = refusal {
        let message = refusal.message.clone().unwrap_or_default();
        return Some(Err(format!("{}: {message}", refusal.type_.to_lowercase())));
    }
    let certificate = status.certificate.as_ref().filter(|bytes| !bytes.0.is_empty())?;
    Some(Ok(String::from_utf8_lossy(&certificate.0).into_owned()))
}

fn client_file(settings: &Settings) -> PathBuf {
    settings.cert_dir.join("kubelet-client-current.pem")
}

fn serving_file(settings: &Settings) -> PathBuf {
    settings.cert_dir.join("kubelet-server-current.pem")
}

fn write(path: &Path, text: &str) -> Result<(), CertificateError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(|source| CertificateError::File {
            path: directory.to_owned(),
            source,
        })?;
    }
    Ok(minato_pki::write_private(path, text)?)
}

/// The way by which the node speaks to the API server: of its kubeconfig if that works, else by bootstrapping, which is retried until
/// it succeeds.
///
/// # Errors
/// Only what no retry mends: no bootstrap kubeconfig, or one that is broken.
pub(crate) async fn obtain_connection(settings: &Settings) -> Result<Connection, CertificateError> {
    if settings.kubeconfig.exists() {
        let own = Pair::read(&client_file(settings));
        // A kubeconfig of other credentials than ours is taken as it is.
        if own.as_ref().is_none_or(Pair::is_valid) {
            return Ok(connection_of(&settings.kubeconfig).await?);
        }
        tracing::warn!("the client certificate is no longer valid; bootstrapping again");
    }
    let bootstrap = settings
        .bootstrap_kubeconfig
        .as_ref()
        .ok_or_else(|| CertificateError::NoCredentials(settings.kubeconfig.clone()))?;
    let config = read_kubeconfig(bootstrap).await?;
    let client = connection_of(bootstrap).await?.client;
    let pair = loop {
        match request(&client, &settings.node_name, Signer::KubeletClient, &[]).await {
            Ok(pair) => break pair,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "bootstrapping failed; trying again"
            ),
        }
        tokio::time::sleep(RETRY).await;
    };
    let path = client_file(settings);
    write(&path, &pair.pem)?;
    let file = path.display().to_string();
    let authority = config.root_cert.unwrap_or_default();
    let authority: String = authority.iter().map(|der| pem_of(der)).collect();
    let credential = Credential::Files {
        certificate: &file,
        key: &file,
    };
    let server = config.cluster_url.to_string();
    let text = kubeconfig_with(
        "default-cluster",
        server.trim_end_matches('/'),
        &authority,
        "default-auth",
        credential,
    );
    write(&settings.kubeconfig, &text)?;
    tracing::info!(node = settings.node_name, "the node has its client certificate");
    Ok(connection_of(&settings.kubeconfig).await?)
}

fn pem_of(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Renews the client certificate whenever its time has come; `present` is told of each new client.
pub(crate) async fn rotate_client(settings: Arc<Settings>, client: Client, present: crate::client::Replaceable) {
    let path = client_file(&settings);
    while let Some(pair) = Pair::read(&path) {
        tokio::time::sleep(pair.renew_in()).await;
        let renewed = async {
            let pair = request(&client, &settings.node_name, Signer::KubeletClient, &[]).await?;
            write(&path, &pair.pem)?;
            present.replace(connection_of(&settings.kubeconfig).await?);
            Ok::<_, CertificateError>(())
        };
        match renewed.await {
            Ok(()) => tracing::info!("the client certificate was renewed"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "renewing the client certificate failed"
                );
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
        }
    }
}

/// The certificate that the kubelet serves with; replaced while it serves.
#[derive(Debug, Clone)]
pub(crate) struct ServingCertificate {
    present: Arc<ArcSwap<CertifiedKey>>,
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present.load_full())
    }
}

impl ServingCertificate {
    /// The one in the file if it is valid, else a self-signed one until the cluster signs another.
    pub(crate) fn load(settings: &Settings) -> Result<Self, CertificateError> {
        let pair = match Pair::read(&serving_file(settings)).filter(Pair::is_valid) {
            Some(pair) => pair,
            None => self_signed(settings)?,
        };
        Ok(Self {
            present: Arc::new(ArcSwap::from_pointee(pair.certified_key()?)),
        })
    }

    /// Keeps a signed certificate for the node's names and addresses, which `names` tells; they may change.
    pub(crate) async fn keep(
        self,
        settings: Arc<Settings>,
        client: Client,
        mut names: tokio::sync::watch::Receiver<Vec<AltName>>,
    ) {
        let path = serving_file(&settings);
        let mut signed_for: Option<Vec<AltName>> = None;
        loop {
            let wanted = names.borrow_and_update().clone();
            if wanted.is_empty() {
                if names.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let present = Pair::read(&path).filter(Pair::is_valid);
            // After a restart the file's names are not known to be the wanted ones; they nearly always are.
            let fits = signed_for.as_ref().is_none_or(|names| *names == wanted);
            if let Some(pair) = present.filter(|_| fits) {
                signed_for = Some(wanted);
                tokio::select! {
                    () = tokio::time::sleep(pair.renew_in()) => signed_for = Some(Vec::new()),
                    changed = names.changed() => if changed.is_err() { return },
                }
                continue;
            }
            let renewed = async {
                let pair = request(&client, &settings.node_name, Signer::KubeletServing, &wanted).await?;
                write(&path, &pair.pem)?;
                self.present.store(Arc::new(pair.certified_key()?));
                Ok::<_, CertificateError>(())
            };
            let pause = tokio::select! {
                result = renewed => match result {
                    Ok(()) => {
                        signed_for = Some(wanted);
                        tracing::info!("the serving certificate was signed");
                        Duration::ZERO
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "no signed serving certificate yet");
                        Duration::from_secs(15)
                    }
                },
                changed = names.changed() => if changed.is_err() { return } else { Duration::ZERO },
            };
            tokio::time::sleep(pause).await;
        }
    }
}

fn self_signed(settings: &Settings) -> Result<Pair, CertificateError> {
    let name = &settings.node_name;
    let authority = Authority::generate(&format!("{name}-ca"))?;
    let mut addresses: Vec<IpAddr> = settings.node_ip.into_iter().collect();
    addresses.push(IpAddr::from([127, 0, 0, 1]));
    let serving = Serving {
        names: vec![name.clone(), "localhost".to_owned()],
        addresses,
    };
    let issued = authority.issue_serving(name, &serving)?;
    Pair::parse(format!("{}\n{}", issued.certificate.trim_end(), issued.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_knows_its_life_and_is_renewed_late_in_it() {
        let authority = Authority::generate("test").unwrap();
        let issued = authority.issue_client("u", &[], Duration::from_secs(100_000)).unwrap();
        let pair = Pair::parse(format!("{}{}", issued.certificate, issued.key)).unwrap();
        assert!(pair.is_valid());
        let wait = pair.renew_in().as_secs();
        // The life began 300 s ago and lasts 100300 s.
        assert!((69_000..=90_400).contains(&wait), "{wait}");
        assert!(Pair::parse(issued.certificate).is_err(), "without a key");
    }
}
