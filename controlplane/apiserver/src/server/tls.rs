//! Serving certificates and client-certificate verification, replaceable while serving.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// TLS of a listener. New connections use the newest configuration.
pub struct ServerTls {
    current: ArcSwap<ServerConfig>,
}

/// Why a TLS configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate and key do not fit, or are malformed.
    #[error("serving certificate")]
    Certificate(#[source] rustls::Error),
    /// A client authority is malformed.
    #[error("client certificate authority")]
    ClientAuthority(#[source] rustls::Error),
    /// No verifier can be made of the client authorities.
    #[error("client certificate verifier")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

impl ServerTls {
    /// TLS with a serving certificate chain (leaf first) and, where client certificates are taken, their authorities.
    /// Clients without a certificate are let through to prove themselves otherwise.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_authorities: &[CertificateDer<'static>],
    ) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            current: ArcSwap::from_pointee(build(chain, key, client_authorities)?),
        }))
    }

    /// TLS of a ready configuration (an SNI resolver, say). ALPN is set if it is empty.
    pub fn from_config(mut config: ServerConfig) -> Arc<Self> {
        set_alpn(&mut config);
        Arc::new(Self {
            current: ArcSwap::from_pointee(config),
        })
    }

    /// Replaces certificate, key and client authorities for connections to come.
    ///
    /// # Errors
    /// [`TlsError`]; the old configuration stays.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        client_authorities: &[CertificateDer<'static>],
    ) -> Result<(), TlsError> {
        self.current.store(Arc::new(build(chain, key, client_authorities)?));
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }
}

fn set_alpn(config: &mut ServerConfig) {
    if config.alpn_protocols.is_empty() {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
}

fn build(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    client_authorities: &[CertificateDer<'static>],
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Certificate)?;
    let builder = if client_authorities.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in client_authorities {
            roots.add(authority.clone()).map_err(TlsError::ClientAuthority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(TlsError::Verifier)?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Certificate)?;
    set_alpn(&mut config);
    Ok(config)
}
