//! `LimitRanger`: what a namespace's LimitRanges fill in, and what they refuse.
//! Source: <https://kubernetes.io/docs/concepts/policy/limit-range/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource, Quantity};
use serde_json::{Map, Value, json};

use crate::objects::{all_cached, is_pods, list, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

/// See the module.
pub struct LimitRanger {
    reader: Arc<dyn ClusterReader>,
}

type Amounts = BTreeMap<String, Quantity>;

impl LimitRanger {
    /// Looks LimitRanges up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    /// The items of all LimitRanges of a namespace, in the order of their names.
    fn items(&self, namespace: &str) -> Vec<Value> {
        let ranges = GroupResource::new("", "limitranges");
        let all = all_cached(self.reader.as_ref(), &ranges, Some(namespace));
        all.iter()
            .flat_map(|range| list(range, "/spec/limits").to_vec())
            .collect()
    }
}

fn amounts(object: &Value, pointer: &str) -> Amounts {
    let fields = object.pointer(pointer).and_then(Value::as_object);
    let parsed = fields.into_iter().flatten().filter_map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((name.clone(), text.parse().ok()?))
    });
    parsed.collect()
}

/// Fills `resources.limits` and `resources.requests` of a container where they say nothing.
fn fill(container: &mut Value, item: &Value) {
    let Some(fields) = container.as_object_mut() else {
        return;
    };
    let resources = fields.entry("resources").or_insert_with(|| json!({}));
    let Some(resources) = resources.as_object_mut() else {
        return;
    };
    // A request that is not given is the given limit: a default may not come between.
    let own_limits = resources
        .get("limits")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for (kind, from) in [("limits", "/default"), ("requests", "/defaultRequest")] {
        let Some(defaults) = item.pointer(from).and_then(Value::as_object) else {
            continue;
        };
        let entry = resources.entry(kind).or_insert_with(|| Value::Object(Map::new()));
        let Some(given) = entry.as_object_mut() else { continue };
        for (name, value) in defaults {
            if kind == "limits" || !own_limits.contains_key(name) {
                given.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// What is wrong with amounts by one item, in upstream's words.
fn refusals(kind: &str, item: &Value, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, least) in amounts(item, "/min") {
        match requests.get(&name) {
            None => wrong.push(format!(
                "minimum {name} usage per {kind} is {least}.  No request is specified"
            )),
            Some(asked) if *asked < least => {
                wrong.push(format!(
                    "minimum {name} usage per {kind} is {least}, but request is {asked}"
                ));
            }
            Some(_) => {}
        }
    }
    for (name, most) in amounts(item, "/max") {
        match limits.get(&name) {
            None => wrong.push(format!(
                "maximum {name} usage per {kind} is {most}.  No limit is specified"
            )),
            Some(limit) if *limit > most => {
                wrong.push(format!(
                    "maximum {name} usage per {kind} is {most}, but limit is {limit}"
                ));
            }
            Some(_) => {}
        }
    }
    for (name, ratio) in amounts(item, "/maxLimitRequestRatio") {
        let (Some(asked), Some(limit)) = (requests.get(&name), limits.get(&name)) else {
            wrong.push(format!(
                "{name} max limit to request ratio per {kind} is {ratio}, but no request or limit is specified"
            ));
            continue;
        };
        // limit / request > ratio, without division.
        let too_much = limit.nano().saturating_mul(1_000) > asked.nano().saturating_mul(i128::from(ratio.milli()));
        if too_much {
            wrong.push(format!(
                "{name} max limit to request ratio per {kind} is {ratio}, but provided ratio is larger"
            ));
        }
    }
    wrong
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/spec/containers")
        .iter()
        .chain(list(pod, "/spec/initContainers"))
}

/// The sum over containers; a limit counts only where every container has one.
fn sum(pod: &Value, kind: &str) -> Amounts {
    let mut total: Option<Amounts> = None;
    for container in list(pod, "/spec/containers") {
        let own = amounts(container, &format!("/resources/{kind}"));
        total = Some(match total {
            None => own,
            Some(before) => before
                .into_iter()
                .filter_map(|(name, amount)| Some((name.clone(), amount + *own.get(&name)?)))
                .collect(),
        });
    }
    total.unwrap_or_default()
}

fn is_claims(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group.is_empty()
        && request.resource.resource == "persistentvolumeclaims"
        && request.subresource.is_empty()
}

#[async_trait]
impl AdmissionPlugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        match request.operation {
            Operation::Create => is_pods(request) || is_claims(request),
            // What a pod asks for does not change by itself; what a claim asks for may.
            Operation::Update => is_claims(request),
            Operation::Delete | Operation::Connect => false,
        }
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_pods(request) {
            return Ok(());
        }
        let items = self.items(request.namespace);
        for item in items.iter().filter(|item| text(item, "/type") == "Container") {
            for kind in ["/spec/containers", "/spec/initContainers"] {
                let all = request.object.pointer_mut(kind).and_then(Value::as_array_mut);
                all.into_iter().flatten().for_each(|container| fill(container, item));
            }
        }
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let mut wrong = Vec::new();
        for item in self.items(request.namespace) {
            let kind = text(&item, "/type");
            if is_claims(request) {
                if kind == "PersistentVolumeClaim" {
                    let asked = amounts(&request.object, "/spec/resources/requests");
                    wrong.extend(refusals(kind, &item, &asked, &asked));
                }
                continue;
            }
            match kind {
                "Container" => {
                    for container in containers(&request.object) {
                        let (asked, limits) = (
                            amounts(container, "/resources/requests"),
                            amounts(container, "/resources/limits"),
                        );
                        wrong.extend(refusals(kind, &item, &asked, &limits));
                    }
                }
                "Pod" => wrong.extend(refusals(
                    kind,
                    &item,
                    &sum(&request.object, "requests"),
                    &sum(&request.object, "limits"),
                )),
                _ => {}
            }
        }
        let why = match wrong.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Err(ApiError::forbidden(
            &request.resource.group_resource(),
            request.name,
            why,
        ))
    }
}

#[cfg(test)]
mod tests {
    use minato_auth::UserInfo;
    use minato_meta::{GroupVersionKind, GroupVersionResource, MemoryReader};

    use super::*;

    fn plugin() -> LimitRanger {
        let reader = MemoryReader::new();
        let range = json!({
            "metadata": {"name": "r", "namespace": "d"},
            "spec": {"limits": [
                {
                    "type": "Container",
                    "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"},
                    "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "maxLimitRequestRatio": {"cpu": "5"},
                },
                {"type": "Pod", "max": {"cpu": "1500m"}},
            ]},
        });
        reader.put(&GroupResource::new("", "limitranges"), range);
        LimitRanger::new(Arc::new(reader))
    }

    /// The pod as admitted, or why it is refused.
    async fn admitted(containers: Value) -> Result<Value, String> {
        let user = UserInfo::default();
        let mut request = AdmissionRequest {
            operation: Operation::Create,
            kind: GroupVersionKind::new("", "v1", "Pod"),
            resource: GroupVersionResource::new("", "v1", "pods"),
            subresource: "",
            namespace: "d",
            name: "p",
            user: &user,
            dry_run: false,
            object: json!({"spec": {"containers": containers}}),
            old_object: &Value::Null,
            options: Value::Null,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        };
        let plugin = plugin();
        let text = |error: ApiError| error.message().to_owned();
        plugin.admit(&mut request).await.map_err(text)?;
        plugin.validate(&request).await.map_err(text)?;
        Ok(request.object)
    }

    fn container(requests: Value, limits: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    #[tokio::test]
    async fn defaults_are_filled_in() {
        let pod = admitted(json!([{"name": "c"}])).await;
        let resources = pod.map(|pod| pod["spec"]["containers"][0]["resources"].clone());
        assert_eq!(
            resources,
            Ok(json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}))
        );
    }

    #[tokio::test]
    async fn bounds_are_kept_for_containers_and_pods() {
        let refused = async |containers: Value| admitted(containers).await.err().unwrap_or_default();
        let large = refused(json!([container(json!({"cpu": "1"}), json!({"cpu": "2"}))])).await;
        assert!(
            large.contains("maximum cpu usage per Container is 1, but limit is 2"),
            "{large}"
        );
        let small = refused(json!([container(json!({"cpu": "10m"}), json!({"cpu": "50m"}))])).await;
        assert!(
            small.contains("minimum cpu usage per Container is 50m, but request is 10m"),
            "{small}"
        );
        let spread = refused(json!([container(json!({"cpu": "100m"}), json!({"cpu": "600m"}))])).await;
        assert!(
            spread.contains("cpu max limit to request ratio per Container is 5"),
            "{spread}"
        );
        let one = || container(json!({"cpu": "800m"}), json!({"cpu": "800m"}));
        assert!(admitted(json!([one()])).await.is_ok());
        let many = refused(json!([one(), one()])).await;
        assert!(
            many.contains("maximum cpu usage per Pod is 1500m, but limit is 1600m"),
            "{many}"
        );
    }
}
