//! Reading a Service's node ports: which it holds, which it needs.

use serde_json::Value;

/// Whether a Service's type opens its ports on every node.
pub(super) fn needs_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

/// Whether a Service's type may have node ports, given or allocated.
pub(super) fn may_have_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Whether load balancers check a Service's health on a port of its own.
pub(super) fn needs_health_port(service: &Value) -> bool {
    kind(service) == "LoadBalancer"
        && service.pointer("/spec/externalTrafficPolicy").and_then(Value::as_str) == Some("Local")
}

/// The Service's type.
pub(super) fn kind(service: &Value) -> &str {
    service
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or("ClusterIP")
}

/// The ports of a Service.
pub(super) fn ports(service: &Value) -> &[Value] {
    service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A number of a port entry; zero when absent.
pub(super) fn number(port: &Value, field: &str) -> u16 {
    let number = port.get(field).and_then(Value::as_u64).unwrap_or(0);
    u16::try_from(number).unwrap_or(0)
}

/// The protocol of a port entry.
pub(super) fn protocol(port: &Value) -> &str {
    port.get("protocol").and_then(Value::as_str).unwrap_or("TCP")
}

/// The node ports that a stored Service holds, each once.
pub(super) fn held(service: &Value) -> Vec<u16> {
    let mut held: Vec<u16> = ports(service).iter().map(|p| number(p, "nodePort")).collect();
    held.push(health_port(service));
    held.retain(|p| *p != 0);
    held.sort_unstable();
    held.dedup();
    held
}

/// The health port; zero when absent.
pub(super) fn health_port(service: &Value) -> u16 {
    service
        .get("spec")
        .map_or(0, |spec| number(spec, "healthCheckNodePort"))
}
