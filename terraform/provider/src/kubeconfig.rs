//! `minato_kubeconfig`: how to reach a cluster as its admin. As a data source its values are kept in Terraform's state; as
//! an ephemeral resource nowhere.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minato_api::fleet::{Cluster, KUBECONFIG_KEY};
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::{Api, Client};
use minato_terraform_protocol::{
    Attribute, DataSource, Diagnostic, Diagnostics, EphemeralResource, Object, Path, Schema, Type,
};
use serde_json::Value as Json;

use crate::checks;
use crate::connection::Connection;
use crate::errors::refused;

/// A kubeconfig and its parts. Not to be shown.
pub(crate) struct Parts {
    raw: String,
    host: String,
    pub(crate) ca_certificate: String,
    client_certificate: String,
    client_key: String,
}

impl Parts {
    /// The parts of a kubeconfig with one cluster and one user, in which everything is embedded.
    fn parse(raw: &str) -> Option<Self> {
        let tree: Json = serde_yaml_ng::from_str(raw).ok()?;
        let text = |pointer: &str| tree.pointer(pointer).and_then(Json::as_str);
        let decoded = |pointer: &str| String::from_utf8(STANDARD.decode(text(pointer)?).ok()?).ok();
        Some(Self {
            raw: raw.to_owned(),
            host: text("/clusters/0/cluster/server")?.to_owned(),
            ca_certificate: decoded("/clusters/0/cluster/certificate-authority-data")?,
            client_certificate: decoded("/users/0/user/client-certificate-data")?,
            client_key: decoded("/users/0/user/client-key-data")?,
        })
    }
}

/// The kubeconfig in a Secret; `None` when there is no such Secret.
pub(crate) async fn read(client: &Client, namespace: &str, secret: &str) -> Result<Option<Parts>, Diagnostics> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(secret).await;
    let found = found.map_err(|error| refused(&format!("to read the Secret {namespace}/{secret}"), &error, &[]))?;
    let Some(found) = found else { return Ok(None) };
    let bytes = found.data.as_ref().and_then(|data| data.get(KUBECONFIG_KEY));
    let text = bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
    match text.and_then(Parts::parse) {
        Some(parts) => Ok(Some(parts)),
        None => {
            let text = format!("The Secret {namespace}/{secret} holds no kubeconfig that can be read.");
            Err(Diagnostic::error("No kubeconfig", text).into())
        }
    }
}

/// Looks kubeconfigs up.
pub(crate) struct Kubeconfigs {
    schema: Schema,
    connection: Arc<Connection>,
}

impl Kubeconfigs {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let text = || Type::String;
        let attributes = vec![
            Attribute::required("cluster", text(), "Name of the cluster, or its id: namespace/name."),
            Attribute::computed("id", text(), "The cluster's id: namespace/name."),
            Attribute::computed("raw", text(), "The kubeconfig.").sensitive(),
            Attribute::computed("host", text(), "URL of the cluster's API."),
            Attribute::computed(
                "cluster_ca_certificate",
                text(),
                "Certificate of the cluster's authority, as PEM.",
            ),
            Attribute::computed("client_certificate", text(), "The admin's certificate, as PEM.").sensitive(),
            Attribute::computed("client_key", text(), "The admin's key, as PEM.").sensitive(),
        ];
        Self {
            schema: Schema::new("How to reach a cluster as its admin.", attributes),
            connection,
        }
    }

    fn check(config: &Object) -> Diagnostics {
        let id = config.str("cluster").map(|id| checks::parse_id(id, "default"));
        match id {
            Some(Err(diagnostic)) => diagnostic.at(Path::attribute("cluster")).into(),
            Some(Ok(_)) | None => Diagnostics::default(),
        }
    }

    async fn look_up(&self, config: &Object) -> Result<Object, Diagnostics> {
        let session = self.connection.get()?;
        let given = config.str("cluster").unwrap_or_default();
        let (namespace, name) = checks::parse_id(given, &session.namespace)?;
        let missing = |why: &str| {
            let text = format!("Cluster {namespace}/{name} {why}.");
            Diagnostics::from(Diagnostic::error("No kubeconfig", text).at(Path::attribute("cluster")))
        };
        let clusters: Api<Cluster> = Api::namespaced(session.client.clone(), namespace);
        let cluster = clusters.get_opt(name).await;
        let cluster = cluster.map_err(|error| refused(&format!("to read cluster {namespace}/{name}"), &error, &[]))?;
        let status = cluster
            .ok_or_else(|| missing("does not exist"))?
            .status
            .unwrap_or_default();
        if status.kubeconfig_secret.is_empty() {
            return Err(missing("has no kubeconfig yet: its control plane has not been started"));
        }
        let parts = read(&session.client, namespace, &status.kubeconfig_secret).await?;
        let parts = parts.ok_or_else(|| missing("has lost its kubeconfig, which is made anew soon"))?;
        Ok(Object::from([
            ("cluster", given.into()),
            ("id", format!("{namespace}/{name}").into()),
            ("raw", parts.raw.into()),
            ("host", parts.host.into()),
            ("cluster_ca_certificate", parts.ca_certificate.into()),
            ("client_certificate", parts.client_certificate.into()),
            ("client_key", parts.client_key.into()),
        ]))
    }
}

#[async_trait]
impl DataSource for Kubeconfigs {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn validate(&self, config: &Object) -> Diagnostics {
        Self::check(config)
    }

    async fn read(&self, config: &Object) -> Result<Object, Diagnostics> {
        self.look_up(config).await
    }
}

#[async_trait]
impl EphemeralResource for Kubeconfigs {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn validate(&self, config: &Object) -> Diagnostics {
        Self::check(config)
    }

    async fn open(&self, config: &Object) -> Result<Object, Diagnostics> {
        self.look_up(config).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_parts() {
        // The parts are "ca", "cert" and "key" in Base64.
        let raw = r#"{"clusters":[{"name":"c","cluster":{"server":"https://h:1","certificate-authority-data":"Y2E="}}],
            "users":[{"name":"u","user":{"client-certificate-data":"Y2VydA==","client-key-data":"a2V5"}}]}"#;
        let parts = Parts::parse(raw).unwrap();
        let found = [
            &parts.host,
            &parts.ca_certificate,
            &parts.client_certificate,
            &parts.client_key,
        ];
        assert_eq!(found, ["https://h:1", "ca", "cert", "key"]);
        for bad in ["", "{}", "[", "clusters: []"] {
            assert!(Parts::parse(bad).is_none(), "{bad}");
        }
    }
}
