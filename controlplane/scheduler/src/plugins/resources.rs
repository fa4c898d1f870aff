//! `NodeResourcesFit` (with the strategies `LeastAllocated` and `MostAllocated`) and `NodeResourcesBalancedAllocation`.

use crate::cache::NodeInfo;
use crate::config::Arguments;
use crate::framework::{CycleState, Event, MAX_SCORE, Plugin, Rejection};
use crate::pod::PodInfo;

pub(super) struct Fit {
    /// Whether fuller nodes are better.
    most: bool,
    /// Weights of CPU and memory.
    weights: (i64, i64),
}

impl Fit {
    pub(super) fn new(arguments: &Arguments) -> Self {
        Self {
            most: arguments.most_allocated,
            weights: arguments.fit_weights,
        }
    }

    /// The weighted mean over the resources that the node has.
    fn mean(&self, shares: [(i64, i64); 2]) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ((used, whole), weight) in shares.into_iter().zip([self.weights.0, self.weights.1]) {
            if whole <= 0 {
                continue;
            }
            weights += weight;
            sum += weight
                * match (self.most, used > whole) {
                    (true, _) => used.min(whole) * MAX_SCORE / whole,
                    (false, true) => 0,
                    (false, false) => (whole - used) * MAX_SCORE / whole,
                };
        }
        if weights == 0 { 0 } else { sum / weights }
    }
}

impl Plugin for Fit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let (asked, used, whole) = (&pod.requests, &node.requested, &node.allocatable);
        let mut reasons = Vec::new();
        // What can never fit is not for preemption to mend.
        let mut resolvable = true;
        let count = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        if count + 1 > whole.pods {
            reasons.push("Too many pods".to_owned());
        }
        let mut check = |name: &str, asked: i64, used: i64, whole: i64| {
            if asked > 0 && asked > whole - used {
                reasons.push(format!("Insufficient {name}"));
                resolvable &= asked <= whole;
            }
        };
        check("cpu", asked.milli_cpu, used.milli_cpu, whole.milli_cpu);
        check("memory", asked.memory, used.memory, whole.memory);
        check(
            "ephemeral-storage",
            asked.ephemeral_storage,
            used.ephemeral_storage,
            whole.ephemeral_storage,
        );
        for (name, amount) in &asked.others {
            let of = |list: &crate::resources::Resources| list.others.get(name).copied().unwrap_or(0);
            check(name, *amount, of(used), of(whole));
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(Rejection { reasons, resolvable })
        }
    }

    /// The mean share of CPU and memory that would be left, or taken.
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let (used, asked, whole) = (&node.scored, &pod.scored, &node.allocatable);
        Some(self.mean([
            (used.milli_cpu + asked.milli_cpu, whole.milli_cpu),
            (used.memory + asked.memory, whole.memory),
        ]))
    }

    fn wakes(&self, event: Event, _pod: &PodInfo) -> bool {
        matches!(event, Event::NodeAdded | Event::PodGone)
    }
}

pub(super) struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    /// How even the shares of CPU and memory would be: their standard deviation taken from one.
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let share = |used: i64, asked: i64, whole: i64| {
            #[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
            let ratio = |part: i64, whole: i64| {
                if whole <= 0 {
                    1.0
                } else {
                    (part as f64 / whole as f64).min(1.0)
                }
            };
            ratio(used + asked, whole)
        };
        let cpu = share(
            node.requested.milli_cpu,
            pod.requests.milli_cpu,
            node.allocatable.milli_cpu,
        );
        let memory = share(node.requested.memory, pod.requests.memory, node.allocatable.memory);
        let deviation = (cpu - memory).abs() / 2.0;
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100")]
        let score = ((1.0 - deviation) * 100.0) as i64;
        Some(score)
    }

    /// Rejects nothing.
    fn wakes(&self, _event: Event, _pod: &PodInfo) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{cache, filtered, pod, scores};
    use super::*;

    fn fit() -> Fit {
        Fit::new(&Arguments::default())
    }

    fn node(name: &str, cpu: &str, memory: &str, pods: &str) -> Value {
        json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}})
    }

    fn asking(name: &str, cpu: &str, memory: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}},
        ]}})
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let nodes = [
            node("a", "1", "1Gi", "10"),
            node("b", "4", "1Gi", "1"),
            node("c", "500m", "512Mi", "10"),
        ];
        let cache = cache(&nodes, &[("a", asking("x", "600m", "0")), ("b", asking("y", "1", "0"))]);
        let all = filtered(&fit(), &pod(asking("p", "600m", "600Mi")), &cache);
        let reasons: Vec<Vec<String>> = all
            .iter()
            .map(|(_, r)| r.clone().err().map(|r| r.reasons).unwrap_or_default())
            .collect();
        assert_eq!(reasons[0], ["Insufficient cpu"]);
        assert_eq!(reasons[1], ["Too many pods"]);
        assert_eq!(reasons[2], ["Insufficient cpu", "Insufficient memory"]);
        // Node c is too small for it even when empty.
        assert_eq!(all[2].1.clone().err().map(|r| r.resolvable), Some(false));
        assert_eq!(all[0].1.clone().err().map(|r| r.resolvable), Some(true));
    }

    #[test]
    fn emptier_and_more_even_nodes_score_higher() {
        let nodes = [node("a", "2", "2Gi", "10"), node("b", "2", "2Gi", "10")];
        let cache = cache(&nodes, &[("a", asking("x", "1", "0"))]);
        let incoming = pod(asking("p", "500m", "512Mi"));
        // a: CPU 1500 of 2000 taken, memory 512 of 2048 MiB: 25 and 75; b: 75 and 75.
        assert_eq!(scores(&fit(), &incoming, &cache), [50, 75]);
        // a: 0.75 and 0.25, half their difference 0.25; b: 0.25 and 0.25.
        assert_eq!(scores(&BalancedAllocation, &incoming, &cache), [75, 100]);
    }

    #[test]
    fn fuller_nodes_score_higher_if_that_is_wanted() {
        let nodes = [node("a", "2", "2Gi", "10"), node("b", "2", "2Gi", "10")];
        let cache = cache(&nodes, &[("a", asking("x", "1", "0"))]);
        let most = |fit_weights| {
            let arguments = Arguments {
                most_allocated: true,
                fit_weights,
                ..Arguments::default()
            };
            scores(&Fit::new(&arguments), &pod(asking("p", "500m", "512Mi")), &cache)
        };
        // a: 75 of the CPU and 25 of the memory would be taken; b: 25 and 25.
        assert_eq!(most((1, 1)), [50, 25]);
        assert_eq!(most((3, 1)), [62, 25]);
    }
}
