//! How the provider's process begins and ends, and to whom it talks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hyper_util::rt::TokioIo;
use minato_terraform_protocol::wire::host::grpc_controller_client::GrpcControllerClient;
use minato_terraform_protocol::wire::host::grpc_stdio_client::GrpcStdioClient;
use minato_terraform_protocol::wire::{host, provider as wire};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use support::{Process, command};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn by_hand_it_says_what_it_is() {
    let output = command().env_remove("TF_PLUGIN_MAGIC_COOKIE").output().await.unwrap();
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("Terraform starts it"), "{text}");
    let old = command().env("PLUGIN_PROTOCOL_VERSIONS", "5").output().await.unwrap();
    assert!(!old.status.success());
}

#[tokio::test]
async fn it_is_healthy_and_ends_when_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command();
    command.env("PLUGIN_UNIX_SOCKET_DIR", directory.path());
    let mut process = Process::start(command).await;
    assert_eq!(process.handshake[..3], ["1", "6", "unix"]);
    assert_eq!(process.handshake[4..], ["grpc", ""]);
    assert!(process.socket().starts_with(directory.path()));

    let mut health = tonic_health::pb::health_client::HealthClient::new(process.channel());
    let request = tonic_health::pb::HealthCheckRequest {
        service: "plugin".to_owned(),
    };
    let answer = health.check(request).await.unwrap().into_inner();
    assert_eq!(
        answer.status(),
        tonic_health::pb::health_check_response::ServingStatus::Serving
    );

    // A stream that the host holds open does not keep the process.
    let mut stdio = GrpcStdioClient::new(process.channel());
    let mut output = stdio.stream_stdio(host::Nothing {}).await.unwrap().into_inner();
    let mut controller = GrpcControllerClient::new(process.channel());
    controller.shutdown(host::Nothing {}).await.unwrap();
    let ended = tokio::time::timeout(SOON, process.child.wait()).await.unwrap().unwrap();
    assert!(ended.success());
    assert!(!matches!(output.message().await, Ok(Some(_))));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn it_does_not_outlive_a_host_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let provider = command();
    let variables = provider.as_std().get_envs();
    let mut shell = tokio::process::Command::new("sh");
    // The shell stays, as the provider's parent.
    shell.args(["-c", r#""$0"; true"#]).arg(provider.as_std().get_program());
    shell.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    shell.env("PLUGIN_UNIX_SOCKET_DIR", directory.path());
    shell.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut shell = shell.spawn().unwrap();
    let mut output = shell.stdout.take().unwrap();
    let mut line = [0; 8];
    output.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"1|6|unix");
    shell.start_kill().unwrap();
    // Its end closes the pipe, and takes the socket's directory away.
    let mut rest = Vec::new();
    tokio::time::timeout(SOON, output.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A certificate as hosts make them, and its key.
struct Identity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        Self {
            certificate: parameters.self_signed(&key).unwrap(),
            key,
        }
    }

    /// A connection that shows this certificate and trusts what the handshake named alone.
    async fn connect(&self, process: &Process) -> Result<Channel, tonic::transport::Error> {
        let trusted = STANDARD_NO_PAD.decode(&process.handshake[5]).unwrap();
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = rustls::ClientConfig::builder_with_provider(crypto.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named {
                certificate: CertificateDer::from(trusted),
                crypto,
            }))
            .with_client_auth_cert(vec![self.certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (connector, socket) = (TlsConnector::from(Arc::new(config)), process.socket());
        let connector = tower::service_fn(move |_: Uri| {
            let (connector, socket) = (connector.clone(), socket.clone());
            async move {
                let name = ServerName::try_from("localhost").unwrap();
                let connection = connector.connect(name, UnixStream::connect(socket).await?).await?;
                Ok::<_, std::io::Error>(TokioIo::new(connection))
            }
        });
        Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
    }
}

/// Trusts the certificate that the handshake named, which is its own authority.
#[derive(Debug)]
struct Named {
    certificate: CertificateDer<'static>,
    crypto: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        assert_eq!(shown, &self.certificate);
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("only TLS 1.3 is spoken")
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the provider answers.
async fn answers(channel: Result<Channel, tonic::transport::Error>) -> bool {
    let Ok(channel) = channel else { return false };
    let mut provider = wire::provider_client::ProviderClient::new(channel);
    provider.get_metadata(wire::Nothing {}).await.is_ok()
}

#[tokio::test]
async fn it_talks_to_its_host_alone() {
    let (host, other) = (Identity::new(), Identity::new());
    let mut command = command();
    command.env("PLUGIN_CLIENT_CERT", host.certificate.pem());
    let process = Process::start(command).await;
    assert!(answers(host.connect(&process).await).await);
    assert!(!answers(other.connect(&process).await).await);
    assert!(!answers(Ok(process.channel())).await);
    // Strangers do not disturb it.
    assert!(answers(host.connect(&process).await).await);

    let mut command = support::command();
    command.env(
        "PLUGIN_CLIENT_CERT",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let output = command.output().await.unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
}
