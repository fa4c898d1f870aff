//! What is wrong with a service.

use minato_meta::{FieldError, FieldErrors, names};
use serde_json::{Value, json};

use super::service::is_reachable_from_outside;
use crate::check::{
    Path, Report as _, SPEC, STATUS, Seen, cidr, ip, label_key, labels, non_special_ip, port_number_or_name,
};
use crate::tree::{Tree as _, texts};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const MOST_STICKY_SECONDS: i64 = 86_400;
/// The kubelet's port: a balancer in front of it would open the node.
const KUBELET_PORT: i64 = 10_250;
const ONCE_SET: &str = "may not change once set";

/// Checks a service.
pub(super) fn service(errors: &mut FieldErrors, object: &Value) {
    let (at, spec) = (SPEC, object.sub("spec"));
    errors.one_of_required(&at.field("type"), spec.text("type"), &TYPES);
    labels(errors, &at.field("selector"), spec.sub("selector"));
    by_type(errors, &at, spec);
    session_affinity(errors, &at, spec);
    ports(errors, &at, spec);
    cluster_addresses(errors, &at, spec);
    let list = at.field("externalIPs");
    for (index, address) in spec.list("externalIPs").iter().enumerate() {
        non_special_ip(errors, &list.index(index), address.as_text());
    }
    traffic(errors, &at, spec);
    load_balancer(errors, &at, spec);
}

fn is_headless(spec: &Value) -> bool {
    spec.text("clusterIP") == "None" || spec.list("clusterIPs").first().is_some_and(|ip| ip.as_text() == "None")
}

fn by_type(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let kind = spec.text("type");
    if spec.list("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&at.field("ports"), "");
    }
    if matches!(kind, "LoadBalancer" | "NodePort") && is_headless(spec) {
        errors.invalid(
            &at.field("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        );
    }
    if kind == "LoadBalancer" {
        let list = at.field("ports");
        for (index, port) in spec.list("ports").iter().enumerate() {
            if port.count("port") == KUBELET_PORT {
                errors.invalid(
                    &list.index(index),
                    KUBELET_PORT,
                    format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet"),
                );
            }
        }
    }
    if kind != "ExternalName" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.sub(field).is_blank() {
            errors.forbidden(&at.field(field), "may not be set for ExternalName services");
        }
    }
    let name = spec.text("externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    errors.named_required(&at.field("externalName"), name, names::dns1123_subdomain);
}

fn session_affinity(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let affinity = spec.text("sessionAffinity");
    errors.one_of_required(&at.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let config_at = at.field("sessionAffinityConfig");
    match affinity {
        "ClientIP" => {
            let client_at = config_at.field("clientIP");
            let seconds_at = client_at.field("timeoutSeconds");
            let seconds = spec.at("sessionAffinityConfig.clientIP.timeoutSeconds");
            match seconds.as_i64() {
                None => errors.required(&seconds_at, "when session affinity type is ClientIP"),
                Some(seconds) if !(1..=MOST_STICKY_SECONDS).contains(&seconds) => errors.invalid(
                    &seconds_at,
                    seconds,
                    format!("must be greater than 0 and less than {MOST_STICKY_SECONDS}"),
                ),
                Some(_) => {}
            }
        }
        "None" if spec.has("sessionAffinityConfig") => {
            errors.forbidden(&config_at, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn ports(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let list = at.field("ports");
    let ports = spec.list("ports");
    let (mut port_names, mut pairs, mut node_pairs) = (Seen::default(), Seen::default(), Seen::default());
    for (index, port) in ports.iter().enumerate() {
        let at = list.index(index);
        let (name, number, protocol) = (port.text("name"), port.count("port"), port.text("protocol"));
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&at.field("name"), "");
            }
        } else {
            errors.named(&at.field("name"), name, names::dns1123_label);
            port_names.note(errors, &at.field("name"), name);
        }
        errors.port(&at.field("port"), number);
        errors.one_of_required(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        port_number_or_name(errors, &at.field("targetPort"), port.sub("targetPort"));
        if port.has("appProtocol") {
            label_key(errors, &at.field("appProtocol"), port.text("appProtocol"));
        }
        if !pairs.add(&format!("{protocol}/{number}")) {
            errors.duplicate(&at, json!({"protocol": protocol, "port": number}));
        }
        let node = port.count("nodePort");
        if node == 0 {
            continue;
        }
        if spec.text("type") == "ClusterIP" {
            errors.forbidden(&at.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if !node_pairs.add(&format!("{protocol}/{node}")) {
            errors.duplicate(&at.field("nodePort"), node);
        }
    }
}

fn cluster_addresses(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let (list, addresses) = (at.field("clusterIPs"), texts(spec.list("clusterIPs")));
    let one = spec.text("clusterIP");
    if let Some(first) = addresses.first()
        && !one.is_empty()
        && *first != one
    {
        errors.invalid(&list, json!(addresses), "first value must match `clusterIP`");
    }
    if addresses.is_empty() && !one.is_empty() && one != "None" {
        ip(errors, &at.field("clusterIP"), one);
    }
    if addresses.len() > 2 {
        errors.invalid(&list, json!(addresses), "may only hold up to 2 values");
    }
    if addresses.len() > 1 && addresses.contains(&"None") {
        errors.invalid(&list, json!(addresses), "'None' must be the first and only value");
        return;
    }
    let mut families = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        if *address != "None" {
            families.extend(ip(errors, &list.index(index), address).map(|a| a.is_ipv4()));
        }
    }
    if families.len() == 2 && families.first() == families.last() {
        errors.invalid(
            &list,
            json!(addresses),
            "may specify no more than one IP for each IP family",
        );
    }
    let list = at.field("ipFamilies");
    let mut seen = Seen::default();
    for (index, family) in spec.list("ipFamilies").iter().enumerate() {
        let at = list.index(index);
        errors.one_of(&at, family.as_text(), &["IPv4", "IPv6"]);
        seen.note(errors, &at, family.as_text());
    }
    if spec.has("ipFamilyPolicy") {
        errors.one_of(
            &at.field("ipFamilyPolicy"),
            spec.text("ipFamilyPolicy"),
            &["SingleStack", "PreferDualStack", "RequireDualStack"],
        );
    }
}

fn traffic(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let (policy_at, policy) = (at.field("externalTrafficPolicy"), spec.text("externalTrafficPolicy"));
    if is_reachable_from_outside(spec) {
        errors.one_of_required(&policy_at, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.invalid(&policy_at, policy, "may only be set for externally-accessible services");
    }
    let (health_at, health) = (at.field("healthCheckNodePort"), spec.count("healthCheckNodePort"));
    if health < 0 {
        errors.port(&health_at, health);
    } else if health > 0 && !(spec.text("type") == "LoadBalancer" && policy == "Local") {
        errors.invalid(
            &health_at,
            health,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
    if spec.has("internalTrafficPolicy") {
        errors.one_of(
            &at.field("internalTrafficPolicy"),
            spec.text("internalTrafficPolicy"),
            &["Cluster", "Local"],
        );
    }
    if spec.has("trafficDistribution") {
        errors.one_of(
            &at.field("trafficDistribution"),
            spec.text("trafficDistribution"),
            &["PreferClose", "PreferSameZone", "PreferSameNode"],
        );
    }
}

fn load_balancer(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let balanced = spec.text("type") == "LoadBalancer";
    for field in [
        "loadBalancerSourceRanges",
        "loadBalancerClass",
        "allocateLoadBalancerNodePorts",
    ] {
        if !balanced && !spec.sub(field).is_blank() {
            errors.forbidden(&at.field(field), "may only be used when `type` is 'LoadBalancer'");
        }
    }
    let ranges_at = at.field("loadBalancerSourceRanges");
    for (index, range) in spec.list("loadBalancerSourceRanges").iter().enumerate() {
        cidr(errors, &ranges_at.index(index), range.as_text().trim());
    }
    if spec.has("loadBalancerClass") {
        label_key(errors, &at.field("loadBalancerClass"), spec.text("loadBalancerClass"));
    }
}

/// Checks a change of a service.
pub(super) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let at = &SPEC;
    let (new, old) = (new.sub("spec"), old.sub("spec"));
    let has_address = |spec: &Value| spec.text("type") != "ExternalName";
    if has_address(new) && has_address(old) {
        for field in ["clusterIPs", "ipFamilies"] {
            let (after, before) = (new.list(field).first(), old.list(field).first());
            if let (Some(after), Some(before)) = (after, before)
                && after != before
            {
                errors.invalid(&at.field(field).index(0), new.sub(field).clone(), ONCE_SET);
            }
        }
    }
    let balanced = |spec: &Value| spec.text("type") == "LoadBalancer";
    if balanced(new) && balanced(old) && new.sub("loadBalancerClass") != old.sub("loadBalancerClass") {
        errors.invalid(
            &at.field("loadBalancerClass"),
            new.sub("loadBalancerClass").clone(),
            ONCE_SET,
        );
    }
}

/// Checks what a load balancer reports of itself.
pub(super) fn load_balancer_status(errors: &mut FieldErrors, object: &Value) {
    let at = STATUS.field("loadBalancer");
    let ingresses = object.at("status.loadBalancer.ingress").as_list();
    if !ingresses.is_empty() && object.at("spec.type").as_text() != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            at.field("ingress").to_string(),
            "may only be used when `spec.type` is 'LoadBalancer'",
        ));
    }
    let list = at.field("ingress");
    for (index, ingress) in ingresses.iter().enumerate() {
        let at = list.index(index);
        let (address, host) = (ingress.text("ip"), ingress.text("hostname"));
        if !address.is_empty() {
            ip(errors, &at.field("ip"), address);
        }
        if !host.is_empty() {
            errors.named(&at.field("hostname"), host, names::dns1123_subdomain);
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.invalid(&at.field("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}
