//! From objects back to the nodes that may read them.
//!
//! ```text
//! node ← pod ← secret, config map, service account, claim, resource claim
//!              claim ← volume ← secret of the volume's driver
//! ```

use std::collections::HashMap;

use serde_json::Value;

use super::references::{self, Kind, Place};

/// Kind, namespace, name.
type Object = (Kind, String, String);

struct Pod {
    node: String,
    references: Vec<(Kind, String)>,
}

struct Volume {
    claim: Place,
    secrets: Vec<Place>,
}

/// Who reaches what; every change costs as much as the pod or volume that changed.
#[derive(Default)]
pub(super) struct Graph {
    pods: HashMap<Place, Pod>,
    /// How many pods of each node refer to an object.
    readers: HashMap<Object, HashMap<String, usize>>,
    volumes: HashMap<String, Volume>,
    /// Names of the volumes that need a secret.
    secrets: HashMap<Place, Vec<String>>,
}

fn place(object: &Value) -> Option<Place> {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str);
    Some((
        text("/metadata/namespace").unwrap_or_default().to_owned(),
        text("/metadata/name")?.to_owned(),
    ))
}

impl Graph {
    pub(super) fn put_pod(&mut self, pod: &Value) {
        self.remove_pod(pod);
        let node = pod
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let Some(place) = place(pod).filter(|_| !node.is_empty()) else {
            return;
        };
        let references = references::of_pod(pod);
        for (kind, name) in &references {
            let object = (*kind, place.0.clone(), name.clone());
            *self
                .readers
                .entry(object)
                .or_default()
                .entry(node.to_owned())
                .or_default() += 1;
        }
        self.pods.insert(
            place,
            Pod {
                node: node.to_owned(),
                references,
            },
        );
    }

    pub(super) fn remove_pod(&mut self, pod: &Value) {
        let Some(place) = place(pod) else {
            return;
        };
        let Some(pod) = self.pods.remove(&place) else {
            return;
        };
        for (kind, name) in pod.references {
            let object = (kind, place.0.clone(), name);
            let Some(nodes) = self.readers.get_mut(&object) else {
                continue;
            };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.readers.remove(&object);
            }
        }
    }

    pub(super) fn put_volume(&mut self, volume: &Value) {
        self.remove_volume(volume);
        let (Some((_, name)), Some((claim, secrets))) = (place(volume), references::of_volume(volume)) else {
            return;
        };
        for secret in &secrets {
            self.secrets.entry(secret.clone()).or_default().push(name.clone());
        }
        self.volumes.insert(name, Volume { claim, secrets });
    }

    pub(super) fn remove_volume(&mut self, volume: &Value) {
        let Some((_, name)) = place(volume) else {
            return;
        };
        let Some(volume) = self.volumes.remove(&name) else {
            return;
        };
        for secret in volume.secrets {
            if let Some(users) = self.secrets.get_mut(&secret) {
                users.retain(|user| *user != name);
                if users.is_empty() {
                    self.secrets.remove(&secret);
                }
            }
        }
    }

    pub(super) fn clear_pods(&mut self) {
        self.pods.clear();
        self.readers.clear();
    }

    pub(super) fn clear_volumes(&mut self) {
        self.volumes.clear();
        self.secrets.clear();
    }

    /// Whether a pod of that name is bound to the node.
    pub(super) fn runs(&self, node: &str, namespace: &str, name: &str) -> bool {
        let place = (namespace.to_owned(), name.to_owned());
        self.pods.get(&place).is_some_and(|pod| pod.node == node)
    }

    /// Whether one of the node's pods leads to the object.
    pub(super) fn relates(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        if kind == Kind::Volume {
            let volume = self.volumes.get(name);
            return volume.is_some_and(|v| self.refers(node, (Kind::Claim, v.claim.0.clone(), v.claim.1.clone())));
        }
        if self.refers(node, (kind, namespace.to_owned(), name.to_owned())) {
            return true;
        }
        let place = (namespace.to_owned(), name.to_owned());
        kind == Kind::Secret
            && self
                .secrets
                .get(&place)
                .is_some_and(|volumes| volumes.iter().any(|v| self.relates(node, Kind::Volume, "", v)))
    }

    fn refers(&self, node: &str, object: Object) -> bool {
        self.readers.get(&object).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Whether nothing is known.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.readers.is_empty() && self.volumes.is_empty() && self.secrets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(node: &str) -> Value {
        json!({
            "metadata": {"namespace": "a", "name": "p"},
            "spec": {
                "nodeName": node,
                "serviceAccountName": "sa",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{"env": [
                    {"name": "x", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                    {"name": "y", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "k"}}},
                    {"name": "z", "value": "plain"},
                ]}],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "fromconf"}}]}],
                "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
                "volumes": [
                    {"name": "v1", "secret": {"secretName": "vol"}},
                    {"name": "v2", "configMap": {"name": "volconf"}},
                    {"name": "v3", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "v4", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "v5", "projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "projconf"}}]}},
                    {"name": "v6", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                    {"name": "v7", "cephfs": {"secretRef": {"name": "ceph"}}},
                ],
                "resourceClaims": [{"name": "g", "resourceClaimName": "gpu"}],
            },
        })
    }

    #[test]
    fn all_references_of_a_pod_lead_to_its_node_and_go_with_it() {
        let expected = [
            (Kind::ServiceAccount, vec!["sa"]),
            (
                Kind::Secret,
                vec!["pull", "key", "from", "debug", "vol", "proj", "csi", "ceph"],
            ),
            (Kind::ConfigMap, vec!["conf", "fromconf", "volconf", "projconf"]),
            (Kind::Claim, vec!["claim", "p-v4"]),
            (Kind::ResourceClaim, vec!["gpu"]),
        ];
        let mut graph = Graph::default();
        graph.put_pod(&pod(""));
        assert!(graph.is_empty(), "a pod without a node relates to none");
        graph.put_pod(&pod("n1"));
        for (kind, names) in &expected {
            for name in names {
                assert!(graph.relates("n1", *kind, "a", name), "{kind:?} {name}");
                assert!(!graph.relates("n2", *kind, "a", name));
                assert!(!graph.relates("n1", *kind, "b", name));
            }
        }
        assert!(!graph.relates("n1", Kind::Secret, "a", "conf"));
        assert!(graph.runs("n1", "a", "p") && !graph.runs("n2", "a", "p"));
        let mut other = pod("n1");
        other["metadata"]["name"] = json!("q");
        graph.put_pod(&other);
        graph.remove_pod(&pod("n1"));
        assert!(
            graph.relates("n1", Kind::Secret, "a", "vol"),
            "another pod still needs it"
        );
        graph.remove_pod(&other);
        assert!(graph.is_empty());
        // A mirror pod opens nothing.
        let mut mirror = pod("n1");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        graph.put_pod(&mirror);
        assert!(!graph.relates("n1", Kind::Secret, "a", "vol"));
        assert!(graph.runs("n1", "a", "p"));
        // A pod whose references change loses the old ones.
        graph.put_pod(&pod("n1"));
        let mut changed = pod("n1");
        changed["spec"]["volumes"] = json!([]);
        graph.put_pod(&changed);
        assert!(!graph.relates("n1", Kind::Secret, "a", "vol"));
        assert!(graph.relates("n1", Kind::Secret, "a", "key"));
    }

    #[test]
    fn volumes_are_reached_through_their_claims() {
        let volume = json!({
            "metadata": {"name": "pv"},
            "spec": {
                "claimRef": {"namespace": "a", "name": "claim"},
                "csi": {"driver": "d", "nodeStageSecretRef": {"namespace": "store", "name": "stage"},
                        "controllerExpandSecretRef": {"namespace": "store", "name": "expand"}},
            },
        });
        let mut graph = Graph::default();
        graph.put_volume(&volume);
        assert!(!graph.relates("n1", Kind::Volume, "", "pv"));
        graph.put_pod(&pod("n1"));
        assert!(graph.relates("n1", Kind::Volume, "", "pv"));
        assert!(graph.relates("n1", Kind::Secret, "store", "stage"));
        assert!(graph.relates("n1", Kind::Secret, "store", "expand"));
        assert!(!graph.relates("n2", Kind::Secret, "store", "stage"));
        let mut released = volume.clone();
        released["spec"]["claimRef"] = Value::Null;
        graph.put_volume(&released);
        assert!(!graph.relates("n1", Kind::Secret, "store", "stage"));
        graph.put_volume(&volume);
        graph.remove_volume(&volume);
        assert!(!graph.relates("n1", Kind::Volume, "", "pv"));
        graph.remove_pod(&pod("n1"));
        assert!(graph.is_empty());
    }
}
