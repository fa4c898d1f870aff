//! What is written about a Cluster.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::fleet::{Cluster, ClusterStatus, Endpoint};
use minato_api::meta_v1::{Condition, Time};
use serde_json::{Value, json};

/// How long after a failure to look again when nothing else happens; the work queue's back-off comes first.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What one look at a cluster found.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    pub(super) ready: bool,
    /// Why it is not ready, for people.
    pub(super) message: String,
    pub(super) version: String,
    pub(super) again: Duration,
    endpoint: Option<Endpoint>,
    kubeconfig_secret: String,
}

impl Observed {
    pub(super) fn at(local: SocketAddr, nodes: SocketAddr, kubeconfig_secret: String) -> Self {
        Self {
            endpoint: Some(Endpoint {
                host: local.ip().to_string(),
                port: local.port(),
                node_host: nodes.ip().to_string(),
                node_port: nodes.port(),
            }),
            kubeconfig_secret,
            ..Self::default()
        }
    }

    /// Keeps what was known and adds why it went wrong.
    pub(super) fn failed(cluster: &Cluster, why: &str) -> Self {
        let known = cluster.status.clone().unwrap_or_default();
        Self {
            message: why.to_owned(),
            version: known.version,
            again: AFTER_FAILURE,
            endpoint: known.endpoint,
            kubeconfig_secret: known.kubeconfig_secret,
            ready: false,
        }
    }

    /// The status to write, or `None` when it is written already.
    pub(super) fn status(&self, cluster: &Cluster) -> Option<Value> {
        let old = cluster.status.clone().unwrap_or_default();
        let new = self.next(&old, cluster.metadata.generation.unwrap_or(0));
        (cluster.status.is_none() || new != old).then(|| json!({"status": new}))
    }

    fn next(&self, old: &ClusterStatus, generation: i64) -> ClusterStatus {
        let was_ready = old.phase == "Ready" || old.phase == "Degraded";
        let phase = match (self.ready, was_ready) {
            (true, _) => "Ready",
            (false, true) => "Degraded",
            (false, false) => "Provisioning",
        };
        let conditions = ["ControlPlaneAvailable", "Ready"].map(|of| self.condition(of, old, generation));
        ClusterStatus {
            phase: phase.to_owned(),
            version: if self.version.is_empty() {
                old.version.clone()
            } else {
                self.version.clone()
            },
            endpoint: self.endpoint.clone(),
            kubeconfig_secret: self.kubeconfig_secret.clone(),
            conditions: conditions.to_vec(),
            observed_generation: generation,
        }
    }

    fn condition(&self, type_: &str, old: &ClusterStatus, generation: i64) -> Condition {
        let (status, reason) = if self.ready {
            ("True", "Ready")
        } else {
            ("False", "NotReady")
        };
        condition(&old.conditions, type_, status, reason, &self.message, generation)
    }
}

/// A condition whose transition time is kept while its status stays.
pub(crate) fn condition(
    old: &[Condition],
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: i64,
) -> Condition {
    let before = old
        .iter()
        .find(|condition| condition.type_ == type_ && condition.status == status);
    // Seconds are what the API keeps; more would look like a change each time.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: before.map_or(Time(now), |condition| condition.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

pub(super) fn is_ready(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.phase == "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_once_and_degrades() {
        let (local, nodes) = (
            SocketAddr::from(([127, 0, 0, 1], 1)),
            SocketAddr::from(([10, 0, 0, 1], 1)),
        );
        let mut observed = Observed::at(local, nodes, "c-kubeconfig".to_owned());
        let mut cluster = Cluster::default();
        let written = |cluster: &mut Cluster, observed: &Observed| {
            let status = observed.status(cluster)?;
            cluster.status = serde_json::from_value(status["status"].clone()).ok();
            Some(status["status"]["phase"].as_str()?.to_owned())
        };
        assert_eq!(written(&mut cluster, &observed).as_deref(), Some("Provisioning"));
        assert_eq!(written(&mut cluster, &observed), None);
        observed.ready = true;
        assert_eq!(written(&mut cluster, &observed).as_deref(), Some("Ready"));
        let failed = Observed::failed(&cluster, "gone");
        assert_eq!(written(&mut cluster, &failed).as_deref(), Some("Degraded"));
        assert_eq!(
            cluster
                .status
                .as_ref()
                .and_then(|s| s.endpoint.clone())
                .map(|e| e.node_host),
            Some("10.0.0.1".to_owned())
        );
    }
}
