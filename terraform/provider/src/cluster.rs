//! `minato_cluster`.

use std::time::Duration;

use async_trait::async_trait;
use minato_api::fleet::{CloudSpec, Cluster, ClusterSpec, ControlPlaneSpec, NetworkSpec};
use minato_api::meta_v1::ObjectMeta;
use minato_terraform_protocol::{Attribute, Diagnostic, Diagnostics, Object, OnUpdate, Path, Schema, Type, Value};

use crate::checks;
use crate::connection::Session;
use crate::errors::Fields;
use crate::kubeconfig;
use crate::managed::Kind;
use crate::wait::{Progress, of_cluster};

pub(crate) struct Clusters;

#[async_trait]
impl Kind for Clusters {
    type Object = Cluster;
    const NOUN: &'static str = "cluster";
    const FIELDS: Fields = &[
        ("metadata.name", "name"),
        ("metadata.namespace", "namespace"),
        ("metadata.labels", "labels"),
        ("spec.version", "version"),
        ("spec.controlPlane.hosting", "hosting"),
        ("spec.controlPlane.store", "store"),
        ("spec.network.podCIDR", "pod_cidr"),
        ("spec.network.serviceCIDR", "service_cidr"),
        ("spec.network.dnsDomain", "dns_domain"),
        ("spec.cloud.provider", "cloud"),
        ("spec.deletionProtection", "deletion_protection"),
    ];
    const GIVEN: &'static [&'static str] = &["name", "labels", "deletion_protection"];
    const PATIENCE: Duration = Duration::from_secs(10 * 60);

    fn schema() -> Schema {
        let text = || Type::String;
        let attributes = vec![
            Attribute::computed("id", text(), "Namespace and name, as namespace/name."),
            Attribute::computed("uid", text(), "Id that no other cluster ever has."),
            Attribute::required("name", text(), "Name of the cluster.").replaces(),
            Attribute::either("namespace", text(), "Namespace of the cluster in the management API.").replaces(),
            Attribute::default(
                "labels",
                Type::map(text()),
                Value::empty_map(),
                "Labels of the cluster in the management API.",
            ),
            Attribute::either("version", text(), "Kubernetes minor version, such as 1.36."),
            Attribute::either("hosting", text(), "How the control plane is hosted: process."),
            Attribute::either(
                "store",
                text(),
                "Back end of the control plane's store: embedded or etcd.",
            )
            .replaces(),
            Attribute::either(
                "pod_cidr",
                text(),
                "Range of pod addresses; each node takes a /24 of it.",
            )
            .replaces(),
            Attribute::either("service_cidr", text(), "Range of Service addresses.").replaces(),
            Attribute::either("dns_domain", text(), "DNS domain of the cluster.").replaces(),
            Attribute::either("cloud", text(), "Provider of the cloud that the nodes live in.").replaces(),
            Attribute::default("deletion_protection", Type::Bool, false, "Refuses deletion while true."),
            checks::timeouts(),
            Attribute::computed("phase", text(), "State of the cluster, for people.")
                .on_update(OnUpdate::Becomes("Ready".into())),
            Attribute::computed("ready", Type::Bool, "Whether the control plane answers.")
                .on_update(OnUpdate::Becomes(true.into())),
            Attribute::computed("running_version", text(), "The version that runs.")
                .on_update(OnUpdate::UnknownWith("version")),
            Attribute::computed("endpoint", text(), "URL of the cluster's API."),
            Attribute::computed(
                "ca_certificate",
                text(),
                "Certificate of the cluster's authority, as PEM.",
            ),
        ];
        Schema::new(
            "A Kubernetes cluster, whose control plane is hosted by Minato.",
            attributes,
        )
    }

    fn validate(config: &Object, diagnostics: &mut Diagnostics) {
        checks::text(config, "pod_cidr", diagnostics, checks::range);
        checks::text(config, "service_cidr", diagnostics, checks::range);
        checks::text(config, "dns_domain", diagnostics, minato_meta::names::dns1123_subdomain);
    }

    fn wanted(planned: &Object) -> Cluster {
        let text = |name: &str| planned.str(name).unwrap_or_default().to_owned();
        let labels = planned.get("labels").as_map().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let metadata = ObjectMeta {
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        };
        let spec = ClusterSpec {
            version: text("version"),
            control_plane: ControlPlaneSpec {
                hosting: text("hosting"),
                store: text("store"),
            },
            network: NetworkSpec {
                pod_cidr: text("pod_cidr"),
                service_cidr: text("service_cidr"),
                dns_domain: text("dns_domain"),
            },
            cloud: CloudSpec {
                provider: text("cloud"),
            },
            deletion_protection: planned.get("deletion_protection").as_bool().unwrap_or_default(),
        };
        Cluster::new(metadata, spec)
    }

    async fn observed(session: &Session, cluster: &Cluster) -> Result<Object, Diagnostics> {
        let (spec, status) = (&cluster.spec, cluster.status.clone().unwrap_or_default());
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        let labels = labels.into_iter().filter(|(key, _)| !is_systems(key));
        let labels: Value = labels.map(|(key, value)| (key, value.into())).collect();
        let ca_certificate = match &cluster.metadata.namespace {
            Some(namespace) if !status.kubeconfig_secret.is_empty() => {
                let found = kubeconfig::read(&session.client, namespace, &status.kubeconfig_secret).await?;
                found.map(|kubeconfig| kubeconfig.ca_certificate)
            }
            _ => None,
        };
        let endpoint = status.endpoint.as_ref();
        Ok(Object::from([
            ("labels", labels),
            ("version", spec.version.as_str().into()),
            ("hosting", spec.control_plane.hosting.as_str().into()),
            ("store", spec.control_plane.store.as_str().into()),
            ("pod_cidr", spec.network.pod_cidr.as_str().into()),
            ("service_cidr", spec.network.service_cidr.as_str().into()),
            ("dns_domain", spec.network.dns_domain.as_str().into()),
            ("cloud", spec.cloud.provider.as_str().into()),
            ("deletion_protection", spec.deletion_protection.into()),
            ("phase", status.phase.into()),
            ("ready", of_cluster(cluster).ready.into()),
            ("running_version", status.version.into()),
            (
                "endpoint",
                endpoint.map(|at| format!("https://{}:{}", at.host, at.port)).into(),
            ),
            ("ca_certificate", ca_certificate.into()),
        ]))
    }

    fn progress(cluster: &Cluster) -> Progress {
        of_cluster(cluster)
    }

    fn protected(state: &Object) -> Option<Diagnostic> {
        if state.get("deletion_protection").as_bool() != Some(true) {
            return None;
        }
        let text = "Apply it with deletion_protection = false first.";
        let diagnostic = Diagnostic::error("The cluster is protected from deletion", text);
        Some(diagnostic.at(Path::attribute("deletion_protection")))
    }
}

/// Labels that are not the user's.
fn is_systems(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    let within = |domain: &str| prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    ["minato.dev", "kubernetes.io", "k8s.io"].into_iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_is_written_and_the_rest_left_to_the_api() {
        let labels = Value::from(Object::from([("a", "b".into())]));
        let planned = Object::from([
            ("version", "1.36".into()),
            ("store", Value::Unknown),
            ("pod_cidr", "10.0.0.0/16".into()),
            ("labels", labels),
            ("deletion_protection", true.into()),
        ]);
        let written = serde_json::to_value(Clusters::wanted(&planned)).unwrap();
        let spec = json!({
            "version": "1.36",
            "controlPlane": {"hosting": "", "store": ""},
            "network": {"podCIDR": "10.0.0.0/16", "serviceCIDR": "", "dnsDomain": ""},
            "cloud": {"provider": ""},
            "deletionProtection": true,
        });
        assert_eq!(written["spec"], spec);
        assert_eq!(written["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn systems_labels_are_not_shown() {
        assert!(is_systems("fleet.minato.dev/x") && is_systems("kubernetes.io/x"));
        assert!(!is_systems("x") && !is_systems("notk8s.io/x") && !is_systems("example.com/k8s.io"));
    }
}
