//! How long a job waits before it makes pods in the place of failed ones.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use minato_api::k8s::core::v1::{ContainerStatus, Pod};

use crate::pods;

/// The wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(360);

/// Failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// The failures in a row after further pods have ended. A success makes up for all before it.
    pub(super) fn after<'a>(self, ended: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut ended: Vec<_> = ended
            .into_iter()
            .map(|pod| (ended_at(pod), pods::phase(pod) != "Succeeded"))
            .collect();
        ended.sort_unstable();
        ended.into_iter().fold(self, |so_far, (at, failed)| match failed {
            true => Self {
                failures: so_far.failures.saturating_add(1),
                last: so_far.last.max(at),
            },
            false => Self::default(),
        })
    }

    /// How long to wait from now on; zero if not at all.
    pub(super) fn left(self, now: Timestamp) -> Duration {
        left(self.failures, self.last, now)
    }
}

/// How long to wait after so many failures, the last of which was at this time.
pub(super) fn left(failures: u32, last: Option<Timestamp>, now: Timestamp) -> Duration {
    let (Some(last), Some(doublings)) = (last, failures.checked_sub(1)) else {
        return Duration::ZERO;
    };
    let wait = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    Duration::try_from(wait.saturating_sub(now.duration_since(last))).unwrap_or(Duration::ZERO)
}

/// When a pod ended, as well as its status tells.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let finished = |container: &ContainerStatus| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(|time| time.0)
    };
    let last = containers.into_iter().flatten().filter_map(finished).max();
    let unready = || {
        let ready = pods::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let deleted = || pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last.or_else(unready).or_else(deleted).or_else(created)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn ended(phase: &str, seconds: i64) -> Pod {
        let state = json!({"terminated": {"exitCode": 0, "finishedAt": at(seconds)}});
        serde_json::from_value(json!({
            "metadata": {"creationTimestamp": at(1)}, "spec": {"containers": []},
            "status": {"phase": phase, "containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn waits_double_up_to_six_minutes() {
        for (failures, seconds) in [(0, 0), (1, 10), (2, 20), (5, 160), (6, 320), (7, 360), (500, 360)] {
            assert_eq!(left(failures, Some(at(100)), at(100)), Duration::from_secs(seconds));
        }
        assert_eq!(left(2, Some(at(100)), at(105)), Duration::from_secs(15));
        assert_eq!(left(2, Some(at(100)), at(121)), Duration::ZERO);
    }

    #[test]
    fn a_success_makes_up_for_the_failures_before_it() {
        let pods = [
            ended("Failed", 30),
            ended("Succeeded", 20),
            ended("Failed", 10),
            ended("Failed", 40),
        ];
        let backoff = Backoff::default().after(&pods);
        assert_eq!(backoff.left(at(40)), Duration::from_secs(20));
        assert_eq!(backoff.after(&[ended("Succeeded", 50)]), Backoff::default());
        // A failure that is heard of late does not set the clock back.
        assert_eq!(
            backoff.after(&[ended("Failed", 5)]).left(at(40)),
            Duration::from_secs(40)
        );
    }

    #[test]
    fn without_containers_other_times_tell() {
        let mut pod = ended("Failed", 30);
        assert_eq!(ended_at(&pod), Some(at(30)));
        pod.status.as_mut().unwrap().container_statuses = None;
        assert_eq!(ended_at(&pod), Some(at(1)));
        pod.metadata.deletion_timestamp = Some(minato_api::meta_v1::Time(at(9)));
        assert_eq!(ended_at(&pod), Some(at(9)));
    }
}
