//! Taints and tolerations. Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use minato_api::k8s::core::v1::{Taint, Toleration};

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub(crate) const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
pub(crate) const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
pub(crate) const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
pub(crate) const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
/// Set by a human who knows that the machine is off.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";

/// Whether a pod with this toleration may be where the taint is.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect = set(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = set(&toleration.key).is_none_or(|key| key == taint.key);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some(_) => false,
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_matches_by_key_value_and_effect() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).unwrap();
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": "k", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "w", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Bogus", "value": "v"}), false),
        ];
        for (toleration, expected) in cases {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        }
    }
}
