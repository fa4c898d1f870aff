//! `/stats/summary`: what the node's pods use, as far as the runtime tells.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use minato_cri::v1::ContainerStats;
use serde_json::{Value, json};

use super::{Body, Server, answer, full};
use crate::pods::keys;

fn time(nanoseconds: i64) -> Value {
    jiff::Timestamp::from_nanosecond(nanoseconds.into()).map_or(Value::Null, |at| json!(at.to_string()))
}

fn of_container(stats: &ContainerStats) -> Value {
    let name = stats
        .attributes
        .as_ref()
        .and_then(|a| a.labels.get(keys::CONTAINER_NAME))
        .cloned();
    let number = |value: &Option<minato_cri::v1::UInt64Value>| value.as_ref().map_or(0, |v| v.value);
    let cpu = stats
        .cpu
        .as_ref()
        .map(|cpu| json!({"time": time(cpu.timestamp), "usageCoreNanoSeconds": number(&cpu.usage_core_nano_seconds)}));
    let memory = stats
        .memory
        .as_ref()
        .map(|memory| json!({"time": time(memory.timestamp), "workingSetBytes": number(&memory.working_set_bytes)}));
    json!({"name": name, "cpu": cpu, "memory": memory})
}

impl Server {
    pub(super) async fn summary(&self) -> Response<Body> {
        let stats = match self.context.cri.list_container_stats().await {
            Ok(stats) => stats,
            Err(error) => return answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let mut pods: BTreeMap<[String; 3], Vec<Value>> = BTreeMap::new();
        for stats in &stats {
            let Some(attributes) = &stats.attributes else { continue };
            let label = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
            let id = [keys::POD_NAMESPACE, keys::POD_NAME, keys::POD_UID].map(label);
            pods.entry(id).or_default().push(of_container(stats));
        }
        let pods: Vec<Value> = pods
            .into_iter()
            .map(|([namespace, name, uid], containers)| {
                json!({"podRef": {"name": name, "namespace": namespace, "uid": uid}, "containers": containers})
            })
            .collect();
        let body = json!({"node": {"nodeName": self.context.settings.node_name}, "pods": pods});
        let mut response = Response::new(full(body.to_string()));
        let kind = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        response
    }
}
