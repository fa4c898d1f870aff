//! Mutual TLS of two processes that know each other's certificates: the host's from an environment variable, ours from the
//! handshake. Both are made for one run; neither needs an authority.
//!
//! The host's key is on P-521, which `ring` does not verify; so this part is done by the `p521` crate.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use p521::ecdsa::signature::Verifier;
use p521::ecdsa::{Signature, VerifyingKey};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, ServerConfig, SignatureScheme,
};
use tokio::net::UnixStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::ServeError;

/// How long a connection may take to prove itself; others wait meanwhile, and there is but one host.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The name by which the host calls us.
const NAME: &str = "localhost";

#[derive(Clone)]
pub(super) struct Mutual {
    acceptor: TlsAcceptor,
    /// Ours, as the handshake has it.
    pub(super) certificate: String,
}

impl Mutual {
    pub(super) async fn accept(
        self,
        connection: std::io::Result<UnixStream>,
    ) -> std::io::Result<TlsStream<UnixStream>> {
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(connection?)).await;
        let result = accepted.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        result.inspect_err(|error| tracing::warn!(%error, "refused a connection"))
    }
}

/// TLS with a certificate made now, for a host with this certificate alone.
pub(super) fn mutual(host_certificate: &str) -> Result<Mutual, ServeError> {
    let host = pem::parse(host_certificate).map_err(|error| ServeError::Certificate(error.to_string()))?;
    let host = CertificateDer::from(host.into_contents());
    X509Certificate::from_der(&host).map_err(|error| ServeError::Certificate(error.to_string()))?;

    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new([NAME.to_owned()])?;
    // It is its own authority, in the host's eyes.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Pinned {
        host,
        crypto: crypto.clone(),
    };
    let text = STANDARD_NO_PAD.encode(&certificate);
    let mut config = ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Mutual {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        certificate: text,
    })
}

/// Accepts one certificate, byte by byte, and whoever has its key.
#[derive(Debug)]
struct Pinned {
    host: CertificateDer<'static>,
    crypto: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if end_entity.as_ref() != self.host.as_ref() {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    /// Never called: only TLS 1.3 is spoken.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signed.scheme == SignatureScheme::ECDSA_NISTP521_SHA512 {
            verify_p521(message, certificate, signed.signature())?;
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.crypto.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = vec![SignatureScheme::ECDSA_NISTP521_SHA512];
        schemes.extend(self.crypto.signature_verification_algorithms.supported_schemes());
        schemes
    }
}

fn verify_p521(message: &[u8], certificate: &[u8], signature: &[u8]) -> Result<(), Error> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let point = &certificate.public_key().subject_public_key.data;
    let key = VerifyingKey::from_sec1_bytes(point).map_err(|_| CertificateError::BadEncoding)?;
    let signature = Signature::from_der(signature).map_err(|_| CertificateError::BadSignature)?;
    let verified = key.verify(message, &signature);
    Ok(verified.map_err(|_| CertificateError::BadSignature)?)
}
