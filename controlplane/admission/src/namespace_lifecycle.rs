//! `NamespaceLifecycle`: nothing new in a namespace that is not there or goes, and some namespaces stay.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle>.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::{ApiError, Cause, ClusterReader, GroupResource};

use crate::objects::parse;
use crate::{AdmissionPlugin, AdmissionRequest, Operation};

/// Cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// See the module.
pub struct NamespaceLifecycle {
    reader: Arc<dyn ClusterReader>,
}

impl NamespaceLifecycle {
    /// Looks namespaces up in `reader`.
    pub fn new(reader: Arc<dyn ClusterReader>) -> Self {
        Self { reader }
    }

    /// Whether the namespace is on its way out; `None` when it is not there.
    async fn terminating(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let namespaces = GroupResource::new("", "namespaces");
        let object = match self.reader.get(&namespaces, None, name) {
            Some(object) => Some(object),
            // It may have been made a moment ago.
            None => self.reader.get_consistent(&namespaces, None, name).await?,
        };
        let object = object.and_then(|object| parse(&object.json));
        Ok(object.map(|namespace| namespace.pointer("/metadata/deletionTimestamp").is_some()))
    }
}

fn is_namespaces(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "namespaces"
}

#[async_trait]
impl AdmissionPlugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        match request.operation {
            Operation::Delete => is_namespaces(request) && IMMORTAL.contains(&request.name),
            // Access reviews are asked about namespaces that are not there, too.
            Operation::Create => {
                !request.namespace.is_empty()
                    && !is_namespaces(request)
                    && request.resource.resource != "localsubjectaccessreviews"
            }
            Operation::Update | Operation::Connect => false,
        }
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        let resource = request.resource.group_resource();
        if request.operation == Operation::Delete {
            return Err(ApiError::forbidden(
                &resource,
                request.name,
                "this namespace may not be deleted",
            ));
        }
        match self.terminating(request.namespace).await? {
            Some(false) => Ok(()),
            None => Err(ApiError::not_found(
                &GroupResource::new("", "namespaces"),
                request.namespace,
            )),
            Some(true) => {
                let namespace = request.namespace;
                let why =
                    format!("unable to create new content in namespace {namespace} because it is being terminated");
                let cause = Cause {
                    reason: "NamespaceTerminating".to_owned(),
                    message: format!("namespace {namespace} is being terminated"),
                    field: "metadata.namespace".to_owned(),
                };
                Err(ApiError::forbidden(&resource, request.name, why).with_cause(cause))
            }
        }
    }
}
