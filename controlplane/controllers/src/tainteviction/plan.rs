//! How long a pod may stay.

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{Taint, Toleration};

use crate::taints::tolerates;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// Goes at this time, which may be past.
    Goes(Timestamp),
}

/// What becomes of a pod with these tolerations under these taints, each with the time since which it is there.
pub(super) fn fate(taints: &[(Taint, Timestamp)], tolerations: &[Toleration]) -> Fate {
    let mut ends: Option<Timestamp> = None;
    for (taint, since) in taints {
        let mut fitting = tolerations.iter().filter(|toleration| tolerates(toleration, taint));
        let end = match fitting.next() {
            None => Some(*since),
            Some(toleration) => toleration.toleration_seconds.map(|seconds| {
                let seconds = SignedDuration::from_secs(seconds.max(0));
                since.checked_add(seconds).unwrap_or(Timestamp::MAX)
            }),
        };
        ends = match (ends, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    ends.map_or(Fate::Stays, Fate::Goes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taint(key: &str, since: i64) -> (Taint, Timestamp) {
        let taint = serde_json::from_value(json!({"key": key, "effect": "NoExecute"})).unwrap();
        (taint, Timestamp::from_second(since).unwrap())
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
        serde_json::from_value(json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})).unwrap()
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_every_taint() {
        let at = |second: i64| Fate::Goes(Timestamp::from_second(second).unwrap());
        assert_eq!(fate(&[], &[]), Fate::Stays);
        assert_eq!(fate(&[taint("a", 100)], &[]), at(100));
        assert_eq!(fate(&[taint("a", 100)], &[toleration("a", None)]), Fate::Stays);
        assert_eq!(fate(&[taint("a", 100)], &[toleration("a", Some(300))]), at(400));
        assert_eq!(fate(&[taint("a", 100)], &[toleration("a", Some(-1))]), at(100));
        // The first end counts, and one taint that is not tolerated ends it at once.
        let tolerations = [toleration("a", Some(300)), toleration("b", Some(10))];
        assert_eq!(fate(&[taint("a", 100), taint("b", 200)], &tolerations), at(210));
        assert_eq!(fate(&[taint("a", 100), taint("c", 150)], &tolerations), at(150));
        assert_eq!(
            fate(&[taint("a", 100)], &[toleration("a", Some(i64::MAX))]),
            Fate::Goes(Timestamp::MAX)
        );
    }
}
