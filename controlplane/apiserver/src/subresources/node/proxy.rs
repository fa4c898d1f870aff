//! `pods/proxy`, `services/proxy` and `nodes/proxy`: HTTP requests to what runs in the cluster.
//!
//! Source: <https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/#discovering-builtin-services>.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use minato_meta::{ApiError, ErrorKind, GroupVersionResource};
use minato_storage::ListRequest;
use minato_streams::Target as Destination;
use serde_json::{Value, json};

use super::upgrade::{self, Answer, ClientUpgrade};
use super::{admit, backend, pod};
use crate::endpoints::{Target, store_error};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::{ApiServer, ConnectionInfo};

/// Headers that are about one connection and not about the message. Source: RFC 9110 §7.6.1.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Where kubelets listen, when the Node does not say.
const KUBELET_PORT: u16 = 10250;

/// Passes a request on to a pod, service or node.
///
/// # Errors
/// 400 for names and addresses that cannot be meant, 404 for absent objects, 503 for what cannot be reached.
pub(super) async fn handle(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    target: Target,
) -> Result<Response, ApiError> {
    let (rest, options_kind) = match target.resource.gvr.resource.as_str() {
        "pods" => (after_segments(request.uri.path(), 7), "PodProxyOptions"),
        "services" => (after_segments(request.uri.path(), 7), "ServiceProxyOptions"),
        "nodes" => (after_segments(request.uri.path(), 5), "NodeProxyOptions"),
        _ => return Err(ApiError::no_such_path()),
    };
    let rest = rest.to_owned();
    admit(server, &request, &target, options_kind, json!({"path": rest})).await?;
    if rest.is_empty() && matches!(request.method, Method::GET | Method::HEAD) && !upgrade::is_upgrade(&request.headers)
    {
        return redirect_to_slash(&request);
    }
    let name = SchemedName::parse(&target)?;
    let object = Target {
        name: name.name.clone(),
        ..target.clone()
    };
    let place = match target.resource.gvr.resource.as_str() {
        "pods" => pod_place(&pod::read(server, &object).await?, &name)?,
        "services" => service_place(server, &pod::read(server, &object).await?, &object, &name).await?,
        _ => node_place(&pod::read(server, &object).await?, &name)?,
    };
    let prefix_length = request.uri.path().len() - rest.len();
    let prefix = request.uri.path()[..prefix_length].to_owned();
    let host = place.host();
    let mut requests = match &place {
        Place::Kubelet { node } => backend::kubelet(server, node).await?,
        Place::Address { destination, host, tls } => backend::address(server, destination, host, *tls).await?,
    };
    let mut passed = http::Request::new(request.take_body());
    *passed.method_mut() = request.method.clone();
    *passed.uri_mut() = backend_uri(&rest, request.uri.query())?;
    *passed.headers_mut() = forwarded_headers(&request, &host)?;
    if upgrade::is_upgrade(&request.headers) {
        return pass_upgrade(server, request, requests, passed).await;
    }
    let mut answer = backend::send(&mut requests, passed, None).await?;
    strip(answer.headers_mut());
    rewrite_location(answer.headers_mut(), &prefix, &host);
    Ok(answer.map(|body| backend::until_stopped(server, body)))
}

async fn pass_upgrade(
    server: &Arc<ApiServer>,
    mut request: ApiRequest,
    mut requests: backend::Requests,
    mut passed: http::Request<response::Body>,
) -> Result<Response, ApiError> {
    for name in [header::CONNECTION, header::UPGRADE] {
        for value in request.headers.get_all(&name) {
            passed.headers_mut().append(name.clone(), value.clone());
        }
    }
    let protocol = request.header("upgrade").unwrap_or_default().to_owned();
    let client = ClientUpgrade::take(&mut request)?;
    match upgrade::settle(backend::ask(&mut requests, passed).await?).await? {
        Answer::Refused(response) => Ok(response),
        Answer::Switched(stream, headers) => {
            let response = upgrade::pass_on(&protocol, &headers)?;
            client.run(server, |connection| minato_streams::relay(connection, stream));
            Ok(response)
        }
    }
}

/// What follows the first `count` segments of a path, as the client wrote it.
fn after_segments(path: &str, count: usize) -> &str {
    let mut rest = path;
    for _ in 0..count {
        rest = rest.trim_start_matches('/');
        match rest.find('/') {
            Some(end) => rest = &rest[end..],
            None => return "",
        }
    }
    rest
}

/// Pages with relative links need a base that ends in a slash.
fn redirect_to_slash(request: &ApiRequest) -> Result<Response, ApiError> {
    let mut location = format!("{}/", request.uri.path());
    if let Some(query) = request.uri.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = response::text(StatusCode::MOVED_PERMANENTLY, "");
    let location = HeaderValue::from_str(&location).map_err(|_| ApiError::bad_request("not a path"))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// `name`, `name:port`, `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct SchemedName {
    https: bool,
    name: String,
    port: String,
}

impl SchemedName {
    fn parse(target: &Target) -> Result<Self, ApiError> {
        let text = &target.name;
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            let singular = target.resource.gvr.resource.trim_end_matches('s');
            return Err(ApiError::bad_request(format!("invalid {singular} request {text:?}")));
        }
        Ok(Self {
            https: scheme == "https",
            name: name.to_owned(),
            port: port.to_owned(),
        })
    }

    fn default_port(&self) -> u16 {
        if self.https { 443 } else { 80 }
    }

    /// The port as a number; `None` when none is given.
    fn port_number(&self) -> Result<Option<u16>, ApiError> {
        if self.port.is_empty() {
            return Ok(None);
        }
        let number = self.port.parse().ok().filter(|p| *p > 0);
        number
            .map(Some)
            .ok_or_else(|| ApiError::bad_request(format!("invalid port {:?}", self.port)))
    }
}

/// Where a request goes.
enum Place {
    Kubelet {
        node: String,
    },
    Address {
        destination: Destination,
        host: String,
        tls: bool,
    },
}

impl Place {
    fn host(&self) -> String {
        let with_port = |host: &str, port: u16| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        match self {
            Self::Kubelet { node } => node.clone(),
            Self::Address { destination, host, .. } => match destination {
                Destination::Address { port, .. } | Destination::From { port, .. } => with_port(host, *port),
                Destination::Kubelet { node } => node.clone(),
            },
        }
    }
}

fn pod_place(pod: &Value, name: &SchemedName) -> Result<Place, ApiError> {
    let first_port = || {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let mut ports = containers
            .into_iter()
            .flatten()
            .filter_map(|c| c.pointer("/ports/0/containerPort"));
        ports.next().and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok())
    };
    let port = name.port_number()?.or_else(first_port).unwrap_or(name.default_port());
    let host = text(pod, "/status/podIP").to_owned();
    check_address(&host)?;
    let destination = match pod::node_of(pod) {
        "" => Destination::Address {
            host: host.clone(),
            port,
        },
        node => Destination::From {
            node: node.to_owned(),
            host: host.clone(),
            port,
        },
    };
    Ok(Place::Address {
        destination,
        host,
        tls: name.https,
    })
}

fn node_place(node: &Value, name: &SchemedName) -> Result<Place, ApiError> {
    let own = node
        .pointer("/status/daemonEndpoints/kubeletEndpoint/Port")
        .and_then(Value::as_u64);
    let kubelet_port = own
        .and_then(|p| u16::try_from(p).ok())
        .filter(|p| *p > 0)
        .unwrap_or(KUBELET_PORT);
    let port = name.port_number()?;
    if port.is_none_or(|p| p == kubelet_port) {
        return Ok(Place::Kubelet {
            node: name.name.clone(),
        });
    }
    let host = backend::addresses(node)
        .find(|a| a.parse::<IpAddr>().is_ok())
        .unwrap_or_default();
    check_address(host)?;
    let port = port.unwrap_or(kubelet_port);
    Ok(Place::Address {
        destination: Destination::From {
            node: name.name.clone(),
            host: host.to_owned(),
            port,
        },
        host: host.to_owned(),
        tls: name.https,
    })
}

/// One of the ready endpoints of a service.
async fn service_place(
    server: &Arc<ApiServer>,
    service: &Value,
    target: &Target,
    name: &SchemedName,
) -> Result<Place, ApiError> {
    let unavailable = |text: String| ApiError::new(ErrorKind::ServiceUnavailable, text);
    let ports = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let port_name = match name.port.as_str() {
        // Without a port, the service's only one.
        "" => ports.first().map(|p| text(p, "/name")),
        wanted => {
            let number: Option<u64> = wanted.parse().ok();
            let matches = |p: &&Value| text(p, "/name") == wanted || number.is_some() && p["port"].as_u64() == number;
            ports.iter().find(matches).map(|p| text(p, "/name"))
        }
    };
    let port_name = port_name.ok_or_else(|| {
        unavailable(format!(
            "no service port {:?} found for service {:?}",
            name.port, name.name
        ))
    })?;
    let mut ready = Vec::new();
    for slice in slices(server, target).await? {
        let slice_ports = slice.get("ports").and_then(Value::as_array);
        let port = slice_ports
            .into_iter()
            .flatten()
            .find(|p| text(p, "/name") == port_name);
        let Some(port) = port
            .and_then(|p| p["port"].as_u64())
            .and_then(|p| u16::try_from(p).ok())
        else {
            continue;
        };
        let endpoints = slice.get("endpoints").and_then(Value::as_array);
        for endpoint in endpoints.into_iter().flatten() {
            // Absent means ready.
            if endpoint.pointer("/conditions/ready") != Some(&json!(false)) {
                ready.push((text(endpoint, "/addresses/0").to_owned(), port));
            }
        }
    }
    if ready.is_empty() {
        return Err(unavailable(format!(
            "no endpoints available for service {:?}",
            name.name
        )));
    }
    let (host, port) = ready.swap_remove(rand::random_range(0..ready.len()));
    check_address(&host)?;
    let destination = Destination::Address {
        host: host.clone(),
        port,
    };
    Ok(Place::Address {
        destination,
        host,
        tls: name.https,
    })
}

async fn slices(server: &Arc<ApiServer>, target: &Target) -> Result<Vec<Value>, ApiError> {
    let gvr = GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices");
    let resource = server.registry.get(&gvr).ok_or_else(ApiError::no_such_path)?;
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let list = ListRequest {
        prefix: minato_storage::key::namespace_prefix(&resource.storage, namespace),
        ..ListRequest::default()
    };
    let mut found = Vec::new();
    for kv in server.store.list(list).await.map_err(store_error)?.items {
        let slice = minato_storage::object::decode(&kv.value, kv.mod_revision).map_err(ApiError::internal)?;
        let labels = slice.pointer("/metadata/labels");
        if labels.and_then(|l| l.get(SERVICE_NAME)).and_then(Value::as_str) == Some(&target.name) {
            found.push(slice);
        }
    }
    Ok(found)
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Status fields are written by tenants; a pod that claims the node's loopback or the cloud's metadata address is not
/// believed.
fn check_address(host: &str) -> Result<(), ApiError> {
    let refused = || ApiError::bad_request("address not allowed");
    let address = host.parse::<IpAddr>().map_err(|_| refused())?.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        return Err(refused());
    }
    Ok(())
}

fn backend_uri(rest: &str, query: Option<&str>) -> Result<Uri, ApiError> {
    let path = if rest.is_empty() { "/" } else { rest };
    let text = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let path = PathAndQuery::try_from(text).map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Uri::from(path))
}

fn forwarded_headers(request: &ApiRequest, host: &str) -> Result<HeaderMap, ApiError> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| ApiError::bad_request("not a header value"));
    let mut headers = request.headers.clone();
    if let Some(own) = request.header("host") {
        headers.insert(HeaderName::from_static("x-forwarded-host"), value(own)?);
    }
    headers.insert(HeaderName::from_static("x-forwarded-uri"), value(request.uri.path())?);
    headers.insert(
        HeaderName::from_static("x-forwarded-proto"),
        HeaderValue::from_static("https"),
    );
    if let Some(peer) = request.extensions.get::<ConnectionInfo>().and_then(|c| c.peer) {
        let before = request
            .header("x-forwarded-for")
            .map(|f| format!("{f}, "))
            .unwrap_or_default();
        let all = value(&format!("{before}{}", peer.ip()))?;
        headers.insert(HeaderName::from_static("x-forwarded-for"), all);
    }
    strip(&mut headers);
    headers.remove(header::AUTHORIZATION);
    headers.insert(header::HOST, value(host)?);
    Ok(headers)
}

/// Removes what is about one connection, including what `Connection` names.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<String> = upgrade::tokens(headers, &header::CONNECTION)
        .map(str::to_ascii_lowercase)
        .collect();
    for name in HOP_BY_HOP.iter().copied().chain(named.iter().map(String::as_str)) {
        headers.remove(name);
    }
}

/// Redirects within the backend stay within the proxy.
fn rewrite_location(headers: &mut HeaderMap, prefix: &str, host: &str) {
    let Some(location) = headers.get(header::LOCATION).and_then(|v| v.to_str().ok()) else {
        return;
    };
    let Ok(uri) = location.parse::<Uri>() else { return };
    let is_own = uri.authority().is_none_or(|a| a.as_str() == host);
    let path = uri.path_and_query().map(PathAndQuery::as_str).unwrap_or_default();
    if is_own
        && path.starts_with('/')
        && let Ok(value) = HeaderValue::from_str(&format!("{prefix}{path}"))
    {
        headers.insert(header::LOCATION, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_path_is_kept_as_written() {
        for (path, rest) in [
            ("/api/v1/namespaces/a/pods/p/proxy", ""),
            ("/api/v1/namespaces/a/pods/p/proxy/", "/"),
            ("/api/v1/namespaces/a/pods/p/proxy/a%2Fb//c/", "/a%2Fb//c/"),
        ] {
            assert_eq!(after_segments(path, 7), rest);
        }
    }

    #[test]
    fn redirects_stay_in_the_proxy() {
        let rewritten = |location: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(location));
            rewrite_location(&mut headers, "/p/proxy", "10.0.0.1:80");
            headers[header::LOCATION].to_str().unwrap().to_owned()
        };
        assert_eq!(rewritten("/login?x=1"), "/p/proxy/login?x=1");
        assert_eq!(rewritten("http://10.0.0.1:80/a"), "/p/proxy/a");
        assert_eq!(rewritten("https://example.com/a"), "https://example.com/a");
    }

    #[test]
    fn connection_headers_do_not_travel() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-Mine, close"),
            ("x-mine", "1"),
            ("te", "x"),
            ("accept", "a"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn nobody_is_sent_to_the_node_itself() {
        for bad in [
            "",
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "0.0.0.0",
            "localhost",
            "::ffff:127.0.0.1",
        ] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
        assert!(check_address("10.1.2.3").is_ok());
    }
}
