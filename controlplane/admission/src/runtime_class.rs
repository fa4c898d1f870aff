//! `RuntimeClass`: what a pod's class costs beside its containers, and on which nodes it can run.
//! Source: <https://kubernetes.io/docs/concepts/containers/runtime-class/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource, Quantity};
use serde_json::{Value, json};

use crate::objects::{creates_pod, list, parse, spec, text};
use crate::{AdmissionPlugin, AdmissionRequest};

/// See the module.
pub struct RuntimeClass {
    reader: Arc<dyn ClusterReader>,
}

impl RuntimeClass {
    /// Looks classes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    /// The class that the pod names; `null` when it names none.
    async fn class(&self, pod: &Value) -> Result<Value, Refusal> {
        let name = text(pod, "/spec/runtimeClassName");
        if name.is_empty() {
            return Ok(Value::Null);
        }
        let classes = GroupResource::new("node.k8s.io", "runtimeclasses");
        let found = match self.reader.get(&classes, None, name) {
            Some(object) => Some(object),
            None => self
                .reader
                .get_consistent(&classes, None, name)
                .await
                .map_err(Refusal::Failed)?,
        };
        let class = found.and_then(|object| parse(&object.json));
        class.ok_or_else(|| Refusal::because(format!("pod rejected: RuntimeClass \"{name}\" not found")))
    }
}

enum Refusal {
    Because(String),
    Failed(ApiError),
}

impl Refusal {
    fn because(why: impl Into<String>) -> Self {
        Self::Because(why.into())
    }

    fn into_error(self, request: &AdmissionRequest<'_>) -> ApiError {
        match self {
            Self::Because(why) => ApiError::forbidden(&request.resource.group_resource(), request.name, why),
            Self::Failed(error) => error,
        }
    }
}

fn amounts(value: Option<&Value>) -> BTreeMap<String, Option<Quantity>> {
    let all = value.and_then(Value::as_object).into_iter().flatten();
    let parsed = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse().ok()
    };
    all.map(|(name, value)| (name.clone(), parsed(value))).collect()
}

fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn set_overhead(pod: &mut Value, class: &Value) -> Result<(), Refusal> {
    if !is_set(class.get("overhead")) {
        return Ok(());
    }
    let fixed = class.pointer("/overhead/podFixed");
    let own = pod.pointer("/spec/overhead");
    if is_set(own) && amounts(own) != amounts(fixed) {
        return Err(Refusal::because(MISMATCH));
    }
    if let (Some(fixed), Some(fields)) = (fixed, spec(pod)) {
        fields.insert("overhead".to_owned(), fixed.clone());
    }
    Ok(())
}

fn set_scheduling(pod: &mut Value, class: &Value) -> Result<(), Refusal> {
    let Some(fields) = spec(pod) else { return Ok(()) };
    let wanted = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object);
    if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) {
        let selector = fields.entry("nodeSelector").or_insert_with(|| json!({}));
        for (key, value) in wanted {
            if let Some(own) = selector.get(key).filter(|own| *own != value) {
                let (value, own) = (value.as_str().unwrap_or_default(), own.as_str().unwrap_or_default());
                return Err(Refusal::because(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                )));
            }
            if let Some(selector) = selector.as_object_mut() {
                selector.insert(key.clone(), value.clone());
            }
        }
    }
    let further = list(class, "/scheduling/tolerations");
    if !further.is_empty() {
        let all = fields.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            for toleration in further {
                if !all.contains(toleration) {
                    all.push(toleration.clone());
                }
            }
        }
    }
    Ok(())
}

fn check_overhead(pod: &Value, class: &Value) -> Result<(), Refusal> {
    let own = pod.pointer("/spec/overhead");
    if !is_set(class.get("overhead")) {
        return if is_set(own) {
            Err(Refusal::because(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ))
        } else {
            Ok(())
        };
    }
    if amounts(own) == amounts(class.pointer("/overhead/podFixed")) {
        Ok(())
    } else {
        Err(Refusal::because(MISMATCH))
    }
}

#[async_trait]
impl AdmissionPlugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates_pod(request)
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let result = match self.class(&request.object).await {
            Ok(class) => {
                let overhead = set_overhead(&mut request.object, &class);
                overhead.and_then(|()| set_scheduling(&mut request.object, &class))
            }
            Err(refusal) => Err(refusal),
        };
        result.map_err(|refusal| refusal.into_error(request))
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let class = self.class(&request.object).await;
        let result = class.and_then(|class| check_overhead(&request.object, &class));
        result.map_err(|refusal| refusal.into_error(request))
    }
}

#[cfg(test)]
mod tests {
    use minato_meta::MemoryReader;

    use super::*;
    use crate::tests::create;

    #[tokio::test]
    async fn classes_have_a_price_and_a_place() {
        let reader = MemoryReader::new();
        let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
        reader.put(&GroupResource::new("node.k8s.io", "runtimeclasses"), class);
        let plugin = RuntimeClass::new(Arc::new(reader));
        let pod = |spec: Value| create(&plugin, ("", "pods"), json!({"spec": spec}));
        let made = pod(
            json!({"runtimeClassName": "vm", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "x"}],
            "overhead": {"cpu": "0.25"}}),
        )
        .await
        .unwrap();
        assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
        assert_eq!(made["spec"]["nodeSelector"], json!({"a": "b", "vm": "yes"}));
        assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 2);
        for (spec, why) in [
            (json!({"runtimeClassName": "no"}), "RuntimeClass \"no\" not found"),
            (
                json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
                "conflict: runtimeClass.scheduling",
            ),
            (
                json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}),
                "Pod's Overhead doesn't match",
            ),
            (json!({"overhead": {"cpu": "1"}}), "without corresponding RuntimeClass"),
        ] {
            let said = pod(spec).await.unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
