//! Figures of the kubelet, with upstream's names.
//!
//! Source: <https://kubernetes.io/docs/reference/instrumentation/metrics/>.

use minato_runtime::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// `container_state` of [`Figures::containers`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    container_state: &'static str,
}

/// Kept by the watch of the runtime.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    pods: Gauge,
    containers: Family<OfState, Gauge>,
}

impl Figures {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let this = Self::default();
        let pods = "Number of pods that have a running pod sandbox";
        metrics.register("kubelet_running_pods", pods, this.pods.clone());
        let containers = "Number of containers currently running";
        metrics.register("kubelet_running_containers", containers, this.containers.clone());
        this
    }

    pub(crate) fn set(&self, pods: usize, containers: [(&'static str, usize); 4]) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.pods.set(number(pods));
        for (container_state, count) in containers {
            self.containers
                .get_or_create(&OfState { container_state })
                .set(number(count));
        }
    }
}
