//! `ImageLocality`: nodes that have large images of the pod already are better, the more so the more nodes have them.

use crate::cache::{Cache, NodeInfo};
use crate::framework::{CycleState, Event, MAX_SCORE, Plugin};
use crate::pod::PodInfo;

const MIB: i64 = 1 << 20;
/// Smaller images are as good as pulled.
const SMALLEST: i64 = 23 * MIB;
/// Per container.
const LARGEST: i64 = 1000 * MIB;

pub(super) struct ImageLocality;

/// For each image of the pod: its name and the share of nodes that have it, in thousandths.
#[derive(Clone)]
struct Spread(Vec<(String, i64)>);

const NAME: &str = "ImageLocality";

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _nodes: &[&NodeInfo], cache: &Cache) {
        let containers = pod
            .spec()
            .into_iter()
            .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let images = containers
            .filter_map(|container| container.image.as_deref())
            .map(normalized);
        let total = i64::try_from(cache.nodes().count()).unwrap_or(i64::MAX).max(1);
        let spread = images.map(|image| {
            let having = cache.nodes().filter(|node| node.images.contains_key(&image)).count();
            let share = i64::try_from(having).unwrap_or(0) * 1000 / total;
            (image, share)
        });
        state.put(NAME, Spread(spread.collect()));
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let Spread(images) = state.get::<Spread>(NAME)?;
        let bytes: i64 = images
            .iter()
            .filter_map(|(image, share)| Some(node.images.get(image)? / 1000 * share))
            .sum();
        let most = LARGEST * i64::try_from(images.len()).unwrap_or(1).max(1);
        let bytes = bytes.clamp(SMALLEST, most.max(SMALLEST));
        Some(MAX_SCORE * (bytes - SMALLEST) / (most - SMALLEST).max(1))
    }

    /// Rejects nothing.
    fn wakes(&self, _event: Event, _pod: &PodInfo) -> bool {
        false
    }
}

/// Nodes report images with their tag.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{cache, pod, scores};
    use super::*;

    #[test]
    fn a_node_with_the_image_is_better() {
        let image = json!([{"names": ["web:latest"], "sizeBytes": 500 * MIB}]);
        let nodes = [
            json!({"metadata": {"name": "a"}, "status": {"images": image}}),
            json!({"metadata": {"name": "b"}}),
        ];
        let cache = cache(&nodes, &[]);
        let pod = pod(json!({"spec": {"containers": [{"name": "c", "image": "web"}]}}));
        // Half of the nodes have its 500 MiB: 250 of 1000, over the least that counts.
        assert_eq!(
            scores(&ImageLocality, &pod, &cache),
            [(250 - 23) * 100 / (1000 - 23), 0]
        );
    }
}
