//! Names and ports of a pod in the network.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use super::Of;
use crate::check::{Path, Report as _, ip};
use crate::tree::Tree as _;

const MOST_NAMESERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_CHARACTERS: usize = 2048;

/// Checks what a pod spec says about the network.
pub(super) fn spec(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, of: Of) {
    errors.one_of_required(
        &at.field("dnsPolicy"),
        spec.text("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    dns(errors, &at.field("dnsConfig"), spec);
    host_aliases(errors, &at.field("hostAliases"), spec.list("hostAliases"));
    if spec.on("hostNetwork") {
        host_ports(errors, at, spec, of);
    }
}

/// On the node's network a container has the node's ports: they must be the same. A template may leave them out, since
/// its pods are filled.
fn host_ports(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, of: Of) {
    let list = at.field("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        let container_at = list.index(index);
        let ports = container_at.field("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let (host, inner) = (port.count("hostPort"), port.count("containerPort"));
            if (of == Of::Pod || host != 0) && host != inner {
                errors.invalid(
                    &ports.index(index).field("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn dns(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value) {
    let config = spec.sub("dnsConfig");
    let servers = config.list("nameservers");
    let servers_at = at.field("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if !spec.has("dnsConfig") {
            errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        } else if servers.is_empty() {
            errors.required(
                &servers_at,
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
        }
    }
    if servers.len() > MOST_NAMESERVERS {
        errors.invalid(
            &servers_at,
            servers.to_vec(),
            format!("must not have more than {MOST_NAMESERVERS} nameservers"),
        );
    }
    for (index, server) in servers.iter().enumerate() {
        ip(errors, &servers_at.index(index), server.as_text());
    }
    let (searches_at, searches) = (at.field("searches"), config.list("searches"));
    if searches.len() > MOST_SEARCHES {
        errors.invalid(
            &searches_at,
            searches.to_vec(),
            format!("must not have more than {MOST_SEARCHES} search paths"),
        );
    }
    let characters: usize = searches.iter().map(|s| s.as_text().len()).sum();
    if characters + searches.len().saturating_sub(1) > MOST_SEARCH_CHARACTERS {
        errors.invalid(
            &searches_at,
            searches.to_vec(),
            format!(
                "must not have more than {MOST_SEARCH_CHARACTERS} characters (including spaces) in the search list"
            ),
        );
    }
    for (index, search) in searches.iter().enumerate() {
        let text = search.as_text();
        // A single dot, and a dot at the end, are fine in a resolver's configuration.
        if text != "." {
            let trimmed = text.strip_suffix('.').unwrap_or(text);
            errors.named(&searches_at.index(index), trimmed, |t| {
                names::dns1123_subdomain(&t.replace('_', "a"))
            });
        }
    }
    let options = at.field("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

fn host_aliases(errors: &mut FieldErrors, list: &Path<'_>, aliases: &[Value]) {
    for (index, alias) in aliases.iter().enumerate() {
        let at = list.index(index);
        ip(errors, &at.field("ip"), alias.text("ip"));
        for host in alias.list("hostnames") {
            errors.named(&at.field("hostnames"), host.as_text(), names::dns1123_subdomain);
        }
    }
}
