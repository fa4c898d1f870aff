//! The life of an object of the management API, as a resource. What is particular to a kind is in a [`Kind`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use minato_api::k8s_openapi::NamespaceResourceScope;
use minato_api::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use minato_api::kube::{self, Api, Resource as _};
use minato_terraform_protocol::{Applied, Diagnostic, Diagnostics, Object, Path, Resource, Schema, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::checks;
use crate::connection::{Connection, Session};
use crate::errors::{Fields, refused, status};
use crate::patch;
use crate::wait::{Progress, WaitError, until};

/// Who is named as the writer of fields.
const MANAGER: &str = "terraform";

/// What is particular to a kind.
#[async_trait]
pub(crate) trait Kind: Send + Sync + 'static {
    /// The kind.
    type Object: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// What people call it.
    const NOUN: &'static str;
    /// Fields of the API and the attributes that set them.
    const FIELDS: Fields;
    /// Attributes that only the configuration sets: once they are known, the API can judge a plan.
    const GIVEN: &'static [&'static str];
    /// How long its creation, a change and its deletion may take unless the configuration says so.
    const PATIENCE: Duration;

    /// Its attributes; among them are `id`, `uid`, `name`, `namespace` and `timeouts`.
    fn schema() -> Schema;

    /// Finds faults of a configuration besides those in names, labels and timeouts.
    fn validate(config: &Object, diagnostics: &mut Diagnostics);

    /// The object that is asked for; whatever is not known is left to the API.
    fn wanted(planned: &Object) -> Self::Object;

    /// The attributes of an object that is there, except those of [`Managed`] itself.
    async fn observed(session: &Session, object: &Self::Object) -> Result<Object, Diagnostics>;

    /// Whether it is as its specification asks.
    fn progress(object: &Self::Object) -> Progress;

    /// Why it must not be deleted, if so.
    fn protected(state: &Object) -> Option<Diagnostic>;
}

/// A [`Kind`] as a resource.
pub(crate) struct Managed<K> {
    _kind: K,
    schema: Schema,
    connection: Arc<Connection>,
}

/// Where an object is.
struct Place<K: Kind> {
    session: Arc<Session>,
    api: Api<K::Object>,
    namespace: String,
    name: String,
}

impl<K: Kind> Managed<K> {
    pub(crate) fn new(kind: K, connection: Arc<Connection>) -> Self {
        Self {
            _kind: kind,
            schema: K::schema(),
            connection,
        }
    }

    fn place(&self, state: &Object) -> Result<Place<K>, Diagnostic> {
        let session = self.connection.get()?;
        Ok(Place::new(session, state))
    }
}

impl<K: Kind> Place<K> {
    fn new(session: Arc<Session>, state: &Object) -> Self {
        let namespace = state.str("namespace").unwrap_or(&session.namespace).to_owned();
        Self {
            api: Api::namespaced(session.client.clone(), &namespace),
            name: state.str("name").unwrap_or_default().to_owned(),
            namespace,
            session,
        }
    }

    fn called(&self) -> String {
        format!("{} {}/{}", K::NOUN, self.namespace, self.name)
    }

    fn refused(&self, doing: &str, error: &kube::Error) -> Diagnostics {
        refused(&format!("{doing} {}", self.called()), error, K::FIELDS)
    }

    /// All attributes of an object, with nothing spelled as in `like`.
    async fn state(&self, object: &K::Object, like: &Object) -> Result<Object, Diagnostics> {
        let mut state = K::observed(&self.session, object).await?;
        state.set("id", format!("{}/{}", self.namespace, self.name));
        state.set("uid", object.meta().uid.clone());
        state.set("name", self.name.clone());
        state.set("namespace", self.namespace.clone());
        state.set("timeouts", like.get("timeouts").clone());
        let spelled = state.0.into_iter().map(|(name, value)| {
            let value = value.spelled_like(like.get(&name));
            (name, value)
        });
        Ok(Object(spelled.collect()))
    }

    /// Waits until the object is as its specification asks, and tells what is there then, whatever came of it.
    async fn settle(&self, planned: &Object, timeout: Duration, made: K::Object) -> Applied {
        let mut last = Some(made);
        let settled = |object: Option<&K::Object>| object.is_none_or(|object| K::progress(object).ready);
        let waited = until(
            self.api.clone(),
            &self.name,
            timeout,
            &self.session.stop,
            &mut last,
            settled,
        )
        .await;
        let mut diagnostics = Diagnostics::default();
        let Some(object) = last else {
            let text = "It was deleted by somebody else while it was waited for.";
            return Applied::nothing(Diagnostic::error(format!("No {}", self.called()), text));
        };
        if let Err(why) = waited {
            diagnostics.push(self.not_ready(&why, &object, timeout));
        }
        let state = match self.state(&object, planned).await {
            Ok(state) => state,
            Err(more) => {
                diagnostics.0.extend(more.0);
                // Enough to find it again.
                let mut known = planned.clone();
                known.set("id", format!("{}/{}", self.namespace, self.name));
                known.set("namespace", self.namespace.clone());
                let known = known.0.into_iter().map(|(name, value)| {
                    let value = if value.is_wholly_known() { value } else { Value::Null };
                    (name, value)
                });
                Object(known.collect())
            }
        };
        Applied {
            state: Some(state),
            diagnostics,
        }
    }

    fn not_ready(&self, why: &WaitError, object: &K::Object, timeout: Duration) -> Diagnostic {
        let reasons = K::progress(object).reasons.join("\n  - ");
        let waited = match why {
            WaitError::Timeout { .. } => format!(" after {timeout:?}"),
            WaitError::Stopped | WaitError::Refused(_) => String::new(),
        };
        let text = format!("It was made, and is not ready{waited} ({why}):\n  - {reasons}");
        Diagnostic::error(format!("The {} is not ready", self.called()), text)
    }

    async fn create(&self, planned: &Object) -> Applied {
        let wanted = self.wanted(planned);
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        match self.api.create(&params, &wanted).await {
            Ok(made) => {
                tracing::debug!(kind = K::NOUN, namespace = self.namespace, name = self.name, "created");
                let timeout = checks::timeout(planned, "create", K::PATIENCE);
                self.settle(planned, timeout, made).await
            }
            Err(error) if status(&error).is_some_and(kube::core::Status::is_already_exists) => {
                let text = format!(
                    "There is one already. To manage it by Terraform, import it under the id {}/{}.",
                    self.namespace, self.name
                );
                let diagnostic = Diagnostic::error(format!("Failed to create {}", self.called()), text);
                Applied::nothing(diagnostic.at(Path::attribute("name")))
            }
            Err(error) => Applied::nothing(self.refused("to create", &error)),
        }
    }

    fn wanted(&self, planned: &Object) -> K::Object {
        let mut wanted = K::wanted(planned);
        wanted.meta_mut().name = Some(self.name.clone());
        wanted.meta_mut().namespace = Some(self.namespace.clone());
        wanted
    }

    /// What makes the object that was into the one that is planned, unless it has been replaced by another.
    fn difference(&self, prior: &Object, planned: &Object) -> Option<serde_json::Value> {
        let tree = |state: &Object| serde_json::to_value(self.wanted(state)).unwrap_or_default();
        let mut patch = patch::merge(&tree(prior), &tree(planned))?;
        if let Some(uid) = prior.str("uid")
            && let Some(patch) = patch.as_object_mut()
        {
            let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("uid".to_owned(), json!(uid));
            }
        }
        Some(patch)
    }

    async fn update(&self, prior: &Object, planned: &Object) -> Applied {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let result = match self.difference(prior, planned) {
            Some(patch) => self.api.patch(&self.name, &params, &Patch::Merge(&patch)).await,
            None => self.api.get(&self.name).await,
        };
        match result {
            Ok(changed) => {
                tracing::debug!(kind = K::NOUN, namespace = self.namespace, name = self.name, "updated");
                let timeout = checks::timeout(planned, "update", K::PATIENCE);
                self.settle(planned, timeout, changed).await
            }
            Err(error) => Applied::nothing(self.refused("to update", &error)),
        }
    }

    async fn delete(&self, prior: &Object) -> Result<(), Diagnostics> {
        let preconditions = Preconditions {
            uid: prior.str("uid").map(str::to_owned),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        if let Err(error) = self.api.delete(&self.name, &params).await {
            if status(&error).is_some_and(kube::core::Status::is_not_found) {
                return Ok(());
            }
            return Err(self.refused("to delete", &error));
        }
        tracing::debug!(kind = K::NOUN, namespace = self.namespace, name = self.name, "deleting");
        let timeout = checks::timeout(prior, "delete", K::PATIENCE);
        let uid = prior.str("uid");
        let gone = |object: Option<&K::Object>| object.is_none_or(|object| object.meta().uid.as_deref() != uid);
        let mut last = None;
        let waited = until(
            self.api.clone(),
            &self.name,
            timeout,
            &self.session.stop,
            &mut last,
            gone,
        )
        .await;
        waited.map_err(|why| {
            let reasons = last
                .as_ref()
                .map(|object| K::progress(object).reasons)
                .unwrap_or_default();
            let text = format!(
                "It is being deleted, and is not gone after {timeout:?} ({why}):\n  - {}",
                reasons.join("\n  - ")
            );
            Diagnostic::error(format!("The {} is still there", self.called()), text).into()
        })
    }

    /// Has the API judge a plan without carrying it out. Whatever is not a verdict is left for the real attempt.
    async fn judge(&self, prior: Option<&Object>, planned: &Object) -> Diagnostics {
        let result = match prior {
            None => {
                let params = PostParams {
                    dry_run: true,
                    field_manager: Some(MANAGER.to_owned()),
                };
                self.api.create(&params, &self.wanted(planned)).await
            }
            Some(prior) => {
                let Some(patch) = self.difference(prior, planned) else {
                    return Diagnostics::default();
                };
                let params = PatchParams {
                    field_manager: Some(MANAGER.to_owned()),
                    ..PatchParams::default()
                }
                .dry_run();
                self.api.patch(&self.name, &params, &Patch::Merge(&patch)).await
            }
        };
        match result {
            Ok(_) => Diagnostics::default(),
            Err(error) if status(&error).is_some_and(|status| matches!(status.code, 400 | 403 | 422)) => {
                self.refused("to plan", &error)
            }
            Err(error) => {
                tracing::debug!(kind = K::NOUN, name = self.name, %error, "the plan was not judged");
                Diagnostics::default()
            }
        }
    }
}

#[async_trait]
impl<K: Kind> Resource for Managed<K> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn validate(&self, config: &Object) -> Diagnostics {
        let mut diagnostics = Diagnostics::default();
        checks::name_and_namespace(config, &mut diagnostics);
        checks::labels(config, &mut diagnostics);
        checks::check_timeouts(config, &mut diagnostics);
        K::validate(config, &mut diagnostics);
        diagnostics
    }

    async fn review(&self, prior: Option<&Object>, planned: Option<&Object>) -> Diagnostics {
        let Some(planned) = planned else {
            let protected = prior.and_then(K::protected);
            return protected.map(Diagnostics::from).unwrap_or_default();
        };
        let Some(session) = self.connection.known() else {
            return Diagnostics::default();
        };
        // Judged when the rest of it is known.
        if !K::GIVEN.iter().all(|name| planned.get(name).is_wholly_known()) {
            return Diagnostics::default();
        }
        Place::<K>::new(session, planned).judge(prior, planned).await
    }

    async fn create(&self, planned: &Object) -> Applied {
        match self.place(planned) {
            Ok(place) => place.create(planned).await,
            Err(diagnostic) => Applied::nothing(diagnostic),
        }
    }

    async fn read(&self, state: &Object) -> Result<Option<Object>, Diagnostics> {
        let place = self.place(state)?;
        match place.api.get_opt(&place.name).await {
            Ok(Some(object)) => place.state(&object, state).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(place.refused("to read", &error)),
        }
    }

    async fn update(&self, prior: &Object, planned: &Object) -> Applied {
        match self.place(planned) {
            Ok(place) => place.update(prior, planned).await,
            Err(diagnostic) => Applied::nothing(diagnostic),
        }
    }

    async fn delete(&self, prior: &Object) -> Result<(), Diagnostics> {
        self.place(prior)?.delete(prior).await
    }

    fn import(&self, id: &str) -> Result<Object, Diagnostics> {
        let session = self.connection.get()?;
        let (namespace, name) = checks::parse_id(id, &session.namespace)?;
        Ok(Object::from([
            ("id", format!("{namespace}/{name}").into()),
            ("name", name.into()),
            ("namespace", namespace.into()),
        ]))
    }
}
