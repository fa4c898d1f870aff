//! Ends the kernel's memory of UDP flows to backends that are gone: there is no handshake that would fail and start anew.
//! Source: <https://kubernetes.io/docs/reference/networking/virtual-ips/>.

use std::collections::BTreeSet;
use std::process::Stdio;

use tokio::process::Command;

use crate::model::{Protocol, ServiceModel};

/// A flow to forget: destination, port, and the backend that it was sent to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stale {
    destination: String,
    backend: Option<String>,
}

/// What a change leaves behind.
pub(crate) fn stale(old: &ServiceModel, new: &ServiceModel) -> BTreeSet<Stale> {
    let mut all = BTreeSet::new();
    for port in old.ports.iter().filter(|port| port.protocol == Protocol::Udp) {
        let now = new.ports.iter().find(|other| other.id == port.id);
        let still: BTreeSet<_> = now
            .into_iter()
            .flat_map(|port| port.internal.iter().chain(&port.external))
            .collect();
        let destinations = || {
            port.cluster_ips
                .iter()
                .chain(&port.external_ips)
                .chain(&port.load_balancer_ips)
        };
        for backend in port
            .internal
            .iter()
            .chain(&port.external)
            .filter(|backend| !still.contains(backend))
        {
            all.extend(destinations().map(|address| Stale {
                destination: address.to_string(),
                backend: Some(backend.address.to_string()),
            }));
        }
        // Flows from before there was any backend were not sent anywhere, and would go on so.
        if port.internal.is_empty() && now.is_some_and(|port| !port.internal.is_empty()) {
            all.extend(destinations().map(|address| Stale {
                destination: address.to_string(),
                backend: None,
            }));
        }
    }
    all
}

/// Forgets them. That there are none, or no `conntrack` program, is no failure: flows end by themselves after a while.
pub(crate) async fn forget(stale: &BTreeSet<Stale>) {
    for flow in stale {
        let mut command = Command::new("conntrack");
        command.args(["-D", "-p", "udp", "--orig-dst", &flow.destination]);
        if let Some(backend) = &flow.backend {
            command.args(["--dst-nat", backend]);
        }
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        if let Err(error) = status {
            tracing::warn!(%error, "stale UDP flows stay until they time out: conntrack cannot be run");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::of_service;
    use crate::model::tests::service;

    #[test]
    fn flows_to_backends_that_are_gone_are_forgotten() {
        let service = service(json!({"clusterIPs": ["10.96.0.1"], "ports": [{"port": 53, "protocol": "UDP"}]}));
        let slice = |addresses: &[&str]| {
            let endpoints: Vec<_> = addresses
                .iter()
                .map(|address| json!({"addresses": [address]}))
                .collect();
            let value = json!({"addressType": "IPv4", "ports": [{"name": "", "port": 53, "protocol": "UDP"}], "endpoints": endpoints});
            std::sync::Arc::new(serde_json::from_value(value).unwrap_or_default())
        };
        let model = |addresses: &[&str]| of_service(&service, &[slice(addresses)], "n");
        let gone = stale(&model(&["10.0.0.1", "10.0.0.2"]), &model(&["10.0.0.2"]));
        let expected = Stale {
            destination: "10.96.0.1".to_owned(),
            backend: Some("10.0.0.1".to_owned()),
        };
        assert_eq!(gone.into_iter().collect::<Vec<_>>(), [expected]);
        assert_eq!(stale(&model(&[]), &model(&["10.0.0.1"])).len(), 1);
        assert!(stale(&model(&["10.0.0.1"]), &model(&["10.0.0.1", "10.0.0.2"])).is_empty());
    }
}
