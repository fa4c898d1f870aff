//! Kubeconfig files. Source: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::Issued;

/// A kubeconfig with one cluster, one user by client certificate, and one context; JSON, which is YAML too.
pub fn kubeconfig(cluster: &str, server: &str, ca_certificate: &str, user: &str, credential: &Issued) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_certificate),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(&credential.certificate),
            "client-key-data": STANDARD.encode(&credential.key),
        }}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    });
    format!("{config:#}\n")
}
