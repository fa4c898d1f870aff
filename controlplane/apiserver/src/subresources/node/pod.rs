//! Which container of which pod on which node is meant.

use std::sync::Arc;

use minato_meta::ApiError;
use serde_json::Value;

use crate::endpoints::{Target, transaction};
use crate::server::ApiServer;

/// The pod of a request.
///
/// # Errors
/// 404 when it is absent.
pub(super) async fn read(server: &Arc<ApiServer>, target: &Target) -> Result<Value, ApiError> {
    let stored = transaction::read(server, target).await?;
    stored.map(|s| s.object).ok_or_else(|| target.not_found())
}

/// The node that a pod is bound to; empty for none.
pub(super) fn node_of(pod: &Value) -> &str {
    pod.pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The node that a pod is bound to.
///
/// # Errors
/// 400 when it is not bound.
pub(super) fn bound_node<'p>(pod: &'p Value, name: &str) -> Result<&'p str, ApiError> {
    match node_of(pod) {
        "" => Err(ApiError::bad_request(format!(
            "pod {name} does not have a host assigned"
        ))),
        node => Ok(node),
    }
}

fn names<'p>(pod: &'p Value, list: &str) -> Vec<&'p str> {
    let containers = pod.get("spec").and_then(|s| s.get(list)).and_then(Value::as_array);
    let name = |c: &'p Value| c.get("name").and_then(Value::as_str);
    containers.into_iter().flatten().filter_map(name).collect()
}

/// The container that is asked for, or the only one.
///
/// # Errors
/// 400 when there are several and none is named, or when the named one is not there; in upstream's words.
pub(super) fn container<'p>(pod: &'p Value, pod_name: &str, asked: &'p str) -> Result<&'p str, ApiError> {
    let (containers, init, ephemeral) = (
        names(pod, "containers"),
        names(pod, "initContainers"),
        names(pod, "ephemeralContainers"),
    );
    if !asked.is_empty() {
        return if [&containers, &init, &ephemeral]
            .iter()
            .any(|list| list.contains(&asked))
        {
            Ok(asked)
        } else {
            Err(ApiError::bad_request(format!(
                "container {asked} is not valid for pod {pod_name}"
            )))
        };
    }
    let mut message = format!("a container name must be specified for pod {pod_name}");
    match containers.as_slice() {
        [only] => return Ok(only),
        [] => {}
        many => {
            message.push_str(&format!(", choose one of: [{}]", many.join(" ")));
            if !init.is_empty() {
                message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            if !ephemeral.is_empty() {
                message.push_str(&format!(
                    " or one of the ephemeral containers: [{}]",
                    ephemeral.join(" ")
                ));
            }
        }
    }
    Err(ApiError::bad_request(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_container_is_found_or_asked_for() {
        let one = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(container(&one, "p", "").unwrap(), "a");
        assert_eq!(container(&one, "p", "i").unwrap(), "i");
        assert_eq!(
            container(&one, "p", "x").unwrap_err().message(),
            "container x is not valid for pod p"
        );
        let two = json!({"spec": {
            "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}],
            "ephemeralContainers": [{"name": "e"}],
        }});
        assert_eq!(
            container(&two, "p", "").unwrap_err().message(),
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i] \
             or one of the ephemeral containers: [e]"
        );
        assert_eq!(container(&two, "p", "e").unwrap(), "e");
    }
}
