//! The quality of service class of a pod.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>.

use minato_meta::Quantity;
use serde_json::Value;

use crate::check::quantity;
use crate::tree::Tree as _;

/// Resources that count.
const COUNTED: [&str; 2] = ["cpu", "memory"];

fn amount(list: &Value, name: &str) -> Option<Quantity> {
    quantity(list.sub(name)).filter(|q| q.signum() > 0)
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from what the pod or its containers ask for.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let of_pod = spec.sub("resources");
    let whole = [of_pod];
    let each: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.list(list))
        .map(|container| container.sub("resources"))
        .collect();
    let resources: &[&Value] = if of_pod.is_blank() { &each } else { &whole };
    let asks_for_any = |r: &&Value| {
        COUNTED
            .iter()
            .any(|name| amount(r.sub("requests"), name).is_some() || amount(r.sub("limits"), name).is_some())
    };
    if !resources.iter().any(asks_for_any) {
        return "BestEffort";
    }
    let is_fixed = |r: &&Value| {
        COUNTED.iter().all(|name| {
            let (request, limit) = (amount(r.sub("requests"), name), amount(r.sub("limits"), name));
            limit.is_some() && request.is_none_or(|request| Some(request) == limit)
        })
    };
    if resources.iter().all(is_fixed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes() {
        let of = |resources: &[Value]| {
            let containers: Vec<Value> = resources.iter().map(|r| json!({"resources": r})).collect();
            qos_class(&json!({"containers": containers}))
        };
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
        let less = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}});
        assert_eq!(of(std::slice::from_ref(&full)), "Guaranteed");
        assert_eq!(of(&[full.clone(), json!({})]), "Burstable");
        assert_eq!(of(&[less]), "Burstable");
        assert_eq!(of(&[json!({})]), "BestEffort");
        assert_eq!(of(&[json!({"requests": {"cpu": "0"}})]), "BestEffort");
        assert_eq!(qos_class(&json!({"resources": full, "containers": [{}]})), "Guaranteed");
    }
}
