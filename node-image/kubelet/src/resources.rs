//! Requests and limits as the kernel takes them: shares, quotas, bytes, OOM scores. Pure.
//!
//! Source: <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/>,
//! <https://kubernetes.io/docs/tasks/configure-pod-container/quality-service-pod/>.

use minato_api::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use minato_api::k8s::core::v1::{Container, Pod, PodSpec};
use minato_cri::v1::LinuxContainerResources;
use minato_meta::Quantity;

use crate::node::Capacity;

/// Microseconds of one scheduling period.
pub(crate) const CPU_PERIOD: i64 = 100_000;
/// Smallest share and quota that the kernel takes.
const MIN_SHARES: i64 = 2;
const MIN_QUOTA: i64 = 1000;

/// Class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// A quantity in thousandths of its unit; values that cannot be read count as nothing.
pub(crate) fn milli(quantity: &ApiQuantity) -> i64 {
    quantity.0.parse::<Quantity>().map_or(0, |q| q.milli())
}

/// A quantity in whole units, rounded up.
pub(crate) fn units(quantity: &ApiQuantity) -> i64 {
    quantity.0.parse::<Quantity>().map_or(0, |q| q.units())
}

fn limit<'a>(container: &'a Container, name: &str) -> Option<&'a ApiQuantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(name)
}

/// A container's request, or its limit where it requests nothing.
pub(crate) fn request<'a>(container: &'a Container, name: &str) -> Option<&'a ApiQuantity> {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    requests.and_then(|r| r.get(name)).or_else(|| limit(container, name))
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// The class of a pod: what its status says, else computed.
pub(crate) fn qos(pod: &Pod) -> Qos {
    match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
        Some("Guaranteed") => return Qos::Guaranteed,
        Some("Burstable") => return Qos::Burstable,
        Some("BestEffort") => return Qos::BestEffort,
        _ => {}
    }
    let Some(spec) = &pod.spec else { return Qos::BestEffort };
    let mut any = false;
    let mut guaranteed = true;
    for container in all_containers(spec) {
        for name in ["cpu", "memory"] {
            let (request, limit) = (request(container, name), limit(container, name));
            any |= request.is_some_and(|q| milli(q) > 0) || limit.is_some_and(|q| milli(q) > 0);
            guaranteed &= limit.is_some_and(|l| request.map(milli) == Some(milli(l)) && milli(l) > 0);
        }
    }
    match (any, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).max(MIN_SHARES)
}

fn quota(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(CPU_PERIOD) / 1000).max(MIN_QUOTA)
}

/// How early the kernel kills the container when memory runs out, -1000 (never) to 1000 (first).
fn oom_score(pod: &Pod, container: &Container, capacity: &Capacity) -> i64 {
    let critical = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority)
        .is_some_and(|p| p >= 2_000_000_000);
    if critical {
        return -997;
    }
    match qos(pod) {
        Qos::Guaranteed => -997,
        Qos::BestEffort => 1000,
        Qos::Burstable => {
            let request = request(container, "memory").map_or(0, units);
            let part = i128::from(request) * 1000 / i128::from(capacity.memory.max(1));
            // Above guaranteed pods, below those that ask for nothing.
            i64::try_from(1000 - part).unwrap_or(3).clamp(3, 999)
        }
    }
}

/// A container's resources, as the runtime takes them.
pub(crate) fn container(
    pod: &Pod,
    container: &Container,
    capacity: &Capacity,
    enforce_cpu: bool,
) -> LinuxContainerResources {
    let cpu_limit = limit(container, "cpu").map(milli).filter(|m| *m > 0 && enforce_cpu);
    LinuxContainerResources {
        cpu_period: CPU_PERIOD,
        cpu_quota: cpu_limit.map_or(0, quota),
        cpu_shares: shares(request(container, "cpu").map_or(0, milli)),
        memory_limit_in_bytes: limit(container, "memory").map_or(0, units),
        oom_score_adj: oom_score(pod, container, capacity),
        ..LinuxContainerResources::default()
    }
}

/// Bounds of a whole pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodBounds {
    pub(crate) shares: i64,
    /// Microseconds in each [`CPU_PERIOD`], when every container has a limit.
    pub(crate) quota: Option<i64>,
    /// Bytes, when every container has a limit.
    pub(crate) memory: Option<i64>,
}

/// What a pod as a whole asks for: the greater of its containers together and what it needs while it initializes.
pub(crate) fn pod_request(spec: &PodSpec, name: &str, of: fn(&ApiQuantity) -> i64) -> i64 {
    let sum = total(spec, |container| request(container, name).map_or(0, of));
    let overhead = spec.overhead.as_ref().and_then(|o| o.get(name)).map_or(0, of);
    sum.saturating_add(overhead)
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn total(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> i64 {
    let (mut sidecars, mut peak) = (0_i64, 0_i64);
    for init in spec.init_containers.iter().flatten() {
        if is_sidecar(init) {
            sidecars = sidecars.saturating_add(of(init));
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars.saturating_add(of(init)));
        }
    }
    let main = spec
        .containers
        .iter()
        .fold(sidecars, |sum, c| sum.saturating_add(of(c)));
    main.max(peak)
}

/// The bounds of a pod's cgroup.
pub(crate) fn pod(pod: &Pod, enforce_cpu: bool) -> PodBounds {
    let Some(spec) = &pod.spec else {
        return PodBounds {
            shares: MIN_SHARES,
            quota: None,
            memory: None,
        };
    };
    let bounded = |name| all_containers(spec).all(|c| limit(c, name).is_some_and(|q| milli(q) > 0));
    let cpu = total(spec, |c| limit(c, "cpu").map_or(0, milli));
    let memory = total(spec, |c| limit(c, "memory").map_or(0, units));
    PodBounds {
        shares: shares(pod_request(spec, "cpu", milli)),
        quota: (enforce_cpu && bounded("cpu")).then(|| quota(cpu)),
        memory: bounded("memory").then_some(memory),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod_of(containers: serde_json::Value, init: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": containers, "initContainers": init}})).unwrap()
    }

    const CAPACITY: Capacity = Capacity {
        milli_cpu: 2000,
        memory: 4_000_000_000,
        storage: 0,
        pods: 110,
    };

    #[test]
    fn classes_follow_requests_and_limits() {
        let none = pod_of(json!([{"name": "a"}]), json!([]));
        assert_eq!(qos(&none), Qos::BestEffort);
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let full = pod_of(json!([{"name": "a", "resources": limits}]), json!([]));
        assert_eq!(qos(&full), Qos::Guaranteed);
        let half = pod_of(json!([{"name": "a", "resources": limits}, {"name": "b"}]), json!([]));
        assert_eq!(qos(&half), Qos::Burstable);
    }

    #[test]
    fn kernel_values_are_upstreams() {
        let resources = json!({"requests": {"cpu": "250m", "memory": "1G"}, "limits": {"cpu": "500m", "memory": "2G"}});
        let burstable = pod_of(json!([{"name": "a", "resources": resources}]), json!([]));
        let container = &burstable.spec.as_ref().unwrap().containers[0];
        let got = super::container(&burstable, container, &CAPACITY, true);
        assert_eq!(
            (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes),
            (256, 50_000, 2_000_000_000)
        );
        // A quarter of the memory is requested: 1000 - 250.
        assert_eq!(got.oom_score_adj, 750);
        let unbounded = super::container(&burstable, container, &CAPACITY, false);
        assert_eq!(unbounded.cpu_quota, 0);
    }

    #[test]
    fn a_pod_needs_the_peak_of_its_initialization() {
        let cpu = |m: &str| json!({"requests": {"cpu": m}});
        let pod = pod_of(
            json!([{"name": "a", "resources": cpu("100m")}]),
            json!([
                {"name": "s", "restartPolicy": "Always", "resources": cpu("50m")},
                {"name": "i", "resources": cpu("400m")},
            ]),
        );
        assert_eq!(pod_request(pod.spec.as_ref().unwrap(), "cpu", milli), 450);
        assert_eq!(super::pod(&pod, true).shares, 460);
        assert_eq!(super::pod(&pod, true).memory, None);
    }
}
