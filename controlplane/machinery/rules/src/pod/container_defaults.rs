//! Defaults of containers: pull policy, ports, probes, handlers, environment.

use minato_meta::{Quantity, QuantityFormat};
use serde_json::{Value, json};

use crate::check::quantity;
use crate::tree::{Tree as _, each, fill, fill_zero, put, sub_mut};

/// Fills a container of any sort.
pub(super) fn container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        let policy = pull_policy(container.text("image"));
        put(container, "imagePullPolicy", policy);
    }
    fill_zero(container, "terminationMessagePath", "/dev/termination-log");
    fill_zero(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    for port in each(container, "ports") {
        fill_zero(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(source) = sub_mut(variable, "valueFrom") {
            value_source(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = sub_mut(container, name) {
            fill_probe(probe);
        }
    }
    if let Some(lifecycle) = sub_mut(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = sub_mut(lifecycle, name) {
                http_get(handler);
            }
        }
    }
    if let Some(resources) = sub_mut(container, "resources") {
        round_amounts(resources);
    }
}

/// Names the version of a field reference, and the divisor of a resource reference.
pub(super) fn value_source(source: &mut Value) {
    if let Some(reference) = sub_mut(source, "fieldRef") {
        fill_zero(reference, "apiVersion", "v1");
    }
    if let Some(reference) = sub_mut(source, "resourceFieldRef") {
        fill(reference, "divisor", "0");
    }
}

fn fill_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill_zero(probe, field, value);
    }
    http_get(probe);
    if let Some(grpc) = sub_mut(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = sub_mut(handler, "httpGet") {
        fill_zero(get, "path", "/");
        fill_zero(get, "scheme", "HTTP");
    }
}

/// An image that may change under its name is pulled every time.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(n, d)| (n, d));
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if digest.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

/// Requests that are not named are as large as the limits.
pub(super) fn requests_from_limits(container: &mut Value) {
    let Some(resources) = sub_mut(container, "resources") else {
        return;
    };
    let limits = resources.sub("limits").clone();
    if limits.is_blank() {
        return;
    }
    if let Some(requests) = crate::tree::ensure(resources, "requests") {
        for (name, limit) in limits.entries() {
            fill(requests, name, limit.clone());
        }
    }
}

/// What is finer than a thousandth is rounded up.
pub(super) fn round_amounts(resources: &mut Value) {
    for list in ["limits", "requests"] {
        let amounts = resources.get_mut(list).and_then(Value::as_object_mut);
        for amount in amounts.into_iter().flat_map(|map| map.values_mut()) {
            if let Some(exact) = quantity(amount)
                && exact.nano() % 1_000_000 != 0
            {
                *amount = json!(Quantity::from_milli(exact.milli(), QuantityFormat::DecimalSi).to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abcd", "IfNotPresent"),
            ("nginx:latest@sha256:abcd", "Always"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn amounts_are_rounded_up_to_thousandths() {
        let mut resources = json!({"limits": {"cpu": "100u", "memory": "1Gi"}});
        round_amounts(&mut resources);
        assert_eq!(resources, json!({"limits": {"cpu": "1m", "memory": "1Gi"}}));
    }
}
