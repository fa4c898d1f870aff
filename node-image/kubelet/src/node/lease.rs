//! The node's lease: its renewal is what tells the control plane that the node lives.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::coordination::v1::{Lease, LeaseSpec};
use minato_api::k8s::core::v1::Node;
use minato_api::kube::api::PostParams;
use minato_api::kube::{Api, Client};
use minato_api::meta_v1::{MicroTime, OwnerReference};

use crate::client::api_code;
use crate::settings::Settings;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the lease four times in its life, forever.
pub(super) async fn keep(client: Client, settings: Arc<Settings>, node: Node) {
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let period = settings.lease / 4;
    let mut known: Option<Lease> = None;
    let mut failures = 0_u32;
    loop {
        let renewed = renew(&api, &settings, &node, known.take());
        match tokio::time::timeout(period, renewed).await {
            Ok(Ok(lease)) => {
                known = Some(lease);
                failures = 0;
            }
            Ok(Err(error)) => {
                failures = failures.saturating_add(1);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "renewing the node's lease failed"
                );
            }
            Err(_) => {
                failures = failures.saturating_add(1);
                tracing::warn!("renewing the node's lease took too long");
            }
        }
        // A failed renewal is repeated soon: the lease must not run out for one lost answer.
        let pause = match failures {
            0 => period,
            _ => (Duration::from_millis(200) * 2_u32.saturating_pow(failures.min(8))).min(period),
        };
        tokio::time::sleep(pause).await;
    }
}

async fn renew(
    api: &Api<Lease>,
    settings: &Settings,
    node: &Node,
    known: Option<Lease>,
) -> Result<Lease, minato_api::kube::Error> {
    let name = &settings.node_name;
    let lease = match known {
        Some(lease) => Some(lease),
        None => api.get_opt(name).await?,
    };
    let now = MicroTime(Timestamp::now());
    match lease {
        Some(mut lease) => {
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(name.clone());
            spec.lease_duration_seconds = i32::try_from(settings.lease.as_secs()).ok();
            spec.renew_time = Some(now);
            api.replace(name, &PostParams::default(), &lease).await
        }
        None => {
            let mut lease = Lease {
                spec: Some(LeaseSpec {
                    holder_identity: Some(name.clone()),
                    lease_duration_seconds: i32::try_from(settings.lease.as_secs()).ok(),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
                ..Lease::default()
            };
            lease.metadata.name = Some(name.clone());
            lease.metadata.owner_references = node.metadata.uid.clone().map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: name.clone(),
                    uid,
                    ..OwnerReference::default()
                }]
            });
            match api.create(&PostParams::default(), &lease).await {
                Err(error) if api_code(&error) == Some(409) => api.get(name).await,
                other => other,
            }
        }
    }
}
