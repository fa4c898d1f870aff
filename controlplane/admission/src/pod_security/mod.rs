//! `PodSecurity`: pods must keep to the level of the Pod Security Standards that their namespace's labels name.
//!
//! ```text
//! policy.rs  labels of a namespace → level and version to enforce, to audit, to warn about
//! checks.rs  the standards: a table of checks by level and version        subject.rs  what they look at
//! ```
//!
//! Source: <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.

mod checks;
mod policy;
mod subject;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::Value;

use crate::objects::{all_cached, list, parse, text};
use crate::request::Notes;
use crate::{AdmissionPlugin, AdmissionRequest, Operation};
use checks::{Findings, evaluate};
use policy::{Level, LevelVersion, Policy};
use subject::Subject;

/// Pods of a namespace that are looked at when its level is raised; upstream's figure.
const MOST_PODS: usize = 3000;
/// Subresources of pods that do not change what runs.
const HARMLESS: &[&str] = &[
    "attach",
    "binding",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "status",
];
/// Kinds that hold a template of pods, and where.
const TEMPLATES: &[(&str, &str, &str)] = &[
    ("", "podtemplates", "/template"),
    ("", "replicationcontrollers", "/spec/template"),
    ("apps", "daemonsets", "/spec/template"),
    ("apps", "deployments", "/spec/template"),
    ("apps", "replicasets", "/spec/template"),
    ("apps", "statefulsets", "/spec/template"),
    ("batch", "cronjobs", "/spec/jobTemplate/spec/template"),
    ("batch", "jobs", "/spec/template"),
];

/// See the module.
pub struct PodSecurity {
    reader: Arc<dyn ClusterReader>,
}

/// What a request is to the plug-in.
enum Subjects {
    Namespace,
    Pod,
    /// The pointer of its template.
    Template(&'static str),
}

fn subjects(request: &AdmissionRequest<'_>) -> Option<Subjects> {
    let (group, resource) = (request.resource.group.as_str(), request.resource.resource.as_str());
    match (group, resource, request.subresource) {
        ("", "pods", part) => (!HARMLESS.contains(&part)).then_some(Subjects::Pod),
        ("", "namespaces", "") => Some(Subjects::Namespace),
        (_, _, "") => {
            let found = TEMPLATES.iter().find(|(g, r, _)| *g == group && *r == resource);
            found.map(|(_, _, pointer)| Subjects::Template(pointer))
        }
        _ => None,
    }
}

impl PodSecurity {
    /// Looks namespaces and their pods up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    /// The policy of a namespace, and what is wrong with its labels.
    async fn policy(&self, namespace: &str) -> Result<(Policy, Vec<String>), ApiError> {
        let namespaces = GroupResource::new("", "namespaces");
        let found = match self.reader.get(&namespaces, None, namespace) {
            Some(object) => Some(object),
            None => self.reader.get_consistent(&namespaces, None, namespace).await?,
        };
        let Some(object) = found.and_then(|object| parse(&object.json)) else {
            return Err(ApiError::internal(format!(
                "failed to lookup namespace \"{namespace}\""
            )));
        };
        let (policy, errors) = policy::of(&object);
        Ok((policy, errors.0.iter().map(ToString::to_string).collect()))
    }

    fn namespace(&self, request: &AdmissionRequest<'_>, notes: &mut Notes) -> Result<(), ApiError> {
        let (new, errors) = policy::of(&request.object);
        let (old, old_errors) = match request.operation {
            Operation::Update => policy::of(request.old_object),
            _ => Default::default(),
        };
        if !errors.is_empty() && errors != old_errors {
            return Err(ApiError::invalid(&request.kind.group_kind(), request.name, errors));
        }
        let (new, old) = (new.enforce, old.enforce);
        let relaxed = new.version == old.version && new.level <= old.level;
        if request.operation == Operation::Update && new != old && new.level != Level::Privileged && !relaxed {
            notes.warnings.extend(self.violations(request.name, new));
        }
        Ok(())
    }

    /// What a new level to enforce says of the pods that are there.
    fn violations(&self, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let pods = all_cached(self.reader.as_ref(), &GroupResource::new("", "pods"), Some(namespace));
        let total = pods.len();
        let mut by_reason: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in one_of_each_controller_first(pods).iter().take(MOST_PODS) {
            let findings = evaluate(enforce, &Subject::new(pod));
            if findings.is_empty() {
                continue;
            }
            let name = text(pod, "/metadata/name");
            let (first, count) = by_reason
                .entry(findings.reasons())
                .or_insert_with(|| (name.to_owned(), 0));
            if name < first.as_str() {
                name.clone_into(first);
            }
            *count += 1;
        }
        let mut warnings = Vec::new();
        if total > MOST_PODS {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {MOST_PODS} of {total} existing pods"
            ));
        }
        if !by_reason.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
            ));
        }
        let mut lines: Vec<String> = by_reason
            .into_iter()
            .map(|(reason, (name, count))| match count {
                1 => format!("{name}: {reason}"),
                2 => format!("{name} (and 1 other pod): {reason}"),
                _ => format!("{name} (and {} other pods): {reason}", count - 1),
            })
            .collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }
}

/// Pods of one controller are alike: one of each goes before the others.
fn one_of_each_controller_first(pods: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let (mut first, further): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(|pod| {
        let owners = list(pod, "/metadata/ownerReferences").iter();
        let mut controllers = owners.filter(|owner| owner.get("controller") == Some(&Value::Bool(true)));
        controllers
            .next()
            .is_none_or(|owner| seen.insert(text(owner, "/uid").to_owned()))
    });
    first.extend(further);
    first
}

/// Whether an update changes what runs: other images, more or fewer containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, kind: &str| -> Vec<String> {
        let all = list(pod, kind).iter();
        all.map(|container| text(container, "/image").to_owned()).collect()
    };
    let changed = ["/spec/containers", "/spec/initContainers"]
        .iter()
        .any(|kind| images(new, kind) != images(old, kind));
    let ephemeral = "/spec/ephemeralContainers";
    changed
        || list(new, ephemeral).iter().any(|container| {
            let same = |c: &&Value| c.get("name") == container.get("name");
            let before = list(old, ephemeral).iter().find(same);
            before.is_none_or(|before| text(before, "/image") != text(container, "/image"))
        })
}

/// Holds a pod against a policy; what is enforced counts only for pods themselves.
fn judge(
    policy: &Policy,
    errors: &[String],
    subject: &Subject<'_>,
    enforce: bool,
    notes: &mut Notes,
) -> Result<(), String> {
    let mut annotate = |key: &str, value: String| {
        let key = format!("pod-security.kubernetes.io/{key}");
        notes.audit_annotations.push((key, value));
    };
    if !errors.is_empty() {
        annotate("error", format!("Failed to parse policy: {}", errors.join(", ")));
    }
    let text = |verb: &str, level: LevelVersion, findings: &Findings| {
        format!("{verb} PodSecurity \"{level}\": {}", findings.details())
    };
    let mut verdict = Ok(());
    if enforce {
        annotate("enforce-policy", policy.enforce.to_string());
        let findings = evaluate(policy.enforce, subject);
        if !findings.is_empty() {
            verdict = Err(text("violates", policy.enforce, &findings));
        }
    }
    let audited = evaluate(policy.audit, subject);
    if !audited.is_empty() {
        annotate("audit-violations", text("would violate", policy.audit, &audited));
    }
    // A refusal says it all.
    if verdict.is_ok() {
        let warned = evaluate(policy.warn, subject);
        if !warned.is_empty() {
            notes.warnings.push(text("would violate", policy.warn, &warned));
        }
    }
    verdict
}

#[async_trait]
impl AdmissionPlugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && subjects(request).is_some()
    }

    async fn inspect(&self, request: &AdmissionRequest<'_>, notes: &mut Notes) -> Result<(), ApiError> {
        match subjects(request) {
            None => Ok(()),
            Some(Subjects::Namespace) => self.namespace(request, notes),
            Some(Subjects::Pod) => {
                let (policy, errors) = self.policy(request.namespace).await?;
                if policy.is_privileged()
                    || request.operation == Operation::Update && !is_significant(&request.object, request.old_object)
                {
                    return Ok(());
                }
                judge(&policy, &errors, &Subject::new(&request.object), true, notes).map_err(|why| {
                    let resource = request.resource.group_resource();
                    let name = match request.name {
                        "" => text(&request.object, "/metadata/generateName"),
                        name => name,
                    };
                    ApiError::forbidden(&resource, name, why)
                })
            }
            Some(Subjects::Template(pointer)) => {
                let Some(template) = request.object.pointer(pointer).filter(|template| template.is_object()) else {
                    return Ok(());
                };
                // Workloads are never refused: their pods are.
                if let Ok((policy, errors)) = self.policy(request.namespace).await {
                    let _never = judge(&policy, &errors, &Subject::new(template), false, notes);
                }
                Ok(())
            }
        }
    }
}
