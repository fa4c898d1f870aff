//! One decision: which node a pod gets, made on the cache alone, without waiting for anything.

use crate::cache::Cache;
use crate::framework::{CycleState, Profile, Unschedulable};
use crate::pod::PodInfo;

/// The best node for the pod. Of several that are equally good, one at random.
pub(crate) fn decide(profile: &Profile, pod: &PodInfo, cache: &Cache) -> Result<String, Unschedulable> {
    let mut state = CycleState::default();
    profile.pre_filter(&mut state, pod, cache)?;
    let nodes = profile.feasible(&state, pod, cache)?;
    if let [only] = nodes.as_slice() {
        return Ok(only.name.clone());
    }
    let scores = profile.scores(&mut state, pod, &nodes, cache);
    let best = scores.iter().max();
    let mut ties: Vec<&str> = nodes
        .iter()
        .zip(&scores)
        .filter(|(_, score)| Some(*score) == best)
        .map(|(node, _)| node.name.as_str())
        .collect();
    let at = if ties.len() > 1 {
        rand::random_range(0..ties.len())
    } else {
        0
    };
    Ok(ties.swap_remove(at).to_owned())
}
