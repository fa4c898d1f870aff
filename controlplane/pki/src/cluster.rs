//! All of a cluster's authorities and keys, as a value and as files.

use std::path::Path;
use std::time::Duration;

use crate::authority::default_life;
use crate::{Authority, Issued, PkiError, PrivateKey, Serving, files};

/// A cluster's authorities and service-account keys.
pub struct ClusterPki {
    cluster: Authority,
    front_proxy: Authority,
    etcd: Authority,
    service_account_key: String,
    /// PEM; the signing key's own first, then retired ones whose tokens are still good.
    service_account_public_keys: Vec<String>,
}

/// Files of the service-account keys; further `sa-*.pub` are retired keys.
const SIGNING_KEY: &str = "sa.key";

impl ClusterPki {
    /// A new set of keys that is kept nowhere.
    ///
    /// # Errors
    /// [`PkiError::Random`].
    pub fn generate(cluster: &str) -> Result<Self, PkiError> {
        let signing = PrivateKey::generate()?;
        Ok(Self {
            cluster: Authority::generate(&cluster_name(cluster))?,
            front_proxy: Authority::generate(&front_proxy_name(cluster))?,
            etcd: Authority::generate(&etcd_name(cluster))?,
            service_account_key: signing.to_pem(),
            service_account_public_keys: vec![signing.public_key_pem()],
        })
    }

    /// Reads the keys kept in `directory`, making those that are not there yet. The files are named as kubeadm names
    /// them: `ca.{crt,key}`, `front-proxy-ca.{crt,key}`, `etcd/ca.{crt,key}`, `sa.{key,pub}`.
    ///
    /// # Errors
    /// Files that cannot be read, written or parsed, and certificates that do not fit their key.
    pub fn load_or_create(directory: &Path, cluster: &str) -> Result<Self, PkiError> {
        files::private_directory(&directory.join("etcd"))?;
        let signing = files::keep_private(&directory.join(SIGNING_KEY), || Ok(PrivateKey::generate()?.to_pem()))?;
        let public = PrivateKey::from_pem(&signing)?.public_key_pem();
        files::keep_private(&directory.join("sa.pub"), || Ok(public.clone()))?;
        let mut public_keys = vec![public];
        public_keys.extend(retired_keys(directory)?);
        Ok(Self {
            cluster: kept_authority(directory, "ca", &cluster_name(cluster))?,
            front_proxy: kept_authority(directory, "front-proxy-ca", &front_proxy_name(cluster))?,
            etcd: kept_authority(&directory.join("etcd"), "ca", &etcd_name(cluster))?,
            service_account_key: signing,
            service_account_public_keys: public_keys,
        })
    }

    /// Makes a new service-account signing key in `directory`. Tokens of the old one stay valid until they end: its
    /// public key is kept beside the new one. Takes effect in whoever loads the directory next.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn rotate_service_account_key(directory: &Path) -> Result<(), PkiError> {
        let path = directory.join(SIGNING_KEY);
        if let Some(old) = files::read(&path)? {
            let public = PrivateKey::from_pem(&old)?.public_key_pem();
            let stamp = jiff::Timestamp::now().as_millisecond();
            // The old public key must be there before its private key goes.
            files::write_private(&directory.join(format!("sa-{stamp}.pub")), &public)?;
        }
        let new = PrivateKey::generate()?;
        files::write_private(&path, &new.to_pem())?;
        files::write_private(&directory.join("sa.pub"), &new.public_key_pem())
    }

    /// The authority of serving and client certificates.
    pub fn cluster(&self) -> &Authority {
        &self.cluster
    }

    /// The authority of the aggregation layer's client certificates.
    pub fn front_proxy(&self) -> &Authority {
        &self.front_proxy
    }

    /// The authority of the cluster's etcd.
    pub fn etcd(&self) -> &Authority {
        &self.etcd
    }

    /// The cluster authority's certificate, PEM.
    pub fn ca_certificate(&self) -> &str {
        self.cluster.certificate()
    }

    /// The private key that signs service-account tokens: ECDSA P-256, PKCS#8 PEM.
    pub fn service_account_key(&self) -> &str {
        &self.service_account_key
    }

    /// The keys that service-account tokens are verified with, PEM; the signing key's own first.
    pub fn service_account_public_keys(&self) -> &[String] {
        &self.service_account_public_keys
    }

    /// A serving certificate of the cluster authority.
    ///
    /// # Errors
    /// See [`Authority::issue_serving`].
    pub fn issue_serving(&self, common_name: &str, serving: &Serving) -> Result<Issued, PkiError> {
        self.cluster.issue_serving(common_name, serving)
    }

    /// A client certificate of the cluster authority, good for a year: the common name is the user, each organization
    /// a group.
    ///
    /// # Errors
    /// See [`Authority::issue_client`].
    pub fn issue_client(&self, user: &str, groups: &[&str]) -> Result<Issued, PkiError> {
        self.issue_client_for(user, groups, default_life())
    }

    /// The same with a life of one's own.
    ///
    /// # Errors
    /// See [`Authority::issue_client`].
    pub fn issue_client_for(&self, user: &str, groups: &[&str], life: Duration) -> Result<Issued, PkiError> {
        self.cluster.issue_client(user, groups, life)
    }
}

fn cluster_name(cluster: &str) -> String {
    format!("{cluster}-ca")
}
fn front_proxy_name(cluster: &str) -> String {
    format!("{cluster}-front-proxy-ca")
}
fn etcd_name(cluster: &str) -> String {
    format!("{cluster}-etcd-ca")
}

/// An authority of its files; a key without a certificate is one whose making was cut short.
fn kept_authority(directory: &Path, stem: &str, common_name: &str) -> Result<Authority, PkiError> {
    let certificate_path = directory.join(format!("{stem}.crt"));
    let key_path = directory.join(format!("{stem}.key"));
    if files::read(&certificate_path)?.is_some() && files::read(&key_path)?.is_none() {
        return Err(PkiError::Mismatch {
            path: certificate_path,
            why: "the authority's private key is not there",
        });
    }
    let key = files::keep_private(&key_path, || Ok(PrivateKey::generate()?.to_pem()))?;
    let key = PrivateKey::from_pem(&key)?;
    let certificate = files::keep_private(&certificate_path, || Authority::self_sign(common_name, &key))?;
    Authority::from_parts(certificate, key).map_err(|error| match error {
        PkiError::Malformed(why) => PkiError::Mismatch {
            path: certificate_path,
            why,
        },
        other => other,
    })
}

fn retired_keys(directory: &Path) -> Result<Vec<String>, PkiError> {
    let failed = |source| PkiError::File {
        path: directory.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str()
            && name.starts_with("sa-")
            && name.ends_with(".pub")
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    let mut keys = Vec::new();
    for name in names {
        keys.extend(files::read(&directory.join(name))?);
    }
    Ok(keys)
}
