//! Discovery: which groups, versions and resources are served, in the legacy and the aggregated (v2) form.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>. Both are built from the registry,
//! so that a kind is discoverable exactly while it is served.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use minato_meta::{ApiError, GroupVersion};
use minato_rules::{ResourceInfo, Subresource, Verb};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::registry::Registry;
use crate::request::ApiRequest;
use crate::response::{self, Response};

/// Media type of the aggregated form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers discovery paths; `None` for other paths.
pub(crate) fn handle(registry: &Registry, request: &ApiRequest) -> Option<Result<Response, ApiError>> {
    if request.method != http::Method::GET {
        return None;
    }
    let path = request.info.path.trim_matches('/');
    let segments: Vec<&str> = path.split('/').collect();
    let resources = registry.all();
    match segments.as_slice() {
        ["api"] if wants_aggregated(request) => Some(aggregated(&resources, true, request)),
        ["apis"] if wants_aggregated(request) => Some(aggregated(&resources, false, request)),
        ["api"] => Some(response::json(
            StatusCode::OK,
            &json!({
                "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
            }),
        )),
        ["apis"] => {
            let groups: Vec<Value> = groups(&resources).iter().map(|g| group(g, &resources)).collect();
            Some(response::json(
                StatusCode::OK,
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            ))
        }
        ["apis", name] if groups(&resources).iter().any(|g| g == name) => {
            let mut body = group(name, &resources);
            body["kind"] = json!("APIGroup");
            body["apiVersion"] = json!("v1");
            Some(response::json(StatusCode::OK, &body))
        }
        ["api", version] if registry.serves_version("", version) => Some(resource_list("", version, &resources)),
        ["apis", name, version] if !name.is_empty() && registry.serves_version(name, version) => {
            Some(resource_list(name, version, &resources))
        }
        _ => None,
    }
}

/// Media type parameters may come in any order.
fn wants_aggregated(request: &ApiRequest) -> bool {
    let accept = request.header("accept").unwrap_or_default();
    let first_match = accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next()?;
        let parameters: Vec<&str> = parts.collect();
        let aggregated = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
        if media == "application/json" && aggregated.iter().all(|p| parameters.contains(p)) {
            return Some(true);
        }
        (media == "*/*" || (media == "application/json" && !parameters.iter().any(|p| p.starts_with("as="))))
            .then_some(false)
    });
    first_match.unwrap_or(false)
}

/// Names of the non-core groups, in order of registration.
fn groups(resources: &[Arc<ResourceInfo>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for resource in resources.iter().filter(|r| !r.gvr.group.is_empty()) {
        if !names.contains(&resource.gvr.group) {
            names.push(resource.gvr.group.clone());
        }
    }
    names
}

/// A group's versions, the preferred one first: GA before beta before alpha, then higher numbers.
fn versions(group: &str, resources: &[Arc<ResourceInfo>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for resource in resources.iter().filter(|r| r.gvr.group == group) {
        if !all.contains(&resource.gvr.version) {
            all.push(resource.gvr.version.clone());
        }
    }
    all.sort_by_key(|v| std::cmp::Reverse(priority(v)));
    all
}

pub(crate) fn priority(version: &str) -> (u8, u32, u32) {
    let digits = |s: &str| s.parse::<u32>().unwrap_or(0);
    let rest = version.trim_start_matches('v');
    if let Some((major, minor)) = rest.split_once("beta") {
        (1, digits(major), digits(minor))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, digits(major), digits(minor))
    } else {
        (2, digits(rest), 0)
    }
}

fn group(name: &str, resources: &[Arc<ResourceInfo>]) -> Value {
    let versions: Vec<Value> = versions(name, resources)
        .iter()
        .map(|v| json!({"groupVersion": GroupVersion::new(name, v).to_string(), "version": v}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn verbs(verbs: &[Verb]) -> Vec<&'static str> {
    verbs
        .iter()
        .map(|verb| match verb {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        })
        .collect()
}

/// Tells clients when the stored form of a resource changed; opaque to them.
fn storage_hash(resource: &ResourceInfo) -> String {
    use base64::Engine;
    let text = format!(
        "{}/{}/{}",
        resource.storage.group, resource.storage_version, resource.gvk.kind
    );
    base64::engine::general_purpose::STANDARD.encode(&Sha256::digest(text.as_bytes())[..8])
}

fn resource_list(group: &str, version: &str, resources: &[Arc<ResourceInfo>]) -> Result<Response, ApiError> {
    let mut list = Vec::new();
    for resource in resources
        .iter()
        .filter(|r| r.gvr.group == group && r.gvr.version == version)
    {
        let mut entry = json!({
            "name": resource.gvr.resource, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.gvk.kind, "verbs": verbs(resource.verbs),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        if resource.verbs.contains(&Verb::List) {
            entry["storageVersionHash"] = json!(storage_hash(resource));
        }
        list.push(entry);
        list.extend(resource.subresources.iter().map(|sub| subresource(resource, sub)));
    }
    let body = json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": GroupVersion::new(group, version).to_string(), "resources": list,
    });
    response::json(StatusCode::OK, &body)
}

fn subresource(resource: &ResourceInfo, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.gvr.resource, sub.name), "singularName": "",
        "namespaced": resource.namespaced, "kind": resource.gvk.kind, "verbs": verbs(sub.verbs),
    });
    if let Some(kind) = &sub.kind {
        entry["kind"] = json!(kind.kind);
        entry["group"] = json!(kind.group);
        entry["version"] = json!(kind.version);
    }
    entry
}

fn aggregated(resources: &[Arc<ResourceInfo>], core: bool, request: &ApiRequest) -> Result<Response, ApiError> {
    let names = if core { vec![String::new()] } else { groups(resources) };
    let items: Vec<Value> = names
        .iter()
        .map(|name| {
            let versions: Vec<Value> = versions(name, resources)
                .iter()
                .map(|version| {
                    let of_version = resources
                        .iter()
                        .filter(|r| r.gvr.group == *name && r.gvr.version == *version);
                    let list: Vec<Value> = of_version.map(|r| aggregated_resource(r)).collect();
                    json!({"version": version, "resources": list, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let bytes = serde_json::to_vec(&body).map_err(ApiError::internal)?;
    let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02X}")).collect();
    let etag = format!("\"{hash}\"");
    let mut answer = if request.header("if-none-match") == Some(etag.as_str()) {
        let mut answer = Response::new(response::empty_body());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        response::with_type(StatusCode::OK, HeaderValue::from_static(AGGREGATED), bytes)
    };
    answer
        .headers_mut()
        .insert(header::ETAG, HeaderValue::from_str(&etag).map_err(ApiError::internal)?);
    answer
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(answer)
}

fn aggregated_resource(resource: &ResourceInfo) -> Value {
    let kind =
        |gvk: &minato_meta::GroupVersionKind| json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    let mut entry = json!({
        "resource": resource.gvr.resource,
        "responseKind": kind(&resource.gvk),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource.verbs),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subs: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            let response_kind = kind(sub.kind.as_ref().unwrap_or(&resource.gvk));
            json!({"subresource": sub.name, "responseKind": response_kind, "verbs": verbs(sub.verbs)})
        })
        .collect();
    if !subs.is_empty() {
        entry["subresources"] = json!(subs);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ga_comes_before_beta_and_higher_before_lower() {
        let mut versions = vec!["v1beta1", "v2alpha1", "v1", "v2", "v1beta2"];
        versions.sort_by_key(|v| std::cmp::Reverse(priority(v)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v2alpha1"]);
    }
}
