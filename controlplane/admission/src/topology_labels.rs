//! `PodTopologyLabels`: pods are labelled with the zone and the region of the node that they go to.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::{Value, json};

use crate::objects::{cached, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const LABELS: &[&str] = &["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// See the module.
pub struct PodTopologyLabels {
    reader: Arc<dyn ClusterReader>,
}

impl PodTopologyLabels {
    /// Looks nodes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }
}

#[async_trait]
impl AdmissionPlugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.operation == Operation::Create
            && request.resource.group.is_empty()
            && request.resource.resource == "pods"
            && matches!(request.subresource, "" | "binding")
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let node = match request.subresource {
            "binding" if matches!(text(&request.object, "/target/kind"), "" | "Node") => "/target/name",
            "binding" => return Ok(()),
            _ => "/spec/nodeName",
        };
        let node = text(&request.object, node);
        let nodes = GroupResource::new("", "nodes");
        let Some(node) = cached(self.reader.as_ref(), &nodes, None, node) else {
            return Ok(());
        };
        let of_node = node.pointer("/metadata/labels");
        for label in LABELS {
            let Some(value) = of_node.and_then(|labels| labels.get(*label)) else {
                continue;
            };
            let fields = request.object.as_object_mut();
            let metadata = fields.map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
            let metadata = metadata.and_then(Value::as_object_mut);
            let labels = metadata.map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})));
            if let Some(labels) = labels.and_then(Value::as_object_mut) {
                labels.entry(*label).or_insert_with(|| value.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use minato_meta::MemoryReader;

    use super::*;
    use crate::tests::create_part;

    #[tokio::test]
    async fn pods_learn_where_they_are() {
        let reader = MemoryReader::new();
        let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "x"});
        reader.put(
            &GroupResource::new("", "nodes"),
            json!({"metadata": {"name": "n", "labels": labels}}),
        );
        let plugin = PodTopologyLabels::new(Arc::new(reader));
        let binding = json!({"target": {"kind": "Node", "name": "n"}});
        let made = create_part(&plugin, ("", "pods"), "binding", binding).await.unwrap();
        assert_eq!(
            made["metadata"]["labels"],
            json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"})
        );
        let own = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "own"}}, "spec": {"nodeName": "n"}});
        let made = create_part(&plugin, ("", "pods"), "", own).await.unwrap();
        assert_eq!(made["metadata"]["labels"]["topology.kubernetes.io/zone"], "own");
    }
}
