//! Reading objects as trees, and reaching cached ones.

use minato_meta::{ClusterReader, GroupResource};
use serde_json::{Map, Value};

use crate::{AdmissionRequest, Operation};

/// The text at a JSON pointer; empty when there is none.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty when there is none.
pub(crate) fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The object's fields below `spec`, made if they are not there.
pub(crate) fn spec(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    fields
        .entry("spec")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// A cached object as a tree.
pub(crate) fn cached(
    reader: &dyn ClusterReader,
    resource: &GroupResource,
    namespace: Option<&str>,
    name: &str,
) -> Option<Value> {
    parse(&reader.get(resource, namespace, name)?.json)
}

/// All cached objects of a resource as trees.
pub(crate) fn all_cached(reader: &dyn ClusterReader, resource: &GroupResource, namespace: Option<&str>) -> Vec<Value> {
    reader
        .list(resource, namespace)
        .iter()
        .filter_map(|object| parse(&object.json))
        .collect()
}

/// What is in the cache was written by this server, so it is JSON.
pub(crate) fn parse(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}

/// Whether the request is about pods themselves, not about a part of one.
pub(crate) fn is_pods(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "pods" && request.subresource.is_empty()
}

/// Whether a pod stands for a static one, which its node's kubelet runs whatever the API says.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some()
}

/// Whether the request makes a pod.
pub(crate) fn creates_pod(request: &AdmissionRequest<'_>) -> bool {
    is_pods(request) && request.operation == Operation::Create
}
