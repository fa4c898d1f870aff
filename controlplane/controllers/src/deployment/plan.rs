//! One step of a rollout.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use minato_api::k8s::apps::v1::{ReplicaSet, ReplicaSetSpec};
use minato_api::kube::ResourceExt;
use minato_api::meta_v1::ObjectMeta;

use super::model::{Model, available, revision, spec_replicas};
use super::status;
use crate::error::Result;
use crate::{names, ops, ownership, template};

/// A change of one ReplicaSet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Edit {
    pub(super) set: Arc<ReplicaSet>,
    pub(super) replicas: Option<i32>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) min_ready_seconds: Option<i32>,
}

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Option<Box<ReplicaSet>>,
    pub(super) edits: Vec<Edit>,
    pub(super) delete: Vec<Arc<ReplicaSet>>,
    /// The Deployment's own revision annotation, if it must change.
    pub(super) revision: Option<String>,
}

impl Plan {
    fn edit(&mut self, set: &Arc<ReplicaSet>) -> &mut Edit {
        let at = self
            .edits
            .iter()
            .position(|edit| edit.set.metadata.name == set.metadata.name);
        let at = at.unwrap_or_else(|| {
            self.edits.push(Edit {
                set: set.clone(),
                replicas: None,
                annotations: BTreeMap::new(),
                min_ready_seconds: None,
            });
            self.edits.len() - 1
        });
        &mut self.edits[at]
    }

    /// Scales `set`; also when only the annotated size is out of date.
    fn scale(&mut self, model: &Model, set: &Arc<ReplicaSet>, replicas: i32) -> bool {
        let changes = spec_replicas(set) != replicas;
        let sizes = model.size_annotations();
        let stale = sizes
            .iter()
            .any(|(key, value)| ops::annotation(&set.metadata, key) != Some(value));
        if changes || stale {
            let edit = self.edit(set);
            edit.replicas = changes.then_some(replicas);
            edit.annotations.extend(sizes);
        }
        changes
    }
}

/// The next step. A plan does little at a time: what follows depends on what the pods do.
pub(super) fn plan(model: &Model, now: Timestamp) -> Result<Plan> {
    let mut plan = Plan::default();
    if model.deployment.metadata.deletion_timestamp.is_some() {
        return Ok(plan);
    }
    sync_new(model, &mut plan);
    if model.spec.paused == Some(true) || is_scaling(model) {
        scale(model, &mut plan);
    } else if model.is_recreate() {
        recreate(model, &mut plan)?;
    } else {
        roll(model, &mut plan)?;
    }
    if plan.create.is_none() && status::is_complete(model, &status::counts(model)) {
        clean_up(model, &mut plan);
    }
    let _ = now;
    Ok(plan)
}

/// Brings the annotations of the current ReplicaSet in step: an old one that is current again gets a new revision.
fn sync_new(model: &Model, plan: &mut Plan) {
    let Some(new) = &model.new else { return };
    let mut annotations = BTreeMap::new();
    for (key, value) in model.copied_annotations() {
        if ops::annotation(&new.metadata, &key) != Some(&value) {
            annotations.insert(key, value);
        }
    }
    let (had, next) = (revision(new), model.next_revision());
    let shown = had.max(next).to_string();
    if had < next {
        annotations.insert(names::REVISION.to_owned(), shown.clone());
        if had > 0 {
            let history = ops::annotation(&new.metadata, names::REVISION_HISTORY);
            let history = history.map_or_else(|| had.to_string(), |history| format!("{history},{had}"));
            annotations.insert(names::REVISION_HISTORY.to_owned(), history);
        }
    }
    let wanted = model.spec.min_ready_seconds.unwrap_or(0);
    let has = new.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    if !annotations.is_empty() || wanted != has {
        let edit = plan.edit(new);
        edit.annotations = annotations;
        edit.min_ready_seconds = (wanted != has).then_some(wanted);
    }
    show_revision(model, plan, shown);
}

fn show_revision(model: &Model, plan: &mut Plan, revision: String) {
    if ops::annotation(&model.deployment.metadata, names::REVISION) != Some(&revision) {
        plan.revision = Some(revision);
    }
}

/// Whether the Deployment was scaled since its ReplicaSets were.
fn is_scaling(model: &Model) -> bool {
    model.all().filter(|set| spec_replicas(set) > 0).any(|set| {
        let desired = ops::annotation(&set.metadata, names::DESIRED_REPLICAS);
        desired
            .and_then(|desired| desired.parse::<i32>().ok())
            .is_some_and(|desired| desired != model.replicas)
    })
}

/// Scales without rolling: all of the difference to the one active ReplicaSet, or in proportion to several.
fn scale(model: &Model, plan: &mut Plan) {
    let mut active: Vec<_> = model.all().filter(|set| spec_replicas(set) > 0).cloned().collect();
    if active.len() <= 1 {
        let one = active
            .pop()
            .or_else(|| model.new.clone())
            .or_else(|| model.old.last().cloned());
        if let Some(one) = one {
            plan.scale(model, &one, model.replicas);
        }
        return;
    }
    if is_saturated(model) {
        for set in model.old.iter().filter(|set| spec_replicas(set) > 0) {
            plan.scale(model, set, 0);
        }
        return;
    }
    if model.is_recreate() {
        return;
    }
    let total: i32 = active.iter().map(|set| spec_replicas(set)).sum();
    let allowed = if model.replicas > 0 {
        model.replicas + model.max_surge
    } else {
        0
    };
    let to_add = allowed - total;
    // The largest first; of equals the newest grows and the oldest shrinks.
    active.sort_by(|a, b| {
        let by_size = spec_replicas(b).cmp(&spec_replicas(a));
        let age = a.creation_timestamp().cmp(&b.creation_timestamp());
        by_size.then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0;
    let mut sizes = Vec::with_capacity(active.len());
    for set in &active {
        let share = if to_add == 0 {
            0
        } else {
            proportion(model, set, to_add, added)
        };
        added += share;
        sizes.push(spec_replicas(set) + share);
    }
    if let Some(first) = sizes.first_mut() {
        // Rounding leaves a rest.
        *first = (*first + to_add - added).max(0);
    }
    for (set, size) in active.iter().zip(sizes) {
        plan.scale(model, set, size);
    }
}

fn is_saturated(model: &Model) -> bool {
    let Some(new) = &model.new else { return false };
    let desired = ops::annotation(&new.metadata, names::DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
    spec_replicas(new) == model.replicas && desired == Some(model.replicas) && available(new) == model.replicas
}

/// How much of `to_add` falls to `set`, by its share of the size that was allowed when it was last scaled.
fn proportion(model: &Model, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    let size = spec_replicas(set);
    if size == 0 {
        return 0;
    }
    let share = if model.replicas == 0 {
        -size
    } else {
        let noted = ops::annotation(&set.metadata, names::MAX_REPLICAS).and_then(|text| text.parse::<i32>().ok());
        let before = model.deployment.status.as_ref().and_then(|status| status.replicas);
        let before = f64::from(noted.or(before).filter(|before| *before > 0).unwrap_or(1));
        let next = f64::from(size) * f64::from(model.replicas + model.max_surge) / before;
        // In the range of i32 as long as the sizes are.
        #[expect(clippy::cast_possible_truncation, reason = "a float to integer cast saturates")]
        let next = next.round() as i32;
        next - size
    };
    let left = to_add - added;
    if to_add > 0 { share.min(left) } else { share.max(left) }
}

fn recreate(model: &Model, plan: &mut Plan) -> Result<()> {
    let mut scaled = false;
    for set in model.old.iter().filter(|set| spec_replicas(set) > 0) {
        scaled |= plan.scale(model, set, 0);
    }
    if scaled || model.old_pods {
        return Ok(());
    }
    match &model.new {
        Some(new) => {
            plan.scale(model, new, model.replicas);
        }
        None => create(model, plan, model.replicas)?,
    }
    Ok(())
}

fn roll(model: &Model, plan: &mut Plan) -> Result<()> {
    let total: i32 = model.all().map(|set| spec_replicas(set)).sum();
    let room = (model.replicas + model.max_surge - total).max(0);
    let Some(new) = &model.new else {
        return create(model, plan, room.min(model.replicas));
    };
    let has = spec_replicas(new);
    let target = if has > model.replicas {
        model.replicas
    } else {
        has + room.min(model.replicas - has)
    };
    if plan.scale(model, new, target) {
        return Ok(());
    }
    scale_down_old(model, plan, total);
    Ok(())
}

/// Takes old pods away as far as enough stay available: first those that are not available anyway.
fn scale_down_old(model: &Model, plan: &mut Plan, total: i32) {
    let Some(new) = &model.new else { return };
    let needed = model.replicas - model.max_unavailable;
    let new_unavailable = spec_replicas(new) - available(new);
    let mut may_go = total - needed - new_unavailable;
    if may_go <= 0 {
        return;
    }
    let mut sizes: Vec<_> = model.old.iter().map(|set| (set, spec_replicas(set))).collect();
    for (set, size) in &mut sizes {
        let unhealthy = (*size - available(set)).clamp(0, may_go.max(0));
        *size -= unhealthy;
        may_go -= unhealthy;
    }
    let available_now: i32 = model.all().map(|set| available(set)).sum();
    let mut spare = (available_now - needed).max(0);
    for (_, size) in &mut sizes {
        let down = (*size).min(spare);
        *size -= down;
        spare -= down;
    }
    for (set, size) in sizes {
        if size != spec_replicas(set) {
            plan.scale(model, set, size);
        }
    }
}

fn create(model: &Model, plan: &mut Plan, replicas: i32) -> Result<()> {
    let collisions = model
        .deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count)
        .unwrap_or(0);
    let hash = template::hash(&model.spec.template, collisions)?;
    let label = (names::POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let mut pod_template = model.spec.template.clone();
    let labels = pod_template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.extend([label.clone()]);
    let labels = labels.clone();
    let mut selector = model.spec.selector.clone();
    selector.match_labels.get_or_insert_default().extend([label]);
    let revision = model.next_revision().to_string();
    let mut annotations = model.copied_annotations();
    annotations.extend(model.size_annotations());
    annotations.insert(names::REVISION.to_owned(), revision.clone());
    let meta = &model.deployment.metadata;
    plan.create = Some(Box::new(ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", ops::name(meta))),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![ownership::reference(model.deployment.as_ref())]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: model.spec.min_ready_seconds,
            selector,
            template: Some(pod_template),
        }),
        status: None,
    }));
    show_revision(model, plan, revision);
    Ok(())
}

/// Old, empty ReplicaSets beyond the history limit go, the lowest revisions first.
fn clean_up(model: &Model, plan: &mut Plan) {
    let limit = usize::try_from(model.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut old: Vec<_> = model
        .old
        .iter()
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .cloned()
        .collect();
    old.sort_by_key(|set| (revision(set), set.creation_timestamp()));
    let excess = old.len().saturating_sub(limit);
    for set in old.into_iter().take(excess) {
        let status = set.status.clone().unwrap_or_default();
        let settled = status.observed_generation.unwrap_or(0) >= set.metadata.generation.unwrap_or(0);
        if status.replicas == 0 && spec_replicas(&set) == 0 && settled {
            plan.delete.push(set);
        }
    }
}
