//! The plug-ins, one file per idea, named as upstream names them.
//! Source: <https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins>.

mod gates;
mod images;
mod node;
mod node_affinity;
mod pod_affinity;
mod resources;
mod spread;
mod taints;

use std::sync::Arc;

use crate::config::Arguments;
use crate::framework::Plugin;
use crate::owners::Owners;

/// The plug-in of a name; none for what is no plug-in here but a part of the scheduler itself.
pub(crate) fn make(name: &str, arguments: &Arguments, owners: Option<&Owners>) -> Option<Arc<dyn Plugin>> {
    Some(match name {
        "SchedulingGates" => Arc::new(gates::SchedulingGates),
        "NodeUnschedulable" => Arc::new(node::NodeUnschedulable),
        "NodeName" => Arc::new(node::NodeName),
        "TaintToleration" => Arc::new(taints::TaintToleration),
        "NodeAffinity" => Arc::new(node_affinity::NodeAffinity),
        "NodePorts" => Arc::new(node::NodePorts),
        "NodeResourcesFit" => Arc::new(resources::Fit::new(arguments)),
        "PodTopologySpread" => Arc::new(spread::PodTopologySpread {
            owners: owners.filter(|_| arguments.default_spread).cloned(),
        }),
        "InterPodAffinity" => Arc::new(pod_affinity::InterPodAffinity::new(arguments)),
        "NodeResourcesBalancedAllocation" => Arc::new(resources::BalancedAllocation),
        "ImageLocality" => Arc::new(images::ImageLocality),
        _ => return None,
    })
}

/// The profile of a scheduler that nothing was said to.
#[cfg(test)]
pub(crate) fn default_profile() -> crate::framework::Profile {
    crate::framework::Profile::new(&crate::config::Configuration::default().profiles[0], None)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pods and nodes for the tests of plug-ins.

    use std::sync::Arc;

    use serde_json::Value;

    use crate::cache::Cache;
    use crate::framework::{CycleState, Plugin, Rejection};
    use crate::pod::PodInfo;

    pub(crate) fn pod(value: Value) -> PodInfo {
        PodInfo::new(Arc::new(serde_json::from_value(value).unwrap_or_default()))
    }

    pub(crate) fn cache(nodes: &[Value], placed: &[(&str, Value)]) -> Cache {
        let mut cache = Cache::default();
        for node in nodes {
            cache.set_node(&Arc::new(serde_json::from_value(node.clone()).unwrap_or_default()));
        }
        for (node, value) in placed {
            cache.assume(Arc::new(pod(value.clone())), node);
        }
        cache
    }

    /// Names of the nodes that the plug-in lets through, and the first reason for each other.
    pub(crate) fn filtered(plugin: &dyn Plugin, pod: &PodInfo, cache: &Cache) -> Vec<(String, Result<(), Rejection>)> {
        let mut state = CycleState::default();
        let before = plugin.pre_filter(&mut state, pod, cache);
        let mut all: Vec<_> = cache
            .nodes()
            .map(|node| {
                (
                    node.name.clone(),
                    before.clone().and_then(|()| plugin.filter(&state, pod, node)),
                )
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    pub(crate) fn fitting(plugin: &dyn Plugin, pod: &PodInfo, cache: &Cache) -> Vec<String> {
        let all = filtered(plugin, pod, cache).into_iter();
        all.filter(|(_, result)| result.is_ok()).map(|(name, _)| name).collect()
    }

    /// Normalized scores in order of node names.
    pub(crate) fn scores(plugin: &dyn Plugin, pod: &PodInfo, cache: &Cache) -> Vec<i64> {
        let mut nodes: Vec<_> = cache.nodes().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut state = CycleState::default();
        plugin.pre_score(&mut state, pod, &nodes, cache);
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|node| plugin.score(&state, pod, node).unwrap_or(-1))
            .collect();
        plugin.normalize(&mut scores);
        scores
    }
}
