//! The plan of one Service write.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use minato_meta::{ApiError, FieldError, FieldErrors, GroupKind};
use minato_storage::{Compare, Expect, ListRequest, Op, key::ALLOCATIONS};
use serde_json::{Map, Value, json};

use super::ports::{
    health_port, held, kind, may_have_node_ports, needs_health_port, needs_node_ports, number, ports, protocol,
};
use super::range::{Addresses, Offsets};
use crate::config::ServiceConfig;
use crate::endpoints::metadata;
use crate::endpoints::transaction::{Effects, store_error};
use crate::server::ApiServer;

/// Random picks before the allocator looks at everything that is taken.
const RANDOM_PICKS: usize = 8;

const HEADLESS: &str = "None";

/// Plans addresses and ports.
pub(super) async fn plan(
    server: &Arc<ApiServer>,
    config: &ServiceConfig,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Effects, ApiError> {
    normalize(new);
    let mut plan = Plan {
        server,
        config,
        held_keys: old.map(allocation_keys).unwrap_or_default(),
        wanted_keys: BTreeSet::new(),
        errors: FieldErrors::default(),
    };
    plan.addresses(new).await?;
    plan.node_ports(new).await?;
    plan.health_port(new).await?;
    if !plan.errors.is_empty() {
        let name = metadata::text(new, "name");
        return Err(ApiError::invalid(&GroupKind::new("", "Service"), name, plan.errors));
    }
    Ok(plan.effects(new))
}

/// Releases all that a Service holds.
pub(super) fn release(old: &Value) -> Effects {
    Effects {
        ops: allocation_keys(old).into_iter().map(|key| Op::Delete { key }).collect(),
        ..Effects::default()
    }
}

/// See [`super::inherit`].
pub(super) fn inherit(old: &Value, new: &mut Value) {
    let (needs_address, had_address) = (kind(new) != "ExternalName", kind(old) != "ExternalName");
    let old_ips = addresses(old);
    if needs_address && had_address {
        let sent = text(new, "clusterIP").to_owned();
        let sent_list = addresses(new);
        if sent.is_empty() && (sent_list.is_empty() || sent_list == old_ips) {
            set(new, "clusterIP", old.pointer("/spec/clusterIP").cloned());
            set(new, "clusterIPs", old.pointer("/spec/clusterIPs").cloned());
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new.pointer(&format!("/spec/{field}")).is_none() {
                set(new, field, old.pointer(&format!("/spec/{field}")).cloned());
            }
        }
    } else if !needs_address && had_address {
        // A type without addresses drops those that were allocated, unless the client insists on another.
        if text(new, "clusterIP") == text(old, "clusterIP") {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                set(new, field, None);
            }
        }
    }
    inherit_ports(old, new);
}

fn inherit_ports(old: &Value, new: &mut Value) {
    if needs_node_ports(new) && needs_node_ports(old) {
        let known: Vec<(String, u16, u16)> = ports(old)
            .iter()
            .map(|p| (protocol(p).to_owned(), number(p, "port"), number(p, "nodePort")))
            .collect();
        let mut used: BTreeSet<u16> = ports(new).iter().map(|p| number(p, "nodePort")).collect();
        for port in ports_mut(new) {
            if number(port, "nodePort") != 0 {
                continue;
            }
            let (protocol, number) = (protocol(port).to_owned(), number(port, "port"));
            let found = known
                .iter()
                .find(|(p, n, _)| *p == protocol && *n == number)
                .map(|(.., node)| *node);
            if let Some(node) = found.filter(|n| *n != 0 && !used.contains(n)) {
                port["nodePort"] = json!(node);
                used.insert(node);
            }
        }
    } else if !may_have_node_ports(new) && may_have_node_ports(old) {
        let before = held(old);
        for port in ports_mut(new) {
            if before.contains(&number(port, "nodePort"))
                && let Some(port) = port.as_object_mut()
            {
                port.remove("nodePort");
            }
        }
    }
    if needs_health_port(new) && needs_health_port(old) {
        if health_port(new) == 0 {
            set(
                new,
                "healthCheckNodePort",
                old.pointer("/spec/healthCheckNodePort").cloned(),
            );
        }
    } else if !needs_health_port(new) && health_port(new) == health_port(old) {
        set(new, "healthCheckNodePort", None);
    }
    if kind(new) != "LoadBalancer" && kind(old) == "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if new.pointer(&format!("/spec/{field}")) == old.pointer(&format!("/spec/{field}")) {
                set(new, field, None);
            }
        }
    }
    if !may_have_node_ports(new) && may_have_node_ports(old) {
        let same = text(new, "externalTrafficPolicy") == text(old, "externalTrafficPolicy");
        let external = new
            .pointer("/spec/externalIPs")
            .and_then(Value::as_array)
            .is_some_and(|e| !e.is_empty());
        if same && !external {
            set(new, "externalTrafficPolicy", None);
        }
    }
}

/// Makes `clusterIP` and `clusterIPs` agree where only one was given.
fn normalize(service: &mut Value) {
    let one = text(service, "clusterIP").to_owned();
    let many = addresses(service);
    if one.is_empty() {
        if let Some(first) = many.first() {
            set(service, "clusterIP", Some(json!(first)));
        }
    } else if many.is_empty() {
        set(service, "clusterIPs", Some(json!([one])));
    }
}

struct Plan<'a> {
    server: &'a Arc<ApiServer>,
    config: &'a ServiceConfig,
    held_keys: BTreeSet<String>,
    wanted_keys: BTreeSet<String>,
    errors: FieldErrors,
}

impl Plan<'_> {
    /// Families and addresses.
    async fn addresses(&mut self, service: &mut Value) -> Result<(), ApiError> {
        if kind(service) == "ExternalName" {
            return Ok(());
        }
        let headless = text(service, "clusterIP") == HEADLESS;
        let Some(families) = self.families(service, headless) else {
            return Ok(());
        };
        if headless {
            set(service, "clusterIPs", Some(json!([HEADLESS])));
            return Ok(());
        }
        let asked = addresses(service);
        let mut given = Vec::new();
        for (index, family) in families.iter().enumerate() {
            let Some(network) = self
                .config
                .cluster_ip_ranges
                .iter()
                .find(|n| family_of(n.addr()) == *family)
            else {
                continue;
            };
            let range = Addresses::new(*network);
            let address = match asked.get(index) {
                Some(asked_for) => self.asked_address(&range, asked_for, &asked).await?,
                None => Some(self.any_address(&range).await?),
            };
            if let Some(address) = address {
                self.wanted_keys.insert(address_key(address));
                given.push(address.to_string());
            }
        }
        if self.errors.is_empty() {
            set(service, "clusterIP", given.first().map(|a| json!(a)));
            set(service, "clusterIPs", Some(json!(given)));
        }
        Ok(())
    }

    /// The address families that the Service gets, primary first; also written into the Service.
    fn families(&mut self, service: &mut Value, headless: bool) -> Option<Vec<&'static str>> {
        let served: Vec<&'static str> = self
            .config
            .cluster_ip_ranges
            .iter()
            .map(|n| family_of(n.addr()))
            .collect();
        let asked = addresses(service);
        let mut families: Vec<&'static str> = strings(service.pointer("/spec/ipFamilies"))
            .iter()
            .filter_map(|f| ["IPv4", "IPv6"].into_iter().find(|k| k == f))
            .collect();
        if families.is_empty() {
            families = asked.iter().filter_map(|a| a.parse().ok()).map(family_of).collect();
        }
        let selectorless = service
            .pointer("/spec/selector")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty);
        let free_choice = headless && selectorless;
        let policy = match text(service, "ipFamilyPolicy") {
            "" if free_choice => "RequireDualStack",
            "" if families.len() > 1 || asked.len() > 1 => "RequireDualStack",
            "" => "SingleStack",
            "PreferDualStack" => "PreferDualStack",
            "RequireDualStack" => "RequireDualStack",
            _ => "SingleStack",
        };
        if families.is_empty() {
            families.extend(served.first());
        }
        let other = match families.first() {
            Some(&"IPv4") => "IPv6",
            _ => "IPv4",
        };
        let wants_two = policy != "SingleStack";
        if wants_two && families.len() == 1 && (served.contains(&other) || free_choice) {
            families.push(other);
        }
        if !free_choice {
            for (index, family) in families.iter().enumerate() {
                if !served.contains(family) {
                    self.errors.push(FieldError::invalid(
                        format!("spec.ipFamilies[{index}]"),
                        *family,
                        "not configured on this cluster",
                    ));
                }
            }
            if policy == "RequireDualStack" && families.len() < 2 {
                self.errors.push(FieldError::invalid(
                    "spec.ipFamilyPolicy",
                    policy,
                    "this cluster is not configured for dual-stack services",
                ));
            }
        }
        if policy == "SingleStack" && families.len() > 1 {
            self.errors.push(FieldError::invalid(
                "spec.ipFamilyPolicy",
                policy,
                "must be RequireDualStack or PreferDualStack when multiple IP families are specified",
            ));
        }
        if !self.errors.is_empty() {
            return None;
        }
        set(service, "ipFamilyPolicy", Some(json!(policy)));
        set(service, "ipFamilies", Some(json!(families)));
        Some(families)
    }

    async fn asked_address(
        &mut self,
        range: &Addresses,
        asked_for: &str,
        all: &[String],
    ) -> Result<Option<IpAddr>, ApiError> {
        let why = match asked_for.parse::<IpAddr>() {
            Err(_) => "must be a valid IP address".to_owned(),
            Ok(address) if !range.contains(address) => format!(
                "failed to allocate IP {asked_for}: the provided IP ({asked_for}) is not in the valid range. The range \
                 of valid IPs is {}",
                range.network
            ),
            Ok(address) if !self.is_free(&address_key(address)).await? => {
                format!("failed to allocate IP {asked_for}: provided IP is already allocated")
            }
            Ok(address) => return Ok(Some(address)),
        };
        self.errors
            .push(FieldError::invalid("spec.clusterIPs", json!(all), why));
        Ok(None)
    }

    async fn any_address(&self, range: &Addresses) -> Result<IpAddr, ApiError> {
        let key_at = |offset| address_key(range.at(offset));
        let found = self
            .any(&range.offsets, &key_at, &format!("{ALLOCATIONS}serviceips/"))
            .await?;
        found
            .map(|offset| range.at(offset))
            .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))
    }

    async fn node_ports(&mut self, service: &mut Value) -> Result<(), ApiError> {
        if kind(service) == "LoadBalancer" && service.pointer("/spec/allocateLoadBalancerNodePorts").is_none() {
            set(service, "allocateLoadBalancerNodePorts", Some(json!(true)));
        }
        let allocate = needs_node_ports(service);
        if !may_have_node_ports(service) {
            return Ok(());
        }
        for index in 0..ports(service).len() {
            let asked = number(&ports(service)[index], "nodePort");
            if asked != 0 {
                self.asked_port(asked, &format!("spec.ports[{index}].nodePort")).await?;
            }
        }
        for index in 0..ports(service).len() {
            if number(&ports(service)[index], "nodePort") != 0 || !allocate {
                continue;
            }
            let node_port = match twin(ports(service), index) {
                Some(shared) => shared,
                None => self.any_port().await?,
            };
            self.wanted_keys.insert(port_key(node_port));
            if let Some(port) = ports_mut(service).get_mut(index) {
                port["nodePort"] = json!(node_port);
            }
        }
        Ok(())
    }

    async fn health_port(&mut self, service: &mut Value) -> Result<(), ApiError> {
        if !needs_health_port(service) {
            return Ok(());
        }
        match health_port(service) {
            0 => {
                let port = self.any_port().await?;
                self.wanted_keys.insert(port_key(port));
                set(service, "healthCheckNodePort", Some(json!(port)));
                Ok(())
            }
            asked => self.asked_port(asked, "spec.healthCheckNodePort").await,
        }
    }

    async fn asked_port(&mut self, port: u16, field: &str) -> Result<(), ApiError> {
        let (first, last) = self.config.node_port_range;
        let key = port_key(port);
        let why = if !(first..=last).contains(&port) {
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
        } else if !self.is_free(&key).await? {
            "provided port is already allocated".to_owned()
        } else {
            self.wanted_keys.insert(key);
            return Ok(());
        };
        self.errors.push(FieldError::invalid(field, port, why));
        Ok(())
    }

    async fn any_port(&self) -> Result<u16, ApiError> {
        let (first, last) = self.config.node_port_range;
        let offsets = Offsets::new(u64::from(last.saturating_sub(first)) + 1, 32, 16, 128);
        let port_at = |offset: u64| first.saturating_add(u16::try_from(offset).unwrap_or(u16::MAX));
        let key_at = |offset| port_key(port_at(offset));
        let found = self.any(&offsets, &key_at, &format!("{ALLOCATIONS}nodeports/")).await?;
        found
            .map(port_at)
            .ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))
    }

    /// A free offset: by luck while the range is empty enough, by looking at all allocations otherwise.
    async fn any(
        &self,
        offsets: &Offsets,
        key_at: &(dyn Fn(u64) -> String + Sync),
        prefix: &str,
    ) -> Result<Option<u64>, ApiError> {
        for _ in 0..RANDOM_PICKS {
            let Some(offset) = offsets.random() else { break };
            let key = key_at(offset);
            if !self.wanted_keys.contains(&key) && self.is_absent(&key).await? {
                return Ok(Some(offset));
            }
        }
        let list = ListRequest {
            prefix: prefix.to_owned(),
            ..ListRequest::default()
        };
        let page = self.server.store.list(list).await.map_err(store_error)?;
        let taken: BTreeSet<String> = page.items.into_iter().map(|kv| kv.key).collect();
        let free = |offset: &u64| {
            let key = key_at(*offset);
            !taken.contains(&key) && !self.wanted_keys.contains(&key)
        };
        Ok(offsets.in_order().find(free))
    }

    async fn is_absent(&self, key: &str) -> Result<bool, ApiError> {
        let read = self.server.store.get(key).await.map_err(store_error)?;
        Ok(read.kv.is_none())
    }

    /// Whether this Service may have a key: it holds it, or nobody does.
    async fn is_free(&self, key: &str) -> Result<bool, ApiError> {
        Ok(self.held_keys.contains(key) || self.is_absent(key).await?)
    }

    /// Puts what is new, deletes what is no longer wanted.
    fn effects(&self, service: &Value) -> Effects {
        let mut effects = Effects::default();
        let owner = json!({
            "namespace": metadata::text(service, "namespace"),
            "name": metadata::text(service, "name"),
            "uid": metadata::text(service, "uid"),
        });
        for key in self.wanted_keys.difference(&self.held_keys) {
            effects.compare.push(Compare {
                key: key.clone(),
                expect: Expect::Absent,
            });
            effects.ops.push(Op::Put {
                key: key.clone(),
                value: Bytes::from(owner.to_string()),
                ttl: None,
            });
        }
        for key in self.held_keys.difference(&self.wanted_keys) {
            effects.ops.push(Op::Delete { key: key.clone() });
        }
        effects
    }
}

/// The node port of an entry with the same port number and another protocol: clients of both find one number.
fn twin(all: &[Value], index: usize) -> Option<u16> {
    let me = all.get(index)?;
    let same = |p: &&Value| number(p, "port") == number(me, "port") && protocol(p) != protocol(me);
    let shared = all
        .iter()
        .filter(same)
        .map(|p| number(p, "nodePort"))
        .find(|p| *p != 0)?;
    let clash = |p: &Value| number(p, "nodePort") == shared && protocol(p) == protocol(me);
    (!all.iter().any(clash)).then_some(shared)
}

/// Keys of all that a stored Service holds.
fn allocation_keys(service: &Value) -> BTreeSet<String> {
    let addresses = addresses(service);
    let addresses = addresses.iter().filter_map(|a| a.parse().ok()).map(address_key);
    addresses.chain(held(service).into_iter().map(port_key)).collect()
}

fn address_key(address: IpAddr) -> String {
    format!("{ALLOCATIONS}serviceips/{address}")
}

fn port_key(port: u16) -> String {
    format!("{ALLOCATIONS}nodeports/{port}")
}

fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn text<'v>(service: &'v Value, field: &str) -> &'v str {
    let spec = service.get("spec").and_then(|s| s.get(field));
    spec.and_then(Value::as_str).unwrap_or_default()
}

fn addresses(service: &Value) -> Vec<String> {
    let mut all = strings(service.pointer("/spec/clusterIPs"));
    let one = text(service, "clusterIP");
    if all.is_empty() && !one.is_empty() {
        all.push(one.to_owned());
    }
    all
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn ports_mut(service: &mut Value) -> &mut [Value] {
    service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

fn set(service: &mut Value, field: &str, value: Option<Value>) {
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        match value {
            Some(value) => spec.insert(field.to_owned(), value),
            None => spec.remove(field),
        };
    }
}
