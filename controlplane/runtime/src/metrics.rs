//! Metrics of a component, under upstream's names where upstream has them.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueName {
    name: &'static str,
}

/// One registry per component or process. Cheap to clone; clones are the same registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    depth: Family<QueueName, Gauge>,
    adds: Family<QueueName, Counter>,
    retries: Family<QueueName, Counter>,
    waited: Family<QueueName, Histogram, fn() -> Histogram>,
    worked: Family<QueueName, Histogram, fn() -> Histogram>,
}

/// Upstream's buckets of work queue durations: 10 ns to 10 s, by tens.
fn queue_buckets() -> Histogram {
    Histogram::new((0..10).map(|i| 1e-8 * 10_f64.powi(i)))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// An empty registry, but for the work queue families.
    pub fn new() -> Self {
        let this = Self {
            registry: Arc::new(Mutex::new(Registry::default())),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(queue_buckets),
            worked: Family::new_with_constructor(queue_buckets),
        };
        this.register("workqueue_depth", "Current depth of workqueue", this.depth.clone());
        // The exposition format appends `_total` to counters.
        this.register(
            "workqueue_adds",
            "Total number of adds handled by workqueue",
            this.adds.clone(),
        );
        this.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            this.retries.clone(),
        );
        this.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            this.waited.clone(),
        );
        this.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            this.worked.clone(),
        );
        this
    }

    /// Adds a metric of the component's own.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().register(name, help, metric);
    }

    /// Everything in the text exposition format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string fails only if a metric's own encoding does; a partial page is the best answer then.
        if encode(&mut text, &self.registry.lock()).is_err() {
            tracing::warn!("a metric could not be encoded");
        }
        text
    }

    pub(crate) fn queue(&self, name: &'static str) -> QueueMetrics {
        let name = QueueName { name };
        QueueMetrics {
            depth: self.depth.get_or_create_owned(&name),
            adds: self.adds.get_or_create_owned(&name),
            retries: self.retries.get_or_create_owned(&name),
            waited: self.waited.get_or_create_owned(&name),
            worked: self.worked.get_or_create_owned(&name),
        }
    }
}

/// The metrics of one work queue.
#[derive(Clone)]
pub(crate) struct QueueMetrics {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        let metrics = Metrics::new();
        metrics.queue("deployment").adds.inc();
        let text = metrics.render();
        assert!(text.contains("workqueue_adds_total{name=\"deployment\"} 1"), "{text}");
        assert!(text.contains("workqueue_depth{name=\"deployment\"} 0"), "{text}");
    }
}
