//! The status of a namespace that is being deleted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use minato_api::k8s::core::v1::{NamespaceCondition, NamespaceStatus};
use minato_api::meta_v1::Time;

/// Objects of one kind that are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remaining {
    pub(super) resource: String,
    pub(super) group: String,
    pub(super) count: usize,
    pub(super) finalizers: Vec<String>,
}

/// What one pass over the content found.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Group versions that discovery failed for, and why.
    pub(super) undiscovered: Vec<(String, String)>,
    /// What could not be deleted.
    pub(super) failures: Vec<String>,
    pub(super) remaining: Vec<Remaining>,
}

impl Report {
    /// Whether the namespace is known to be empty.
    pub(super) fn is_empty(&self) -> bool {
        self.undiscovered.is_empty() && self.failures.is_empty() && self.remaining.is_empty()
    }
}

/// The status after a pass. Times of conditions that did not change stay.
pub(super) fn status(current: Option<&NamespaceStatus>, report: &Report, now: Timestamp) -> NamespaceStatus {
    let mut status = current.cloned().unwrap_or_default();
    status.phase = Some("Terminating".to_owned());
    let discovery = report
        .undiscovered
        .iter()
        .map(|(group, error)| format!("{group}: {error}"))
        .collect::<Vec<_>>();
    let resources: Vec<_> = report
        .remaining
        .iter()
        .map(|remaining| {
            let dot = if remaining.group.is_empty() { "" } else { "." };
            format!(
                "{}{dot}{} has {} resource instances",
                remaining.resource, remaining.group, remaining.count
            )
        })
        .collect();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for finalizer in report.remaining.iter().flat_map(|remaining| &remaining.finalizers) {
        *finalizers.entry(finalizer).or_default() += 1;
    }
    let finalizers: Vec<_> = finalizers
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let rows = [
        (
            "NamespaceDeletionDiscoveryFailure",
            discovery.is_empty(),
            ("ResourcesDiscovered", "All resources successfully discovered"),
            (
                "DiscoveryFailed",
                format!("Discovery failed for some groups: {}", discovery.join(", ")),
            ),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            true,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ("GroupVersionParsingFailed", String::new()),
        ),
        (
            "NamespaceDeletionContentFailure",
            report.failures.is_empty(),
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            (
                "ContentDeletionFailed",
                format!("Failed to delete all resource types: {}", report.failures.join(", ")),
            ),
        ),
        (
            "NamespaceContentRemaining",
            resources.is_empty(),
            ("ContentRemoved", "All content successfully removed"),
            (
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", resources.join(", ")),
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            finalizers.is_empty(),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            (
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    finalizers.join(", ")
                ),
            ),
        ),
    ];
    for (type_, well, good, bad) in rows {
        let (state, reason, message) = if well {
            ("False", good.0, good.1.to_owned())
        } else {
            ("True", bad.0, bad.1)
        };
        let conditions = status.conditions.get_or_insert_default();
        set(conditions, type_, state, reason, message, now);
    }
    status
}

fn set(
    conditions: &mut Vec<NamespaceCondition>,
    type_: &str,
    state: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let fresh = NamespaceCondition {
        type_: type_.to_owned(),
        status: state.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        None => conditions.push(fresh),
        Some(current) => {
            let since = if current.status == fresh.status {
                current.last_transition_time.clone()
            } else {
                None
            };
            *current = NamespaceCondition {
                last_transition_time: since.or(fresh.last_transition_time.clone()),
                ..fresh
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_what_keeps_the_namespace_and_keep_their_times() {
        let report = Report {
            remaining: vec![Remaining {
                resource: "widgets".to_owned(),
                group: "example.com".to_owned(),
                count: 2,
                finalizers: vec!["a.io/x".to_owned(), "a.io/x".to_owned()],
            }],
            ..Report::default()
        };
        let first = status(None, &report, Timestamp::UNIX_EPOCH);
        let find = |status: &NamespaceStatus, type_: &str| {
            let conditions = status.conditions.clone().unwrap();
            conditions
                .into_iter()
                .find(|condition| condition.type_ == type_)
                .unwrap()
        };
        let content = find(&first, "NamespaceContentRemaining");
        assert_eq!(content.status, "True");
        assert!(
            content
                .message
                .unwrap()
                .ends_with("widgets.example.com has 2 resource instances")
        );
        let finalizers = find(&first, "NamespaceFinalizersRemaining");
        assert!(finalizers.message.unwrap().ends_with("a.io/x in 2 resource instances"));

        let later = Timestamp::from_second(60).unwrap();
        assert_eq!(status(Some(&first), &report, later), first);
        let done = status(Some(&first), &Report::default(), later);
        let content = find(&done, "NamespaceContentRemaining");
        assert_eq!(
            (content.status.as_str(), content.last_transition_time.unwrap().0),
            ("False", later)
        );
    }
}
