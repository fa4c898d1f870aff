//! Which path does what.

use std::collections::BTreeMap;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use minato_api::k8s::core::v1::Pod;
use serde_json::{Value, json};

use super::streams::StreamKind;
use super::{Body, Refusal, Server, answer, full};

/// Values of a query by name; a name may come several times.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(decode(name)).or_default().push(decode(value));
        }
        Self(values)
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(|values| values.first())
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| matches!(value, "1" | "true" | "True" | "t" | "T" | "TRUE"))
    }
}

/// Undoes the escapes of a query or path; bytes that are not text are replaced.
pub(super) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match (bytes[at], digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn json_answer(value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value.to_string()));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

fn pod_list(pods: impl Iterator<Item = Value>) -> Response<Body> {
    let items: Vec<Value> = pods.collect();
    json_answer(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

impl Server {
    pub(super) async fn route(&self, request: Request<Incoming>) -> Response<Body> {
        let path: Vec<String> = request
            .uri()
            .path()
            .split('/')
            .filter(|p| !p.is_empty())
            .map(decode)
            .collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let get = request.method() == Method::GET;
        match path.as_slice() {
            ["pods"] if get => pod_list(
                self.workers
                    .pods()
                    .iter()
                    .filter_map(|pod| serde_json::to_value(&**pod).ok()),
            ),
            ["runningpods"] if get => self.running_pods().await,
            ["metrics"] if get => answer(StatusCode::OK, self.metrics.render()),
            ["stats", "summary"] if get => self.summary().await,
            ["containerLogs", namespace, pod, container] if get => {
                self.container_logs(namespace, pod, container, &query).await
            }
            ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
                self.stream(StreamKind::Exec, namespace, pod, container, &query, request)
                    .await
            }
            ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
                self.stream(StreamKind::Attach, namespace, pod, container, &query, request)
                    .await
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                self.stream(StreamKind::PortForward, namespace, pod, "", &query, request)
                    .await
            }
            ["run", namespace, pod, container] | ["run", namespace, pod, _, container]
                if request.method() == Method::POST =>
            {
                self.run_command(namespace, pod, container, &query).await
            }
            _ => answer(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn running_pods(&self) -> Response<Body> {
        let sandboxes = match self.context.cri.list_pod_sandboxes(Default::default()).await {
            Ok(sandboxes) => sandboxes,
            Err(error) => return answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let ready = sandboxes
            .into_iter()
            .filter(|s| s.state() == minato_cri::v1::PodSandboxState::SandboxReady);
        let pod = |sandbox: minato_cri::v1::PodSandbox| {
            let meta = sandbox.metadata?;
            let metadata = json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid});
            Some(json!({"metadata": metadata, "spec": {"containers": []}, "status": {}}))
        };
        pod_list(ready.filter_map(pod))
    }

    /// The pod of that name, or why there is none.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Result<std::sync::Arc<Pod>, Refusal> {
        let found = self.workers.find(namespace, name);
        found.ok_or_else(|| {
            let text = format!("pod \"{name}\" does not exist in namespace \"{namespace}\"");
            Refusal(StatusCode::NOT_FOUND, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("command=echo&command=a%20b%2B+c&tty=1&bad=%zz");
        assert_eq!(query.all("command"), ["echo", "a b+ c"]);
        assert!(query.is_set("tty") && !query.is_set("input"));
        assert_eq!(query.get("bad"), Some("%zz"));
    }
}
