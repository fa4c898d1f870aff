//! The pods of jobs: how they are made, and what is written on them.

use minato_api::k8s::batch::v1::Job;
use minato_api::k8s::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodTemplateSpec};

use crate::names::{JOB_INDEX, JOB_INDEX_FAILURES, JOB_INDEX_IGNORED, JOB_TRACKING};
use crate::{ops, ownership, pods};

/// Tells containers their index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The API server cuts longer beginnings of names.
const LONGEST_PREFIX: usize = 58;

/// A pod to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewPod {
    pub(super) index: Option<i32>,
    /// How often its index failed before, where that is counted by index.
    pub(super) failures: Option<Failures>,
}

/// Failures of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) counted: i32,
    pub(super) ignored: i32,
}

impl Failures {
    pub(super) fn all(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }
}

/// The index written on a pod.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    number(pod, JOB_INDEX).filter(|index| *index >= 0)
}

/// The failures of its index before a pod.
pub(super) fn failures(pod: &Pod) -> Failures {
    Failures {
        counted: number(pod, JOB_INDEX_FAILURES).unwrap_or(0),
        ignored: number(pod, JOB_INDEX_IGNORED).unwrap_or(0),
    }
}

fn number(pod: &Pod, key: &str) -> Option<i32> {
    ops::annotation(&pod.metadata, key)?.parse().ok()
}

/// The pod of a job, which keeps the job's finalizer until it is counted.
pub(super) fn make(job: &Job, template: &PodTemplateSpec, new: NewPod) -> Pod {
    let (namespace, name) = (ops::namespace(&job.metadata), ops::name(&job.metadata));
    let mut pod = pods::from_template(template, namespace, name, ownership::reference(job));
    pod.metadata
        .finalizers
        .get_or_insert_default()
        .push(JOB_TRACKING.to_owned());
    let Some(index) = new.index else { return pod };
    pod.metadata.generate_name = Some(prefix(name, index));
    let value = index.to_string();
    pod.metadata
        .labels
        .get_or_insert_default()
        .insert(JOB_INDEX.to_owned(), value.clone());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(JOB_INDEX.to_owned(), value);
    if let Some(failures) = new.failures {
        annotations.insert(JOB_INDEX_FAILURES.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(JOB_INDEX_IGNORED.to_owned(), failures.ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        let inits = spec.init_containers.iter_mut().flatten();
        inits.chain(&mut spec.containers).for_each(tell_index);
    }
    pod
}

/// `name-index-`, with the name cut so that the index is not.
fn prefix(name: &str, index: i32) -> String {
    let index = format!("-{index}-");
    let room = LONGEST_PREFIX.saturating_sub(index.len());
    format!("{}{index}", name.get(..room).unwrap_or(name))
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == VARIABLE) {
        return;
    }
    variables.push(EnvVar {
        name: VARIABLE.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.labels['{JOB_INDEX}']"),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_indexed_pod_knows_its_index() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [{"name": "c"}, {"name": "d", "env": [{"name": VARIABLE, "value": "own"}]}],
                    "initContainers": [{"name": "i"}],
                },
            }},
        }))
        .unwrap();
        let failures = Failures { counted: 2, ignored: 0 };
        let new = NewPod {
            index: Some(3),
            failures: Some(failures),
        };
        let pod = make(&job, &job.spec.as_ref().unwrap().template, new);
        let from_label = json!({"name": VARIABLE, "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
        }}});
        assert_eq!(
            serde_json::to_value(&pod).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "generateName": "j-3-", "namespace": "n",
                    "labels": {"a": "b", "batch.kubernetes.io/job-completion-index": "3"},
                    "annotations": {
                        "batch.kubernetes.io/job-completion-index": "3",
                        "batch.kubernetes.io/job-index-failure-count": "2",
                    },
                    "finalizers": ["batch.kubernetes.io/job-tracking"],
                    "ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {
                    "hostname": "j-3",
                    "containers": [
                        {"name": "c", "env": [from_label]},
                        {"name": "d", "env": [{"name": VARIABLE, "value": "own"}]},
                    ],
                    "initContainers": [{"name": "i", "env": [from_label]}],
                },
            })
        );
        assert_eq!((index(&pod), super::failures(&pod)), (Some(3), failures));
        let plain = make(&job, &job.spec.as_ref().unwrap().template, NewPod::default());
        assert_eq!(plain.metadata.generate_name.as_deref(), Some("j-"));
        assert_eq!(plain.metadata.annotations, None);
    }

    #[test]
    fn long_names_lose_no_index() {
        let prefix = prefix(&"x".repeat(63), 12_345);
        assert_eq!(prefix.len(), 58);
        assert!(prefix.ends_with("x-12345-"));
    }
}
