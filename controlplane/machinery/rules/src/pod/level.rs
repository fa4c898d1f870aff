//! Resources of the pod as a whole.
//!
//! Source: <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification>.

use minato_meta::Quantity;
use serde_json::Value;

use crate::check::quantity;
use crate::tree::{Tree as _, ensure, fill, sub_mut};

/// Resources that can be given to a pod as a whole.
pub(super) fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Fills requests of the pod that were not named: from its containers where these name any, else from its limits.
pub(super) fn requests(spec: &mut Value) {
    let limits = spec.at("resources.limits").clone();
    if limits.is_blank() {
        return;
    }
    let of_containers: Vec<(String, String)> = ["cpu", "memory"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), container_requests(spec, name)?.to_string())))
        .collect();
    let Some(requests) = sub_mut(spec, "resources").and_then(|r| ensure(r, "requests")) else {
        return;
    };
    for (name, amount) in of_containers {
        fill(requests, &name, amount);
    }
    for (name, limit) in limits.entries().filter(|(name, _)| is_supported(name)) {
        fill(requests, name, limit.clone());
    }
}

/// What the containers ask for together, when any asks: those that run side by side add up, the others take turns.
pub(super) fn container_requests(spec: &Value, name: &str) -> Option<Quantity> {
    let asked = |container: &Value| quantity(container.at("resources.requests").sub(name));
    let mut total: Option<Quantity> = None;
    let plus = |total: Option<Quantity>, more: Option<Quantity>| match (total, more) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    for container in spec.list("containers") {
        total = plus(total, asked(container));
    }
    let (mut side_cars, mut peak): (Option<Quantity>, Option<Quantity>) = (None, None);
    for container in spec.list("initContainers") {
        if container.text("restartPolicy") == "Always" {
            side_cars = plus(side_cars, asked(container));
            peak = peak.max(side_cars);
        } else {
            peak = peak.max(plus(side_cars, asked(container)));
        }
    }
    plus(total, side_cars).max(peak)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_add_up_and_first_ones_take_turns() {
        let asks =
            |cpu: &str, restart: &str| json!({"resources": {"requests": {"cpu": cpu}}, "restartPolicy": restart});
        let spec = json!({
            "containers": [asks("1", ""), asks("500m", "")],
            "initContainers": [asks("100m", "Always"), asks("3", "")],
        });
        assert_eq!(container_requests(&spec, "cpu").map(|q| q.milli()), Some(3100));
        assert!(container_requests(&spec, "memory").is_none());
        let mut spec = json!({"containers": [asks("1", "")], "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}});
        requests(&mut spec);
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    }
}
