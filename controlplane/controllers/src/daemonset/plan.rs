//! Which pods to make and which to delete.

use std::sync::Arc;
use std::time::Duration;

use minato_api::k8s::core::v1::Pod;
use minato_runtime::EventKind;

use super::eligible::Eligible;
use super::model::Model;
use crate::error::Result;
use crate::ops;
use crate::pods::{self, Availability};

/// At most so many pods are made, and so many deleted, in one go.
const BURST: usize = 250;

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Nodes on which a pod failed: the next failure there will have to wait longer.
    pub(super) failed: Vec<String>,
    pub(super) notes: Vec<(EventKind, &'static str, String)>,
    /// When time alone makes a difference.
    pub(super) wake: Option<Duration>,
}

impl Plan {
    fn wake_in(&mut self, left: Duration) {
        self.wake = Some(self.wake.map_or(left, |wake| wake.min(left)));
    }
}

/// Plans. `wait` tells how long a node must still wait before a failed pod on it may be replaced.
pub(super) fn plan(model: &Model<'_>, wait: &dyn Fn(&str) -> Option<Duration>) -> Result<Plan> {
    let mut plan = Plan::default();
    for (node, eligible) in &model.nodes {
        manage(model, node, *eligible, wait, &mut plan);
    }
    for (node, pods) in &model.pods {
        // Whom the pod is waiting for will never come. Pods that were placed are the pod garbage collector's.
        if !model.nodes.contains_key(node) {
            let unplaced = pods.iter().filter(|pod| pods::node_name(pod).is_none());
            plan.delete.extend(unplaced.cloned());
        }
    }
    if plan.create.is_empty() && plan.delete.is_empty() && model.rolls() {
        roll(model, &mut plan)?;
    }
    plan.delete.retain(|pod| !pods::is_terminating(pod));
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    for pod in model.pods.values().flatten() {
        if let Availability::In(left) = model.availability(pod) {
            plan.wake_in(left);
        }
    }
    Ok(plan)
}

/// One pod on each node that is to have one, none on others.
fn manage(model: &Model<'_>, node: &str, eligible: Eligible, wait: &dyn Fn(&str) -> Option<Duration>, plan: &mut Plan) {
    let all = model.on(node);
    match eligible {
        Eligible::Yes if all.is_empty() => plan.create.push(node.to_owned()),
        Eligible::No => plan.delete.extend(all.iter().cloned()),
        Eligible::Yes | Eligible::MayStay => {
            let mut running = Vec::new();
            for pod in all.iter().filter(|pod| !pods::is_terminating(pod)) {
                let at = format!(
                    "{}/{} on node {node}",
                    ops::namespace(&pod.metadata),
                    ops::name(&pod.metadata)
                );
                match pods::phase(pod) {
                    "Failed" => match wait(node) {
                        Some(left) => plan.wake_in(left),
                        None => {
                            let message = format!("Found failed daemon pod {at}, will try to kill it");
                            plan.notes.push((EventKind::Warning, "FailedDaemonPod", message));
                            plan.failed.push(node.to_owned());
                            plan.delete.push(pod.clone());
                        }
                    },
                    "Succeeded" => {
                        let message = format!("Found succeeded daemon pod {at}, will try to delete it");
                        plan.notes.push((EventKind::Normal, "SucceededDaemonPod", message));
                        plan.delete.push(pod.clone());
                    }
                    _ => running.push(pod.clone()),
                }
            }
            plan.delete.extend(too_many(model, running));
        }
    }
}

/// The pods that a node has beyond its one, or beyond an old and a new one during a rollout that lets them overlap.
fn too_many(model: &Model<'_>, running: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    if !model.surges() || running.len() < 2 {
        return running.into_iter().skip(1).collect();
    }
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| model.is_updated(pod));
    let (mut new, mut old) = (new.into_iter(), old.into_iter());
    let replaced = match (new.next(), old.next()) {
        (Some(new), Some(old)) => (!pods::is_ready(&old) || model.is_available(&new)).then_some(old),
        _ => None,
    };
    new.chain(old).chain(replaced).collect()
}

/// What a node has during a rollout.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// The new and the old pod of a node; `None` if there are several of one kind.
fn pair<'a>(model: &'a Model<'_>, node: &str) -> Option<Pair<'a>> {
    let (mut new, mut old) = (None, None);
    for pod in model.on(node).iter().filter(|pod| !pods::is_terminating(pod)) {
        let place = if model.is_updated(pod) { &mut new } else { &mut old };
        if place.replace(pod).is_some() {
            return None;
        }
    }
    Some(Pair { new, old })
}

fn roll(model: &Model<'_>, plan: &mut Plan) -> Result<()> {
    let (surge, unavailable) = model.limits()?;
    let wanted = |node: &&String| model.nodes.get(*node) == Some(&Eligible::Yes);
    let nodes: Vec<&String> = model
        .nodes
        .keys()
        .filter(|node| wanted(node) || !model.on(node).is_empty())
        .collect();
    if surge > 0 {
        overlap(model, &nodes, surge, plan);
    } else {
        replace(model, &nodes, unavailable, plan);
    }
    Ok(())
}

/// Deletes old pods as long as enough others are available; new ones come to the empty nodes by themselves.
fn replace(model: &Model<'_>, nodes: &[&String], allowed: usize, plan: &mut Plan) {
    let mut missing = 0;
    let mut candidates = Vec::new();
    for node in nodes {
        match pair(model, node) {
            None
            | Some(
                Pair { new: None, old: None }
                | Pair {
                    new: Some(_),
                    old: Some(_),
                },
            ) => missing += 1,
            Some(Pair { new: Some(new), .. }) => missing += usize::from(!model.is_available(new)),
            Some(Pair { old: Some(old), .. }) if model.is_available(old) => candidates.push(old.clone()),
            // It serves nobody: nothing is lost with it.
            Some(Pair { old: Some(old), .. }) => plan.delete.push(old.clone()),
        }
    }
    plan.delete
        .extend(candidates.into_iter().take(allowed.saturating_sub(missing)));
}

/// Makes new pods beside old ones, which go when the new ones are available.
fn overlap(model: &Model<'_>, nodes: &[&String], allowed: usize, plan: &mut Plan) {
    let mut surging = 0;
    let mut candidates = Vec::new();
    for node in nodes {
        match pair(model, node) {
            None => surging += 1,
            Some(Pair { old: None, .. }) => {}
            Some(Pair {
                new: None,
                old: Some(old),
            }) if model.nodes.get(*node) == Some(&Eligible::Yes) => {
                if model.is_available(old) {
                    candidates.push((*node).clone());
                } else {
                    plan.create.push((*node).clone());
                }
            }
            Some(Pair { new: None, .. }) => {}
            Some(Pair {
                new: Some(new),
                old: Some(old),
            }) => {
                if !model.is_available(old) || model.is_available(new) {
                    plan.delete.push(old.clone());
                } else {
                    surging += 1;
                }
            }
        }
    }
    plan.create
        .extend(candidates.into_iter().take(allowed.saturating_sub(surging)));
}
