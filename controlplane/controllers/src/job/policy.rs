//! What the policies of a job make of failed pods and of succeeded indexes.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy>.

use minato_api::k8s::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, SuccessPolicy,
};
use minato_api::k8s::core::v1::{ContainerStatus, Pod, PodCondition};

use super::indexes::Indexes;
use crate::ops;

/// What a failed pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts, as failures do.
    Counts,
    /// It is made anew and does not count.
    Ignored,
    /// It counts, and its index must not be tried again.
    FailsIndex,
    /// The job has failed, for this reason.
    FailsJob(String),
}

impl Verdict {
    /// Whether it is one failure more in the status.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignored
    }
}

/// The verdict of the first rule that matches; without one, a failure counts.
pub(super) fn judge(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Verdict {
    let rules = policy.iter().flat_map(|policy| &policy.rules).enumerate();
    for (at, rule) in rules {
        let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => exited(codes, pod).map(|(container, code)| {
                let (namespace, name) = (ops::namespace(&pod.metadata), ops::name(&pod.metadata));
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
            }),
            (None, Some(patterns)) => condition(patterns, pod).map(|condition| {
                let (namespace, name) = (ops::namespace(&pod.metadata), ops::name(&pod.metadata));
                format!("Pod {namespace}/{name} has condition {}", condition.type_)
            }),
            (None, None) => None,
        };
        let Some(why) = why else { continue };
        match rule.action.as_str() {
            "Ignore" => return Verdict::Ignored,
            "Count" => return Verdict::Counts,
            "FailIndex" => return Verdict::FailsIndex,
            "FailJob" => return Verdict::FailsJob(format!("{why} matching FailJob rule at index {at}")),
            // Actions to come: their rules are skipped.
            _ => {}
        }
    }
    Verdict::Counts
}

/// The first container whose failure a rule names, and its exit code.
fn exited<'a>(codes: &PodFailurePolicyOnExitCodesRequirement, pod: &'a Pod) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let mut all = containers.chain(status.init_container_statuses.iter().flatten());
    all.find_map(|container: &ContainerStatus| {
        let meant = codes.container_name.as_ref().is_none_or(|name| *name == container.name);
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let named = codes.values.contains(&ended.exit_code);
        let matches = match codes.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            _ => false,
        };
        (meant && ended.exit_code != 0 && matches).then_some((container.name.as_str(), ended.exit_code))
    })
}

fn condition<'a>(patterns: &[PodFailurePolicyOnPodConditionsPattern], pod: &'a Pod) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| {
        patterns.iter().any(|pattern| {
            pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
        })
    })
}

/// The first rule by which these indexes are success enough.
pub(super) fn suffices(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<usize> {
    let rules = &policy?.rules;
    rules
        .iter()
        .position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
            (Some(indexes), count) => {
                let named = Indexes::parse(indexes, completions);
                named.common(succeeded) >= count.unwrap_or(named.len())
            }
            (None, Some(count)) => succeeded.len() >= count,
            (None, None) => false,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failed(status: &Value) -> Pod {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}, "status": status,
        });
        serde_json::from_value(pod).unwrap()
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}},
        })
    }

    fn policy() -> PodFailurePolicy {
        serde_json::from_value(json!({"rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42, 43]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "Later", "onExitCodes": {"operator": "NotIn", "values": [1]}},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [2]}},
        ]}))
        .unwrap()
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let policy = policy();
        let why = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 0";
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
        let ready = json!([{"type": "DisruptionTarget", "status": "False"}]);
        for (status, verdict) in [
            (
                json!({"containerStatuses": [ended("main", 42)], "conditions": disrupted}),
                Verdict::FailsJob(why.to_owned()),
            ),
            (
                json!({"containerStatuses": [ended("side", 42)], "conditions": disrupted}),
                Verdict::Ignored,
            ),
            (
                json!({"containerStatuses": [ended("main", 0)], "conditions": ready}),
                Verdict::Counts,
            ),
            (
                json!({"containerStatuses": [ended("main", 0)], "initContainerStatuses": [ended("i", 7)]}),
                Verdict::FailsIndex,
            ),
            (json!({"containerStatuses": [ended("side", 3)]}), Verdict::Counts),
            (json!({}), Verdict::Counts),
        ] {
            assert_eq!(judge(Some(&policy), &failed(&status)), verdict, "{status}");
        }
        assert_eq!(judge(None, &failed(&json!({}))), Verdict::Counts);
        let by_condition: PodFailurePolicy = serde_json::from_value(json!({"rules": [
            {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]},
        ]}))
        .unwrap();
        let broken = failed(&json!({"conditions": [{"type": "ConfigIssue", "status": "True"}]}));
        let why = "Pod n/p has condition ConfigIssue matching FailJob rule at index 0";
        assert_eq!(judge(Some(&by_condition), &broken), Verdict::FailsJob(why.to_owned()));
    }

    #[test]
    fn enough_indexes_are_success() {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": [
            {"succeededIndexes": "0-1"},
            {"succeededIndexes": "2-9", "succeededCount": 2},
            {"succeededCount": 4},
        ]}))
        .unwrap();
        for (succeeded, rule) in [
            ("0-1", Some(0)),
            ("0,2", None),
            ("0,2,3", Some(1)),
            ("2", None),
            ("", None),
        ] {
            let succeeded = Indexes::parse(succeeded, 10);
            assert_eq!(suffices(Some(&policy), 10, &succeeded), rule, "{}", succeeded.text());
        }
        let by_count: SuccessPolicy = serde_json::from_value(json!({"rules": [{"succeededCount": 2}]})).unwrap();
        assert_eq!(suffices(Some(&by_count), 10, &Indexes::parse("3,9", 10)), Some(0));
        assert_eq!(suffices(Some(&by_count), 10, &Indexes::parse("3", 10)), None);
        assert_eq!(suffices(None, 10, &Indexes::parse("0-9", 10)), None);
    }
}
