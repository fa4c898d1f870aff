//! Tells kubelets by an annotation how long they may keep ConfigMaps and Secrets before asking again: longer in larger
//! clusters.

use std::sync::Arc;

use minato_api::k8s::core::v1::Node;
use minato_api::kube::Api;
use minato_runtime::{Controller, Informer, Next, ObjectKey};
use parking_lot::Mutex;
use serde_json::json;

use crate::error::{Result, is_conflict, is_not_found};
use crate::{Context, ops};

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Seconds for clusters of up to so many nodes, and below how many the step before holds again: sizes that waver must
/// not make every node waver.
const STEPS: [(usize, usize, u32); 5] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, usize::MAX, 300),
];

struct NodeTtl {
    cx: Context,
    nodes: Informer<Node>,
    step: Mutex<usize>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(NodeTtl {
        cx: cx.clone(),
        nodes: cx.informer(),
        step: Mutex::new(0),
    });
    Controller::new("ttl", &cx.runtime)
        .watch_primary(&this.nodes)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// The step that holds for a cluster of `size` after `step` held.
fn next(mut step: usize, size: usize) -> usize {
    while step + 1 < STEPS.len() && size > STEPS[step].1 {
        step += 1;
    }
    while step > 0 && size < STEPS[step].0 {
        step -= 1;
    }
    step
}

impl NodeTtl {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(node) = self.nodes.get(&key) else {
            return Ok(Next::Done);
        };
        let seconds = {
            let mut step = self.step.lock();
            *step = next(*step, self.nodes.len());
            STEPS[*step].2.to_string()
        };
        if ops::annotation(&node.metadata, TTL) == Some(&seconds) {
            return Ok(Next::Done);
        }
        let api: Api<Node> = Api::all(self.cx.client().clone());
        match ops::merge(
            &api,
            &node.metadata,
            json!({"metadata": {"annotations": {TTL: seconds}}}),
        )
        .await
        {
            Ok(_) => Ok(Next::Done),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_up_and_down_at_different_sizes() {
        assert_eq!(next(0, 100), 0);
        assert_eq!(next(0, 101), 1);
        assert_eq!(next(1, 90), 1);
        assert_eq!(next(1, 89), 0);
        assert_eq!(next(0, 5000), 4);
        assert_eq!(next(4, 10), 0);
    }
}
