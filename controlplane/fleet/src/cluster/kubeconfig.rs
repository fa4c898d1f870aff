//! The admin's kubeconfig: a Secret beside the Cluster, renewed long before its certificate ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::fleet::{API_VERSION, CLUSTER_LABEL, Cluster, KUBECONFIG_KEY, KUBECONFIG_SECRET_TYPE};
use minato_api::k8s::core::v1::Secret;
use minato_api::k8s_openapi::ByteString;
use minato_api::kube::Api;
use minato_api::kube::api::{Patch, PatchParams};
use minato_api::meta_v1::{ObjectMeta, OwnerReference};

use super::{Clusters, id, name, namespace};
use crate::error::{Result, api};

/// Life of the admin's certificate. It is renewed after half of it.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// When the kubeconfig is made anew.
const RENEW_AFTER: &str = "fleet.minato.dev/renew-after";
/// Which server it is for.
const SERVER: &str = "fleet.minato.dev/server";

/// Name of the Secret.
pub(super) fn secret_name(cluster: &Cluster) -> String {
    format!("{}-kubeconfig", name(cluster))
}

impl Clusters {
    /// The kubeconfig in the cluster's Secret, made if it is missing, too old or for another server.
    pub(super) async fn kubeconfig(&self, cluster: &Cluster, server: SocketAddr) -> Result<String> {
        let server = format!("https://{server}");
        let key = secret_name(cluster);
        if let Some(secret) = self.secrets.get_in(namespace(cluster), &key)
            && let Some(text) = current(&secret, cluster, &server, Timestamp::now())
        {
            return Ok(text);
        }
        let pki = self.cx.hosting.pki(&id(cluster), name(cluster))?;
        let admin = pki.issue_client_for("kubernetes-admin", &["system:masters"], LIFE)?;
        let text = minato_pki::kubeconfig(name(cluster), &server, pki.ca_certificate(), "kubernetes-admin", &admin);
        let secret = secret(cluster, &server, &text);
        let secrets: Api<Secret> = Api::namespaced(self.cx.runtime.client.clone(), namespace(cluster));
        let params = PatchParams::apply("cluster-controller").force();
        secrets
            .patch(&key, &params, &Patch::Apply(&secret))
            .await
            .map_err(api("writing the cluster's kubeconfig"))?;
        Ok(text)
    }
}

fn current(secret: &Secret, cluster: &Cluster, server: &str, now: Timestamp) -> Option<String> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let owners = secret.metadata.owner_references.iter().flatten();
    let renew_after: Timestamp = annotations.get(RENEW_AFTER)?.parse().ok()?;
    let ours = owners
        .into_iter()
        .any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref());
    if !ours || now >= renew_after || annotations.get(SERVER)? != server {
        return None;
    }
    String::from_utf8(secret.data.as_ref()?.get(KUBECONFIG_KEY)?.0.clone()).ok()
}

fn secret(cluster: &Cluster, server: &str, kubeconfig: &str) -> Secret {
    let half = SignedDuration::from_secs(i64::try_from(LIFE.as_secs() / 2).unwrap_or(i64::MAX));
    let renew_after = Timestamp::now().saturating_add(half).unwrap_or(Timestamp::MAX);
    let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(cluster)),
            namespace: Some(namespace(cluster).to_owned()),
            labels: Some(BTreeMap::from([owned(CLUSTER_LABEL, name(cluster))])),
            annotations: Some(BTreeMap::from([
                owned(RENEW_AFTER, &renew_after.to_string()),
                owned(SERVER, server),
            ])),
            owner_references: Some(vec![OwnerReference {
                api_version: API_VERSION.to_owned(),
                kind: "Cluster".to_owned(),
                name: name(cluster).to_owned(),
                uid: id(cluster),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        type_: Some(KUBECONFIG_SECRET_TYPE.to_owned()),
        data: Some(BTreeMap::from([(
            KUBECONFIG_KEY.to_owned(),
            ByteString(kubeconfig.as_bytes().to_vec()),
        )])),
        ..Secret::default()
    }
}
