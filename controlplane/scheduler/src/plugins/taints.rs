//! `TaintToleration`. Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use minato_api::k8s::core::v1::{Taint, Toleration};

use crate::cache::NodeInfo;
use crate::framework::{CycleState, Event, Plugin, Rejection, normalize};
use crate::pod::PodInfo;

pub(super) struct TaintToleration;

fn matches(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let of = |field: &Option<String>| field.as_deref().unwrap_or_default().to_owned();
    let (wanted_key, wanted_effect) = (of(&toleration.key), of(&toleration.effect));
    if !wanted_effect.is_empty() && wanted_effect != effect {
        return false;
    }
    if !wanted_key.is_empty() && wanted_key != key {
        return false;
    }
    match of(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => !wanted_key.is_empty() && of(&toleration.value) == value,
        operator => {
            let (Ok(taint), Ok(limit)) = (value.parse::<i64>(), of(&toleration.value).parse::<i64>()) else {
                return false;
            };
            operator == "Lt" && taint < limit || operator == "Gt" && taint > limit
        }
    }
}

/// Whether the pod tolerates a taint.
pub(super) fn tolerates(pod: &PodInfo, key: &str, value: &str, effect: &str) -> bool {
    pod.tolerations
        .iter()
        .any(|toleration| matches(toleration, key, value, effect))
}

/// The first taint of one of the effects that the pod does not tolerate.
pub(super) fn untolerated<'n>(pod: &PodInfo, node: &'n NodeInfo, effects: &[&str]) -> Option<&'n Taint> {
    let mut taints = node
        .taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()));
    taints.find(|taint| {
        !tolerates(
            pod,
            &taint.key,
            taint.value.as_deref().unwrap_or_default(),
            &taint.effect,
        )
    })
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match untolerated(pod, node, &["NoSchedule", "NoExecute"]) {
            Some(taint) => {
                let value = taint.value.as_deref().unwrap_or_default();
                let reason = format!("node(s) had untolerated taint {{{}: {value}}}", taint.key);
                Err(Rejection::unresolvable(reason))
            }
            None => Ok(()),
        }
    }

    /// The number of taints that would rather keep the pod away.
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        let disliked = soft.filter(|taint| {
            !tolerates(
                pod,
                &taint.key,
                taint.value.as_deref().unwrap_or_default(),
                &taint.effect,
            )
        });
        i64::try_from(disliked.count()).ok()
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, true);
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded | Event::NodeChanged)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{cache, filtered, fitting, pod, scores};
    use super::*;

    #[test]
    fn taints_keep_away_and_tolerations_let_in() {
        let taint = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
        let nodes = [
            json!({"metadata": {"name": "a"}, "spec": {"taints": taint("NoSchedule")}}),
            json!({"metadata": {"name": "b"}, "spec": {"taints": taint("PreferNoSchedule")}}),
            json!({"metadata": {"name": "c"}, "spec": {"taints": taint("NoExecute")}}),
        ];
        let cache = cache(&nodes, &[]);
        let with = |tolerations| pod(json!({"spec": {"containers": [], "tolerations": tolerations}}));
        assert_eq!(fitting(&TaintToleration, &with(json!([])), &cache), ["b"]);
        let all = filtered(&TaintToleration, &with(json!([])), &cache);
        assert_eq!(
            all[0].1,
            Err(Rejection::unresolvable("node(s) had untolerated taint {k: v}"))
        );
        assert_eq!(
            fitting(&TaintToleration, &with(json!([{"key": "k", "value": "v"}])), &cache),
            ["a", "b", "c"]
        );
        assert_eq!(
            fitting(&TaintToleration, &with(json!([{"operator": "Exists"}])), &cache),
            ["a", "b", "c"]
        );
        let only = json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]);
        assert_eq!(fitting(&TaintToleration, &with(only), &cache), ["b", "c"]);
        assert_eq!(
            fitting(&TaintToleration, &with(json!([{"key": "k", "value": "w"}])), &cache),
            ["b"]
        );
        assert_eq!(scores(&TaintToleration, &with(json!([])), &cache), [100, 0, 100]);
    }
}
