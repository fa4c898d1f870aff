//! How an etcd is reached.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

use super::fault::Fault;
use crate::store::StoreError;

/// Settings of a store in etcd.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Client URLs, `https://host:2379`; any of them serves.
    pub endpoints: Vec<String>,
    /// Every key begins with this; a role for the cluster covers the range of this with a slash.
    pub prefix: String,
    /// Certificates; `None` for a plain connection, which is for a loopback address at most.
    pub tls: Option<EtcdTls>,
    /// History older than this is compacted away. etcd has one history for all prefixes: all who share it should keep the
    /// same.
    pub keep_history: Duration,
    /// Longest that one request may take.
    pub timeout: Duration,
}

/// Certificates for an etcd, all PEM. With authentication on, the client certificate's common name is etcd's user.
#[derive(Clone)]
pub struct EtcdTls {
    /// Who signs the servers' certificates.
    pub authority: String,
    /// Our certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl EtcdOptions {
    /// The usual settings: five minutes of history, five seconds a request.
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            endpoints,
            prefix: prefix.into(),
            tls: None,
            keep_history: Duration::from_secs(300),
            timeout: Duration::from_secs(5),
        }
    }

    /// A client of this etcd. It connects when it is first used.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the settings cannot be used.
    pub async fn connect(&self) -> Result<Client, StoreError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_timeout(self.timeout)
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(tls) = &self.tls {
            let tls = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(&tls.authority))
                .identity(Identity::from_pem(&tls.certificate, &tls.key));
            options = options.with_tls(tls);
        }
        let client = Client::connect(&self.endpoints, Some(options)).await;
        client.map_err(|error| Fault::of(error).reading())
    }
}

impl std::fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
