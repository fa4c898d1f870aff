//! Waiting for an object to be as it should, by watching it.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use minato_api::fleet::{Cluster, NodePool};
use minato_api::kube;
use minato_api::kube::Api;
use minato_api::kube::runtime::WatchStreamExt;
use minato_api::kube::runtime::watcher::{self, watch_object};
use minato_api::meta_v1::Condition;
use tokio_util::sync::CancellationToken;

use crate::errors::{chain, status};

/// Why the wait ended before it was over.
#[derive(Debug)]
pub(crate) enum WaitError {
    /// It took too long.
    Timeout {
        /// What went wrong with looking, if anything.
        trouble: Option<String>,
    },
    /// The user wants no more.
    Stopped,
    /// The API does not let us look.
    Refused(String),
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout { trouble: None } => f.write_str("the time for it is over"),
            Self::Timeout { trouble: Some(trouble) } => {
                write!(f, "the time for it is over; watching it failed: {trouble}")
            }
            Self::Stopped => f.write_str("interrupted"),
            Self::Refused(why) => write!(f, "watching it is refused: {why}"),
        }
    }
}

/// Watches one object until it is as wanted; `None` is an object that is not there. The last that was seen goes to `last`.
pub(crate) async fn until<K>(
    api: Api<K>,
    name: &str,
    timeout: Duration,
    stop: &CancellationToken,
    last: &mut Option<K>,
    wanted: impl Fn(Option<&K>) -> bool,
) -> Result<(), WaitError>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut changes = pin!(watch_object(api, name).default_backoff());
    let mut trouble = None;
    let watch = async {
        loop {
            match changes.next().await {
                Some(Ok(object)) => {
                    trouble = None;
                    let done = wanted(object.as_ref());
                    *last = object;
                    if done {
                        return Ok(());
                    }
                }
                Some(Err(error)) => {
                    if is_final(&error) {
                        return Err(WaitError::Refused(chain(&error)));
                    }
                    trouble = Some(chain(&error));
                }
                // It does not end by itself.
                None => return Err(WaitError::Refused("the watch has ended".to_owned())),
            }
        }
    };
    tokio::select! {
        result = tokio::time::timeout(timeout, watch) => match result {
            Ok(result) => result,
            Err(_) => Err(WaitError::Timeout { trouble }),
        },
        () = stop.cancelled() => Err(WaitError::Stopped),
    }
}

/// Whether trying again is of no use.
fn is_final(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => status(error).map(|status| status.code),
        watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    };
    matches!(code, Some(401 | 403))
}

/// What an object says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// It is as its specification asks.
    pub(crate) ready: bool,
    /// Why not, for people.
    pub(crate) reasons: Vec<String>,
}

impl Progress {
    /// By the condition `Ready`, if it is about this generation.
    fn of(conditions: &[Condition], generation: Option<i64>) -> Self {
        let current = |condition: &Condition| condition.observed_generation >= generation;
        let ready = conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True" && current(c));
        let mut reasons: Vec<String> = Vec::new();
        for condition in conditions.iter().filter(|c| c.status != "True" || !current(c)) {
            let stale = if current(condition) {
                ""
            } else {
                " (about an older version)"
            };
            reasons.push(format!(
                "condition {} is {}{stale}: {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            ));
        }
        if !ready && reasons.is_empty() {
            reasons.push("nothing has looked at it yet: is the management plane's manager running?".to_owned());
        }
        Self { ready, reasons }
    }
}

pub(crate) fn of_cluster(cluster: &Cluster) -> Progress {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    Progress::of(conditions.unwrap_or_default(), cluster.metadata.generation)
}

pub(crate) fn of_pool(pool: &NodePool) -> Progress {
    let status = pool.status.clone().unwrap_or_default();
    let mut progress = Progress::of(&status.conditions, pool.metadata.generation);
    if !progress.ready {
        for machine in &status.machines {
            let since = machine.since.as_ref().map(|since| format!(" since {}", since.0));
            let since = since.unwrap_or_default();
            progress
                .reasons
                .push(format!("machine {}: {:?}{since}", machine.name, machine.phase));
        }
    }
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str, generation: i64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Why".to_owned(),
            message: "so".to_owned(),
            observed_generation: Some(generation),
            last_transition_time: minato_api::meta_v1::Time(Default::default()),
        }
    }

    #[test]
    fn only_a_condition_about_this_generation_counts() {
        assert!(Progress::of(&[condition("Ready", "True", 2)], Some(2)).ready);
        let stale = Progress::of(&[condition("Ready", "True", 1)], Some(2));
        assert!(!stale.ready);
        assert_eq!(
            stale.reasons,
            ["condition Ready is True (about an older version): Why: so"]
        );
        let not = Progress::of(
            &[condition("Ready", "False", 2), condition("Other", "True", 2)],
            Some(2),
        );
        assert!(!not.ready);
        assert_eq!(not.reasons, ["condition Ready is False: Why: so"]);
        assert_eq!(Progress::of(&[], Some(1)).reasons.len(), 1);
    }
}
