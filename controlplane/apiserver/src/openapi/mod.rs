//! OpenAPI v3 documents, one per group version, built from the registry and the schema tables when asked for.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3>. Enough for `kubectl explain`, and for
//! kubectl to learn that the server validates fields and knows dry run. Version 2 is not served.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use http::{StatusCode, header};
use minato_meta::ApiError;
use minato_rules::{ResourceInfo, Verb};
use minato_schema::Dialect;
use minato_schema_docs::Package;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::registry::Registry;
use crate::request::ApiRequest;
use crate::response::{self, Response};

/// Answers OpenAPI paths; `None` for other paths.
pub(crate) fn handle(registry: &Registry, request: &ApiRequest) -> Option<Result<Response, ApiError>> {
    let path = request.info.path.trim_matches('/');
    let rest = path.strip_prefix("openapi/v3")?;
    if request.method != http::Method::GET {
        return Some(Err(ApiError::method_not_allowed()));
    }
    if only_other_types(request) {
        let message = "only application/json is served for OpenAPI v3";
        return Some(Err(ApiError::new(minato_meta::ErrorKind::NotAcceptable, message)));
    }
    let resources = registry.all();
    let by_path = group_versions(&resources);
    if rest.is_empty() {
        return Some(index(registry, &by_path));
    }
    let document = by_path.get(rest.trim_start_matches('/'))?;
    Some(response::json(StatusCode::OK, &document_of(registry, document)))
}

fn only_other_types(request: &ApiRequest) -> bool {
    let accept = request.header(header::ACCEPT.as_str()).unwrap_or_default();
    !accept.is_empty()
        && !accept.split(',').any(|r| {
            matches!(
                r.split(';').next().map(str::trim),
                Some("application/json" | "*/*" | "application/*")
            )
        })
}

type Resources = Vec<Arc<ResourceInfo>>;

/// The kinds of each group version, by the path of its document.
fn group_versions(resources: &[Arc<ResourceInfo>]) -> BTreeMap<String, Resources> {
    let mut by_path: BTreeMap<String, Resources> = BTreeMap::new();
    for resource in resources {
        by_path.entry(root(resource)).or_default().push(resource.clone());
    }
    by_path
}

fn root(resource: &ResourceInfo) -> String {
    let gvr = &resource.gvr;
    if gvr.group.is_empty() {
        format!("api/{}", gvr.version)
    } else {
        format!("apis/{}/{}", gvr.group, gvr.version)
    }
}

fn index(registry: &Registry, by_path: &BTreeMap<String, Resources>) -> Result<Response, ApiError> {
    let mut paths = serde_json::Map::new();
    for (path, resources) in by_path {
        // The documents follow from the served kinds and this build: so does their hash.
        let mut hash = Sha256::new();
        hash.update(env!("CARGO_PKG_VERSION"));
        for resource in resources {
            hash.update(format!(
                "{:?}{:?}{:?}",
                resource.gvk, resource.verbs, resource.subresources
            ));
            if let Some(document) = registry.document(&resource.gvr) {
                hash.update(document.to_string());
            }
        }
        let hash: String = hash.finalize().iter().map(|b| format!("{b:02X}")).collect();
        paths.insert(
            path.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
        );
    }
    response::json(StatusCode::OK, &json!({"paths": paths}))
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

fn document_of(registry: &Registry, resources: &Resources) -> Value {
    let mut definitions = BTreeSet::new();
    let mut paths = serde_json::Map::new();
    let mut own = Vec::new();
    for resource in resources {
        if let Some(document) = registry.document(&resource.gvr) {
            own.push((resource.definition.clone(), Value::clone(&document)));
            minato_schema::add_references(OBJECT_META, &mut definitions);
        }
        minato_schema::add_references(&resource.definition, &mut definitions);
        add_paths(resource, &mut paths);
    }
    let mut packages: HashMap<String, Option<Package>> = HashMap::new();
    for name in &definitions {
        let package = name.rsplit_once('.').map_or("", |(package, _)| package).to_owned();
        packages.entry(package).or_insert_with(|| Package::of(name));
    }
    let describe = |definition: &str, field: &str| {
        let package = packages.get(definition.rsplit_once('.')?.0)?.as_ref()?;
        let text = if field.is_empty() {
            package.definition(definition)
        } else {
            package.field(definition, field)
        };
        text.map(str::to_owned)
    };
    let schemas: serde_json::Map<String, Value> = definitions
        .iter()
        .filter_map(|name| {
            Some((
                name.clone(),
                minato_schema::openapi_definition(name, Dialect::V3, &describe)?,
            ))
        })
        .collect();
    let schemas: serde_json::Map<String, Value> = schemas.into_iter().chain(own).collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": minato_api::GIT_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The operations of a kind. Clients look up the kind, the action, and which parameters a write takes.
fn add_paths(resource: &ResourceInfo, paths: &mut serde_json::Map<String, Value>) {
    let base = if resource.namespaced {
        format!("/{}/namespaces/{{namespace}}/{}", root(resource), resource.gvr.resource)
    } else {
        format!("/{}/{}", root(resource), resource.gvr.resource)
    };
    let offers = |verb: Verb| resource.verbs.contains(&verb);
    let mut collection = serde_json::Map::new();
    let mut object = serde_json::Map::new();
    let mut add = |to_object: bool, verb: Verb, method: &str, action: &str| {
        if offers(verb) {
            let into = if to_object { &mut object } else { &mut collection };
            into.insert(method.to_owned(), operation(resource, action));
        }
    };
    add(false, Verb::List, "get", "list");
    add(false, Verb::Create, "post", "post");
    add(false, Verb::DeleteCollection, "delete", "deletecollection");
    add(true, Verb::Get, "get", "get");
    add(true, Verb::Update, "put", "put");
    add(true, Verb::Patch, "patch", "patch");
    add(true, Verb::Delete, "delete", "delete");
    if !object.is_empty() {
        paths.insert(format!("{base}/{{name}}"), Value::Object(object));
    }
    paths.insert(base, Value::Object(collection));
}

fn operation(resource: &ResourceInfo, action: &str) -> Value {
    let parameter = |name: &str, schema: &str| json!({"name": name, "in": "query", "schema": {"type": schema, "uniqueItems": true}});
    let mut parameters = Vec::new();
    if matches!(action, "post" | "put" | "patch") {
        parameters.extend(["dryRun", "fieldManager", "fieldValidation"].map(|name| parameter(name, "string")));
    }
    if action == "patch" {
        parameters.push(parameter("force", "boolean"));
    }
    let schema = json!({"$ref": format!("#/components/schemas/{}", resource.definition)});
    let mut operation = json!({
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind":
            {"group": resource.gvk.group, "version": resource.gvk.version, "kind": resource.gvk.kind},
    });
    if matches!(action, "post" | "put") {
        operation["requestBody"] = json!({"content": {"*/*": {"schema": schema}}});
    }
    operation
}
