//! Upstream's metric names for requests, one registry per server.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::request::ApiRequest;

/// Labels of `apiserver_request_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: String,
    code: u16,
}

/// Labels of `apiserver_request_duration_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: String,
}

/// The server's metrics. Other parts of the server register theirs through [`Metrics::register`].
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
}

/// Verbs of the API and methods of HTTP; anything else is the client's invention and shares one label.
fn verb(verb: &str) -> String {
    const KNOWN: &[&str] = &[
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "proxy",
        "post",
        "put",
        "head",
        "options",
    ];
    if KNOWN.contains(&verb) {
        verb.to_ascii_uppercase()
    } else {
        "OTHER".to_owned()
    }
}

const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

fn histogram() -> Histogram {
    Histogram::new(BUCKETS.iter().copied())
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let requests = Family::default();
        let durations = Family::new_with_constructor(histogram as fn() -> Histogram);
        let mut registry = Registry::default();
        registry.register(
            "apiserver_request",
            "Requests by verb, resource, scope and HTTP code",
            requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Latency of requests that are not long-running",
            durations.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            requests,
            durations,
        }
    }

    /// The labels of a request, code still open. Paths that name nothing served share one series.
    pub(crate) fn labels(&self, request: &ApiRequest) -> RequestLabels {
        let info = &request.info;
        let scope = match (info.is_resource, info.name.is_empty(), info.namespace.is_empty()) {
            (false, ..) => "",
            (true, false, _) => "resource",
            (true, true, false) => "namespace",
            (true, true, true) => "cluster",
        };
        RequestLabels {
            verb: verb(&info.verb),
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            scope: scope.to_owned(),
            code: 0,
        }
    }

    /// Books a finished request.
    pub(crate) fn observe(&self, mut labels: RequestLabels, status: StatusCode, took: Option<Duration>) {
        if status == StatusCode::NOT_FOUND || status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            // Refused paths are the client's choice of text: they must not grow the number of series.
            labels = RequestLabels {
                verb: labels.verb,
                group: String::new(),
                version: String::new(),
                resource: String::new(),
                subresource: String::new(),
                scope: labels.scope,
                code: 0,
            };
        }
        labels.code = status.as_u16();
        if let Some(took) = took {
            let labels = DurationLabels {
                verb: labels.verb.clone(),
                group: labels.group.clone(),
                version: labels.version.clone(),
                resource: labels.resource.clone(),
                subresource: labels.subresource.clone(),
                scope: labels.scope.clone(),
            };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
    }

    /// The text form.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry.lock()).is_err() {
            text.clear();
        }
        text
    }
}
