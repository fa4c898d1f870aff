//! TLS towards kubelets, and towards pods and services.
//!
//! A kubelet's certificate must be the cluster authority's and be for the node's name or one of its addresses. There is one
//! exception. A kubelet serves with a certificate of its own making until its request is signed, and the way there may
//! prove by itself which node it ends at ([`Egress::authenticates_nodes`]: the tunnel, which the node opened with its
//! client certificate). Then a certificate of an *unknown* authority is taken; one that the cluster authority gave to
//! somebody else is not.
//!
//! [`Egress::authenticates_nodes`]: minato_streams::Egress::authenticates_nodes

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::server::TlsError;

/// How an API server proves itself to kubelets, and what it believes of them.
#[derive(Debug)]
pub struct KubeletAccess {
    /// With the client certificate; the verifier is replaced for each connection.
    base: ClientConfig,
    chain: Arc<WebPkiServerVerifier>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl KubeletAccess {
    /// From a client certificate chain (leaf first) and the authorities of serving certificates.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: &[CertificateDer<'static>],
    ) -> Result<Arc<Self>, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.clone()).map_err(TlsError::ClientAuthority)?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(TlsError::Verifier)?;
        let mut base = builder(verifier.clone())?
            .with_client_auth_cert(chain, key)
            .map_err(TlsError::Certificate)?;
        base.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Resumed sessions would skip the check of the certificate.
        base.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(Self { base, chain: verifier }))
    }

    /// The configuration for one kubelet, known by `names`.
    pub(super) fn for_kubelet(&self, names: Vec<ServerName<'static>>, way_proves_node: bool) -> Arc<ClientConfig> {
        let mut config = self.base.clone();
        config.dangerous().set_certificate_verifier(Arc::new(KubeletVerifier {
            chain: self.chain.clone(),
            names,
            way_proves_node,
        }));
        Arc::new(config)
    }
}

/// The configuration for pods and services, of whose certificates nothing is known. As upstream has it.
pub(super) fn unverified() -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = builder(Arc::new(AnyCertificate(provider())))?.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn builder(
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Certificate)?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

#[derive(Debug)]
struct KubeletVerifier {
    chain: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
    way_proves_node: bool,
}

impl ServerCertVerifier for KubeletVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut failure = Error::InvalidCertificate(CertificateError::NotValidForName);
        for name in &self.names {
            let verified = self
                .chain
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
            match verified {
                Ok(verified) => return Ok(verified),
                Err(error) => failure = error,
            }
        }
        if self.way_proves_node && failure == Error::InvalidCertificate(CertificateError::UnknownIssuer) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(failure)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
