//! Amounts of resources, and what a pod asks for.
//! Source: <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/>.

use std::collections::BTreeMap;

use minato_api::k8s::core::v1::{Container, PodSpec};
use minato_api::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What a container without a request counts as when nodes are scored, so that such pods spread too: 100 milli-CPU and
/// 200 MiB, as upstream.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

/// Amounts by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Thousandths of a CPU.
    pub(crate) milli_cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
    /// Bytes.
    pub(crate) ephemeral_storage: i64,
    /// Number of pods; of a node only.
    pub(crate) pods: i64,
    /// All others, in units.
    pub(crate) others: BTreeMap<String, i64>,
}

type List = BTreeMap<String, Quantity>;

/// A quantity that cannot be read counts as nothing; the API server lets none through.
fn amount(quantity: &Quantity, milli: bool) -> i64 {
    let parsed = quantity.0.parse::<minato_meta::Quantity>();
    parsed.map_or(0, |quantity| if milli { quantity.milli() } else { quantity.units() })
}

impl Resources {
    pub(crate) fn from_list(list: &List) -> Self {
        let mut this = Self::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => this.milli_cpu = amount(quantity, true),
                "memory" => this.memory = amount(quantity, false),
                "ephemeral-storage" => this.ephemeral_storage = amount(quantity, false),
                "pods" => this.pods = amount(quantity, false),
                _ => {
                    this.others.insert(name.clone(), amount(quantity, false));
                }
            }
        }
        this
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.milli_cpu += other.milli_cpu;
        self.memory += other.memory;
        self.ephemeral_storage += other.ephemeral_storage;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() += amount;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.milli_cpu -= other.milli_cpu;
        self.memory -= other.memory;
        self.ephemeral_storage -= other.ephemeral_storage;
        for (name, amount) in &other.others {
            *self.others.entry(name.clone()).or_default() -= amount;
        }
    }

    /// The larger of each amount.
    fn raise_to(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.others {
            let slot = self.others.entry(name.clone()).or_default();
            *slot = (*slot).max(*amount);
        }
    }
}

fn requests(container: &Container, with_defaults: bool) -> Resources {
    let list = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let mut amounts = list.map(Resources::from_list).unwrap_or_default();
    let has = |name: &str| list.is_some_and(|list| list.contains_key(name));
    if with_defaults && !has("cpu") {
        amounts.milli_cpu = DEFAULT_MILLI_CPU;
    }
    if with_defaults && !has("memory") {
        amounts.memory = DEFAULT_MEMORY;
    }
    amounts
}

/// What a pod takes from a node: its containers and sidecars together, or the most that its start needs if that is more,
/// and its overhead. `with_defaults` is for scoring.
pub(crate) fn of_pod(spec: &PodSpec, with_defaults: bool) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&requests(container, with_defaults));
    }
    let mut sidecars = Resources::default();
    let mut start = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut needs = requests(container, with_defaults);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&needs);
            needs = sidecars.clone();
        } else {
            needs.add(&sidecars);
        }
        start.raise_to(&needs);
    }
    running.add(&sidecars);
    running.raise_to(&start);
    // Requests of the pod as a whole stand in for those of its containers.
    if let Some(list) = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref())
    {
        let whole = Resources::from_list(list);
        if list.contains_key("cpu") {
            running.milli_cpu = whole.milli_cpu;
        }
        if list.contains_key("memory") {
            running.memory = whole.memory;
        }
    }
    if let Some(overhead) = &spec.overhead {
        running.add(&Resources::from_list(overhead));
    }
    running
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap_or_default()
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory, "example.com/gpu": "1"}}})
    }

    #[test]
    fn start_up_and_sidecars_count() {
        let mut sidecar = container("100m", "10Mi");
        sidecar["restartPolicy"] = json!("Always");
        let pod = spec(json!({
            "containers": [container("250m", "64Mi"), container("0.25", "64Mi")],
            "initContainers": [container("2", "16Mi"), sidecar, container("1", "300Mi")],
            "overhead": {"cpu": "10m"},
        }));
        let all = of_pod(&pod, false);
        // CPU: the first init container alone; memory: the last one together with the sidecar.
        assert_eq!((all.milli_cpu, all.memory), (2010, 310 << 20));
        assert_eq!(all.others["example.com/gpu"], 3);
    }

    #[test]
    fn pods_without_requests_count_for_scores_only() {
        let pod = spec(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(of_pod(&pod, false), Resources::default());
        let scored = of_pod(&pod, true);
        assert_eq!((scored.milli_cpu, scored.memory), (200, 400 << 20));
    }
}
