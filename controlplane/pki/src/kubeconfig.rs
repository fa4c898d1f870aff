//! Kubeconfig files. Source: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::Issued;

/// How a kubeconfig's user proves who they are.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// By a client certificate, embedded.
    Certificate(&'a Issued),
    /// By a bearer token: a bootstrap token, or a service account's.
    Token(&'a str),
    /// By a client certificate and key in files (one file may hold both), so that they can be renewed under it.
    Files {
        /// Path of the certificate.
        certificate: &'a str,
        /// Path of the key.
        key: &'a str,
    },
}

/// A kubeconfig with one cluster, one user by client certificate, and one context; JSON, which is YAML too.
pub fn kubeconfig(cluster: &str, server: &str, ca_certificate: &str, user: &str, credential: &Issued) -> String {
    kubeconfig_with(
        cluster,
        server,
        ca_certificate,
        user,
        Credential::Certificate(credential),
    )
}

/// The same with any credential.
pub fn kubeconfig_with(
    cluster: &str,
    server: &str,
    ca_certificate: &str,
    user: &str,
    credential: Credential<'_>,
) -> String {
    let proof = match credential {
        Credential::Certificate(issued) => json!({
            "client-certificate-data": STANDARD.encode(&issued.certificate),
            "client-key-data": STANDARD.encode(&issued.key),
        }),
        Credential::Token(token) => json!({"token": token}),
        Credential::Files { certificate, key } => json!({"client-certificate": certificate, "client-key": key}),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_certificate),
        }}],
        "users": [{"name": user, "user": proof}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    });
    format!("{config:#}\n")
}
