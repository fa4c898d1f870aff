//! `Priority`: the number behind a priority class's name.
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, ClusterReader, GroupResource};
use serde_json::{Value, json};

use crate::objects::{all_cached, cached, is_pods, parse, spec, text};
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

const GROUP: &str = "scheduling.k8s.io";

/// See the module.
pub struct Priority {
    reader: Arc<dyn ClusterReader>,
}

impl Priority {
    /// Looks classes up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    fn classes() -> GroupResource {
        GroupResource::new(GROUP, "priorityclasses")
    }

    async fn class(&self, name: &str) -> Result<Option<Value>, ApiError> {
        if let Some(class) = cached(self.reader.as_ref(), &Self::classes(), None, name) {
            return Ok(Some(class));
        }
        let found = self.reader.get_consistent(&Self::classes(), None, name).await?;
        Ok(found.and_then(|object| parse(&object.json)))
    }

    /// The class of pods that name none; of several, which only racing writes can make, the least.
    fn default_class(&self) -> Option<Value> {
        let all = all_cached(self.reader.as_ref(), &Self::classes(), None).into_iter();
        let global = all.filter(|class| class.get("globalDefault") == Some(&Value::Bool(true)));
        global.min_by_key(|class| class.get("value").and_then(Value::as_i64))
    }

    async fn pod(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if request.operation == Operation::Update {
            keep(&mut request.object, request.old_object);
            return Ok(());
        }
        let resource = request.resource.group_resource();
        let name = text(&request.object, "/spec/priorityClassName").to_owned();
        let class = if name.is_empty() {
            self.default_class()
        } else {
            let found = self.class(&name).await?;
            if found.is_none() {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(ApiError::forbidden(&resource, request.name, why));
            }
            found
        };
        let value = class
            .as_ref()
            .and_then(|class| class.get("value")?.as_i64())
            .unwrap_or(0);
        let policy = class
            .as_ref()
            .map(|class| text(class, "/preemptionPolicy"))
            .filter(|policy| !policy.is_empty());
        let policy = policy.unwrap_or("PreemptLowerPriority");
        let differs = |key: &str, computed: &Value| {
            request
                .object
                .pointer(&format!("/spec/{key}"))
                .is_some_and(|given| !given.is_null() && given != computed)
        };
        if differs("priority", &json!(value)) {
            let given = request.object.pointer("/spec/priority").cloned().unwrap_or_default();
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            );
            return Err(ApiError::forbidden(&resource, request.name, why));
        }
        if differs("preemptionPolicy", &json!(policy)) {
            let given = text(&request.object, "/spec/preemptionPolicy");
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(ApiError::forbidden(&resource, request.name, why));
        }
        let class_name = class.as_ref().map(|class| text(class, "/metadata/name").to_owned());
        if let Some(fields) = spec(&mut request.object) {
            fields.insert("priority".to_owned(), json!(value));
            fields.insert("preemptionPolicy".to_owned(), json!(policy));
            if let Some(name) = class_name {
                fields.insert("priorityClassName".to_owned(), json!(name));
            }
        }
        Ok(())
    }
}

/// Clients that know neither field send them empty; they do not change.
fn keep(object: &mut Value, old: &Value) {
    for key in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.pointer(&format!("/spec/{key}"))
            && let Some(fields) = spec(object)
            && fields.get(key).is_none_or(Value::is_null)
        {
            fields.insert(key.to_owned(), value.clone());
        }
    }
}

fn is_classes(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group == GROUP && request.resource.resource == "priorityclasses"
}

#[async_trait]
impl AdmissionPlugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let written = matches!(request.operation, Operation::Create | Operation::Update);
        written && (is_pods(request) || is_classes(request))
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if is_pods(request) {
            self.pod(request).await
        } else {
            Ok(())
        }
    }

    /// There is one default.
    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_classes(request) || request.object.get("globalDefault") != Some(&Value::Bool(true)) {
            return Ok(());
        }
        match self.default_class() {
            Some(other) if text(&other, "/metadata/name") != text(&request.object, "/metadata/name") => {
                let other = text(&other, "/metadata/name");
                let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
                Err(ApiError::forbidden(
                    &request.resource.group_resource(),
                    request.name,
                    why,
                ))
            }
            _ => Ok(()),
        }
    }
}
