//! One decision: which node a pod gets, made on the cache alone, without waiting for anything.

use crate::cache::Cache;
use crate::framework::{CycleState, Profile, Unschedulable};
use crate::pod::PodInfo;

/// The best node for the pod. Of several that are equally good, one at random.
pub(crate) fn decide(
    profile: &Profile,
    pod: &PodInfo,
    cache: &Cache,
    state: &mut CycleState,
) -> Result<String, Unschedulable> {
    profile.pre_filter(state, pod, cache)?;
    // Room was made for it there.
    if let Some(node) = cache.nominated_node(&pod.uid).and_then(|name| cache.node(name))
        && profile.filter_nominated(state, pod, node, cache).is_ok()
    {
        return Ok(node.name.clone());
    }
    let nodes = profile.feasible(state, pod, cache)?;
    if let [only] = nodes.as_slice() {
        return Ok(only.name.clone());
    }
    let scores = profile.scores(state, pod, &nodes, cache);
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
