//! The verbs, written once over [`ResourceInfo`], and the dispatch to them.

pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod list_options;
pub(crate) mod managed;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod patch;
pub(crate) mod pipeline;
mod requester;
pub(crate) mod selection;
pub(crate) mod transaction;
pub(crate) mod update;
pub(crate) mod version;
pub(crate) mod view;
pub(crate) mod watch;

use std::sync::Arc;

use futures::future::BoxFuture;
use minato_meta::{ApiError, GroupVersionResource};
use minato_rules::{ResourceInfo, Verb};
pub(crate) use transaction::store_error;

use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// The built-in kinds.
pub(crate) fn builtin_resources() -> Vec<ResourceInfo> {
    minato_rules::builtin()
}

/// Where a request's object or collection lives.
#[derive(Clone)]
pub(crate) struct Target {
    /// The kind.
    pub(crate) resource: Arc<ResourceInfo>,
    /// Namespace of the path; `None` for cluster-scoped kinds and for collections over all namespaces.
    pub(crate) namespace: Option<String>,
    /// Name of the path; empty for collections.
    pub(crate) name: String,
    /// Subresource of the path; empty for none.
    pub(crate) subresource: String,
}

impl Target {
    /// Key of the object in the store.
    pub(crate) fn key(&self) -> String {
        self.key_of(&self.name)
    }

    /// Key of another object of the same kind and namespace.
    pub(crate) fn key_of(&self, name: &str) -> String {
        minato_storage::key::object_key(&self.resource.storage, self.namespace.as_deref(), name)
    }

    /// The same kind and namespace with another name.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// 404 for this object.
    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.gvr.group_resource(), &self.name)
    }
}

/// Answers a request that has passed the filters.
///
/// # Errors
/// What the client gets as a `Status`.
pub(crate) fn dispatch(server: &Arc<ApiServer>, request: ApiRequest) -> BoxFuture<'_, Result<Response, ApiError>> {
    Box::pin(route(server, request))
}

async fn route(server: &Arc<ApiServer>, mut request: ApiRequest) -> Result<Response, ApiError> {
    if !request.info.is_resource {
        if let Some(result) = crate::subresources::serve_tunnel(server, &mut request) {
            return result;
        }
        if let Some(result) = crate::health::handle(server, &request).await {
            return result;
        }
        if let Some(result) = openid(server, &request) {
            return result;
        }
        return crate::discovery::handle(&server.registry, &request)
            .or_else(|| crate::openapi::handle(&server.registry, &request))
            .unwrap_or_else(|| Err(ApiError::no_such_path()));
    }
    let info = &request.info;
    let gvr = GroupVersionResource::new(&info.group, &info.version, &info.resource);
    let resource = server.registry.get(&gvr).ok_or_else(ApiError::no_such_path)?;
    if let Some(warning) = resource.strategy.deprecation() {
        request.warnings.add(warning);
    }
    let target = target(resource, &request)?;
    if !target.subresource.is_empty() {
        return crate::subresources::dispatch(server, request, target).await;
    }
    if is_bindings(&target.resource) {
        if request.info.verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        let pods = GroupVersionResource::new("", "v1", "pods");
        let resource = server.registry.get(&pods).ok_or_else(ApiError::no_such_path)?;
        return crate::subresources::create_binding(server, request, Target { resource, ..target }).await;
    }
    if let Some(review) = crate::reviews::kind(&target.resource) {
        return crate::reviews::create(server, request, target, review).await;
    }
    main_resource(server, request, target).await
}

/// How others learn to verify service-account tokens; `None` for other paths.
fn openid(server: &ApiServer, request: &ApiRequest) -> Option<Result<Response, ApiError>> {
    let issuer = server.deps().token_issuer.as_ref();
    let (document, media_type) = match request.info.path.as_str() {
        "/.well-known/openid-configuration" => (issuer?.openid_configuration()?, "application/json"),
        "/openid/v1/jwks" => (issuer?.openid_keys()?, "application/jwk-set+json"),
        _ => return None,
    };
    if request.info.verb != "get" {
        return Some(Err(ApiError::method_not_allowed()));
    }
    let response = crate::response::json(http::StatusCode::OK, &document).map(|mut response| {
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
        headers.insert(
            http::header::CACHE_CONTROL,
            http::HeaderValue::from_static("public, max-age=3600"),
        );
        response
    });
    Some(response)
}

/// `bindings` is a way to write pods, not a collection.
fn is_bindings(resource: &ResourceInfo) -> bool {
    resource.gvr.group.is_empty() && resource.gvr.resource == "bindings"
}

fn target(resource: Arc<ResourceInfo>, request: &ApiRequest) -> Result<Target, ApiError> {
    let info = &request.info;
    let is_namespaces = info.resource == "namespaces" && info.group.is_empty();
    let namespace = (!info.namespace.is_empty() && !is_namespaces).then(|| info.namespace.clone());
    let inside_namespace = is_namespaces && !info.namespace.is_empty() && !info.name_in_path;
    if !resource.namespaced && (namespace.is_some() || inside_namespace) {
        return Err(ApiError::no_such_path());
    }
    let name = if info.name_in_path {
        info.name.clone()
    } else {
        String::new()
    };
    if resource.namespaced && namespace.is_none() && !name.is_empty() && info.verb != "watch" {
        return Err(ApiError::no_such_path());
    }
    Ok(Target {
        resource,
        namespace,
        name,
        subresource: info.subresource.clone(),
    })
}

async fn main_resource(server: &Arc<ApiServer>, request: ApiRequest, target: Target) -> Result<Response, ApiError> {
    let verbs = target.resource.verbs;
    let offers = |verb: Verb| {
        if verbs.contains(&verb) {
            Ok(())
        } else {
            Err(ApiError::method_not_allowed())
        }
    };
    if !request.info.is_read_only() {
        // Before anything is written: a client that cannot read the answer would not know what it did.
        crate::negotiate::accepted(&request)?;
    }
    match request.info.verb.as_str() {
        "get" => {
            offers(Verb::Get)?;
            get::get(server, request, target).await
        }
        "list" => {
            offers(Verb::List)?;
            list::list(server, request, target).await
        }
        "watch" => {
            offers(Verb::Watch)?;
            watch::watch(server, request, target).await
        }
        "create" if target.name.is_empty() => {
            offers(Verb::Create)?;
            create::create(server, request, target).await
        }
        "update" if !target.name.is_empty() => {
            offers(Verb::Update)?;
            update::update(server, request, target).await
        }
        "patch" if !target.name.is_empty() => {
            offers(Verb::Patch)?;
            patch::patch(server, request, target).await
        }
        "delete" => {
            offers(Verb::Delete)?;
            delete::delete(server, request, target).await
        }
        "deletecollection" => {
            offers(Verb::DeleteCollection)?;
            delete_collection::delete_collection(server, request, target).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}
