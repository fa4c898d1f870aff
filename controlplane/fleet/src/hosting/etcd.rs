//! The provider's etcd: a prefix, a user and a role for each cluster that keeps its objects there.
//!
//! Source: <https://etcd.io/docs/v3.4/op-guide/authentication/>.

use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Client, DeleteOptions, Error as EtcdError, Permission, PermissionType, UserAddOptions};
use minato_pki::{Authority, Issued};
use minato_storage::{EtcdOptions, EtcdTls};

use super::HostingError;

/// The user that etcd wants for everything about users; it holds etcd's role of the same name.
const ROOT: &str = "root";
/// How long root's certificate is good: for the calls that follow.
const ROOT_LIFE: Duration = Duration::from_secs(3_600);
/// How long a cluster's certificate is good. It is made anew whenever its process starts, and at no other time.
const TENANT_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 3_600);

/// Settings of the provider's etcd, which must speak TLS, take its users from certificates, and have authentication on.
#[derive(Debug, Clone)]
pub struct EtcdHostingConfig {
    /// Client URLs of its members.
    pub endpoints: Vec<String>,
    /// File with the authority that etcd trusts, and that signed its members' certificates.
    pub authority: PathBuf,
    /// File with that authority's key: certificates of clusters are made with it.
    pub authority_key: PathBuf,
}

/// Makes and removes what clusters have in etcd. All calls may be repeated.
#[derive(Debug, Clone)]
pub struct EtcdHosting {
    config: EtcdHostingConfig,
}

fn failed(what: &'static str) -> impl FnOnce(EtcdError) -> HostingError {
    move |source| HostingError::Etcd(format!("{what}: {source}"))
}

/// Whether etcd says this of a request. It has no codes for it.
fn says(error: &EtcdError, text: &str) -> bool {
    matches!(error, EtcdError::GRpcStatus(status) if status.message().contains(text))
}

/// Takes it as done when etcd says that it is.
fn done<T>(result: Result<T, EtcdError>, already: &str, what: &'static str) -> Result<(), HostingError> {
    match result {
        Err(error) if !says(&error, already) => Err(failed(what)(error)),
        _ => Ok(()),
    }
}

impl EtcdHosting {
    /// Uses this etcd; nothing is asked of it yet.
    pub fn new(config: EtcdHostingConfig) -> Self {
        Self { config }
    }

    /// Client URLs.
    pub(super) fn endpoints(&self) -> &[String] {
        &self.config.endpoints
    }

    /// What a cluster's keys begin with.
    pub(super) fn prefix(id: &str) -> String {
        format!("/minato/{id}")
    }

    fn user(id: &str) -> String {
        format!("minato-{id}")
    }

    fn authority(&self) -> Result<Authority, HostingError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|source| HostingError::Io {
                what: format!("reading {}", path.display()),
                source,
            })
        };
        let (bundle, key) = (read(&self.config.authority)?, read(&self.config.authority_key)?);
        Ok(Authority::from_pem(&bundle, &key)?)
    }

    async fn client(&self, tls: EtcdTls) -> Result<Client, HostingError> {
        let mut options = EtcdOptions::new(self.config.endpoints.clone(), "/");
        options.tls = Some(tls);
        options.connect().await.map_err(|e| HostingError::Etcd(e.to_string()))
    }

    async fn root(&self, authority: &Authority) -> Result<Client, HostingError> {
        let issued = authority.issue_client(ROOT, &[], ROOT_LIFE)?;
        self.client(tls(authority, issued)).await
    }

    /// Makes a cluster's user and role, and returns a certificate for it.
    ///
    /// # Errors
    /// etcd cannot be reached or refuses, or does not keep its users apart.
    pub async fn provision(&self, id: &str) -> Result<EtcdTls, HostingError> {
        let authority = self.authority()?;
        let auth = self.root(&authority).await?.auth_client();
        let (user, prefix) = (Self::user(id), Self::prefix(id));
        done(
            auth.clone().role_add(user.clone()).await,
            "role name already exists",
            "adding a role",
        )?;
        // From the prefix with its slash to what follows all that begin so.
        let whole =
            Permission::new(PermissionType::Readwrite, format!("{prefix}/")).with_range_end(format!("{prefix}0"));
        let granted = auth.clone().role_grant_permission(user.clone(), whole).await;
        granted.map_err(failed("granting a prefix to a role"))?;
        // No password: its certificate is the one way in.
        let options = UserAddOptions::new().with_no_pwd();
        let added = auth.clone().user_add(user.clone(), "", Some(options)).await;
        done(added, "user name already exists", "adding a user")?;
        let granted = auth.clone().user_grant_role(user.clone(), user.clone()).await;
        granted.map_err(failed("granting a role to a user"))?;
        let tls = tls(&authority, authority.issue_client(&user, &[], TENANT_LIFE)?);
        self.refuse_open(tls.clone()).await?;
        Ok(tls)
    }

    /// A cluster must not be able to read what is not its own: it could if authentication were off.
    async fn refuse_open(&self, tenant: EtcdTls) -> Result<(), HostingError> {
        let read = self.client(tenant).await?.kv_client().get("/minato/", None).await;
        match read {
            Err(error) if says(&error, "permission denied") => Ok(()),
            Err(error) => Err(failed("reading as the cluster's user")(error)),
            Ok(_) => Err(HostingError::Etcd(
                "every user may read everything: authentication is off (etcdctl auth enable)".to_owned(),
            )),
        }
    }

    /// Removes a cluster's keys, user and role.
    ///
    /// # Errors
    /// etcd cannot be reached or refuses.
    pub async fn remove(&self, id: &str) -> Result<(), HostingError> {
        let root = self.root(&self.authority()?).await?;
        let (user, prefix) = (Self::user(id), Self::prefix(id));
        // The user first: nobody writes below the prefix any more.
        let gone = root.auth_client().user_delete(user.clone()).await;
        done(gone, "user name not found", "deleting a user")?;
        let gone = root.auth_client().role_delete(user).await;
        done(gone, "role name not found", "deleting a role")?;
        let whole = DeleteOptions::new().with_range(format!("{prefix}0"));
        let gone = root.kv_client().delete(format!("{prefix}/"), Some(whole)).await;
        gone.map(drop).map_err(failed("deleting a cluster's keys"))
    }
}

fn tls(authority: &Authority, issued: Issued) -> EtcdTls {
    EtcdTls {
        authority: authority.certificate().to_owned(),
        certificate: issued.certificate,
        key: issued.key,
    }
}
