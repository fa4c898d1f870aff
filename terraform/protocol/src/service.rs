//! The provider protocol's calls, carried out by a [`Provider`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::json;
use crate::msgpack;
use crate::plan::{fill, plan};
use crate::provider::{Applied, Provider, Resource};
use crate::schema::Schema;
use crate::value::{Object, Value};
use crate::wire::provider as wire;

type Answer<T> = Result<Response<T>, Status>;

/// Serves one provider.
pub(crate) struct Service {
    provider: Arc<dyn Provider>,
}

impl Service {
    pub(crate) fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }

    fn resource(&self, name: &str) -> Result<&dyn Resource, Diagnostics> {
        named(self.provider.resources(), name)
    }
}

fn named<'a, T: ?Sized>(all: &'a BTreeMap<&'static str, Arc<T>>, name: &str) -> Result<&'a T, Diagnostics> {
    let unknown = || Diagnostic::error("Unknown type", format!("This provider has no type {name:?}."));
    all.get(name).map(Arc::as_ref).ok_or_else(|| unknown().into())
}

/// An object of the schema, or `None` for null.
fn object(schema: &Schema, value: Option<&wire::DynamicValue>) -> Result<Option<Object>, Diagnostics> {
    let unreadable = |why: String| Diagnostic::error("Unreadable value", format!("Terraform sent a value: {why}."));
    let value = match value {
        None => Value::Null,
        Some(value) if !value.msgpack.is_empty() => {
            msgpack::decode(&value.msgpack).map_err(|error| unreadable(error.to_string()))?
        }
        Some(value) if !value.json.is_empty() => {
            json::decode(&value.json).map_err(|error| unreadable(error.to_string()))?
        }
        Some(_) => Value::Null,
    };
    conform(schema, value)
}

fn conform(schema: &Schema, value: Value) -> Result<Option<Object>, Diagnostics> {
    let conformed = schema.value_type().conform(value).map_err(|error| {
        let text = format!("A value is not as its schema says: {} is wanted.", error.wanted);
        Diagnostic::error("Wrong type", text).at(error.path)
    })?;
    match conformed {
        Value::Null => Ok(None),
        Value::Map(attributes) => Ok(Some(Object(attributes))),
        _ => Err(Diagnostic::error(
            "Unknown object",
            "A whole object is unknown, which cannot be worked with.",
        )
        .into()),
    }
}

/// The same where null makes no sense: no attribute is set then.
fn some_object(schema: &Schema, value: Option<&wire::DynamicValue>) -> Result<Object, Diagnostics> {
    Ok(object(schema, value)?.unwrap_or_default())
}

/// An object with all its attributes, or null.
fn dynamic(schema: &Schema, object: Option<Object>) -> Option<wire::DynamicValue> {
    let value = match object {
        None => Value::Null,
        // What the provider made fits its own schema; if not, Terraform says so.
        Some(object) => {
            let value = Value::from(object);
            schema.value_type().conform(value.clone()).unwrap_or(value)
        }
    };
    Some(wire::DynamicValue {
        msgpack: msgpack::encode(&value),
        json: Vec::new(),
    })
}

fn split<T: Default>(result: Result<T, Diagnostics>) -> (T, Vec<wire::Diagnostic>) {
    match result {
        Ok(value) => (value, Vec::new()),
        Err(diagnostics) => (T::default(), diagnostics.to_wire()),
    }
}

fn verdict(result: Result<Diagnostics, Diagnostics>) -> Answer<wire::Verdict> {
    let diagnostics = result.unwrap_or_else(|diagnostics| diagnostics).to_wire();
    Ok(Response::new(wire::Verdict { diagnostics }))
}

fn capabilities() -> Option<wire::Capabilities> {
    Some(wire::Capabilities {
        plan_destroy: true,
        schema_optional: true,
    })
}

fn schemas<T: ?Sized>(
    all: &BTreeMap<&'static str, Arc<T>>,
    schema: impl Fn(&T) -> &Schema,
) -> HashMap<String, wire::Schema> {
    let each = all.iter();
    each.map(|(name, item)| ((*name).to_owned(), schema(item).to_wire()))
        .collect()
}

fn names<T: ?Sized>(all: &BTreeMap<&'static str, Arc<T>>) -> Vec<wire::Named> {
    let each = all.keys();
    each.map(|name| wire::Named {
        name: (*name).to_owned(),
    })
    .collect()
}

impl Service {
    async fn plan(&self, request: &wire::Proposal) -> Result<wire::Plan, Diagnostics> {
        let resource = self.resource(&request.type_name)?;
        let schema = resource.schema();
        let prior = object(schema, request.prior.as_ref())?;
        let Some(proposed) = object(schema, request.proposed.as_ref())? else {
            let diagnostics = resource.review(prior.as_ref(), None).await;
            return Ok(wire::Plan {
                planned: dynamic(schema, None),
                diagnostics: diagnostics.to_wire(),
                ..wire::Plan::default()
            });
        };
        let config = some_object(schema, request.config.as_ref())?;
        let planned = plan(schema, prior.as_ref(), &proposed, &config);
        let diagnostics = if planned.changes {
            // What is replaced is made anew: to be judged as a creation, which Terraform asks for next.
            let replaced = !planned.replaces.is_empty();
            let prior = prior.as_ref().filter(|_| !replaced);
            resource.review(prior, Some(&planned.state)).await
        } else {
            Diagnostics::default()
        };
        Ok(wire::Plan {
            planned: dynamic(schema, Some(planned.state)),
            requires_replace: planned.replaces.iter().map(crate::diagnostics::Path::to_wire).collect(),
            private: Vec::new(),
            diagnostics: diagnostics.to_wire(),
        })
    }

    async fn apply(&self, request: &wire::PlannedChange) -> Result<wire::Applied, Diagnostics> {
        let resource = self.resource(&request.type_name)?;
        let schema = resource.schema();
        let prior = object(schema, request.prior.as_ref())?;
        let planned = object(schema, request.planned.as_ref())?;
        let applied = match (prior, planned) {
            (None, None) => Applied::nothing(Diagnostics::default()),
            (None, Some(planned)) => finish(resource.create(&planned).await, &planned),
            (Some(prior), Some(planned)) => {
                let mut applied = resource.update(&prior, &planned).await;
                if applied.state.is_none() && applied.diagnostics.has_errors() {
                    applied.state = Some(prior);
                }
                finish(applied, &planned)
            }
            (Some(prior), None) => match resource.delete(&prior).await {
                Ok(()) => Applied::nothing(Diagnostics::default()),
                Err(diagnostics) => Applied {
                    state: Some(prior),
                    diagnostics,
                },
            },
        };
        Ok(wire::Applied {
            state: dynamic(schema, applied.state),
            private: Vec::new(),
            diagnostics: applied.diagnostics.to_wire(),
        })
    }

    fn upgrade(&self, request: &wire::StoredState) -> Result<Option<wire::DynamicValue>, Diagnostics> {
        let schema = self.resource(&request.type_name)?.schema();
        if request.version > schema.version {
            let text = format!(
                "The state has version {} of this type, and this provider knows {}: use the provider that wrote it.",
                request.version, schema.version
            );
            return Err(Diagnostic::error("State from a newer provider", text).into());
        }
        let json = request.raw.as_ref().map(|raw| raw.json.as_slice()).unwrap_or_default();
        let unreadable = |error: serde_json::Error| Diagnostic::error("Unreadable state", format!("{error}."));
        let value = json::decode(json).map_err(unreadable)?;
        Ok(dynamic(schema, conform(schema, value)?))
    }
}

/// What was done as planned is as planned; what somebody else has changed meanwhile is seen at the next reading.
fn finish(applied: Applied, planned: &Object) -> Applied {
    let state = applied.state.map(|observed| {
        if applied.diagnostics.has_errors() {
            // What has failed to come true must not be taken for true.
            observed
        } else {
            fill(planned, &observed)
        }
    });
    Applied { state, ..applied }
}

#[tonic::async_trait]
impl wire::provider_server::Provider for Service {
    async fn get_metadata(&self, _: Request<wire::Nothing>) -> Answer<wire::Metadata> {
        Ok(Response::new(wire::Metadata {
            capabilities: capabilities(),
            data_sources: names(self.provider.data_sources()),
            resources: names(self.provider.resources()),
            ephemeral_resources: names(self.provider.ephemeral_resources()),
            ..wire::Metadata::default()
        }))
    }

    async fn get_provider_schema(&self, _: Request<wire::Nothing>) -> Answer<wire::Schemas> {
        Ok(Response::new(wire::Schemas {
            provider: Some(self.provider.schema().to_wire()),
            resources: schemas(self.provider.resources(), |item| item.schema()),
            data_sources: schemas(self.provider.data_sources(), |item| item.schema()),
            ephemeral_resources: schemas(self.provider.ephemeral_resources(), |item| item.schema()),
            capabilities: capabilities(),
            ..wire::Schemas::default()
        }))
    }

    async fn validate_provider_config(&self, request: Request<wire::ProviderConfig>) -> Answer<wire::ProviderVerdict> {
        let result = object(self.provider.schema(), request.get_ref().config.as_ref());
        let (_, diagnostics) = split(result);
        Ok(Response::new(wire::ProviderVerdict { diagnostics }))
    }

    async fn validate_resource_config(&self, request: Request<wire::Config>) -> Answer<wire::Verdict> {
        let request = request.get_ref();
        verdict(self.resource(&request.type_name).and_then(|resource| {
            let config = some_object(resource.schema(), request.config.as_ref())?;
            Ok(resource.validate(&config))
        }))
    }

    async fn validate_data_resource_config(&self, request: Request<wire::Config>) -> Answer<wire::Verdict> {
        let request = request.get_ref();
        verdict(
            named(self.provider.data_sources(), &request.type_name).and_then(|source| {
                let config = some_object(source.schema(), request.config.as_ref())?;
                Ok(source.validate(&config))
            }),
        )
    }

    async fn upgrade_resource_state(&self, request: Request<wire::StoredState>) -> Answer<wire::UpgradedState> {
        let (state, diagnostics) = split(self.upgrade(request.get_ref()));
        Ok(Response::new(wire::UpgradedState { state, diagnostics }))
    }

    async fn configure_provider(&self, request: Request<wire::Configuration>) -> Answer<wire::Verdict> {
        let config = some_object(self.provider.schema(), request.get_ref().config.as_ref());
        verdict(match config {
            Ok(config) => Ok(self.provider.configure(&config).await),
            Err(diagnostics) => Err(diagnostics),
        })
    }

    async fn read_resource(&self, request: Request<wire::Current>) -> Answer<wire::Observed> {
        let request = request.into_inner();
        let read = async {
            let resource = self.resource(&request.type_name)?;
            let schema = resource.schema();
            let state = match object(schema, request.state.as_ref())? {
                Some(state) => resource.read(&state).await?,
                None => None,
            };
            Ok(dynamic(schema, state))
        };
        let (state, diagnostics) = match read.await {
            Ok(state) => (state, Vec::new()),
            // As it was: what could not be read is not gone.
            Err(diagnostics) => (request.state, Diagnostics::to_wire(&diagnostics)),
        };
        Ok(Response::new(wire::Observed {
            state,
            diagnostics,
            private: request.private,
        }))
    }

    async fn plan_resource_change(&self, request: Request<wire::Proposal>) -> Answer<wire::Plan> {
        let request = request.into_inner();
        Ok(Response::new(match self.plan(&request).await {
            Ok(plan) => plan,
            Err(diagnostics) => wire::Plan {
                planned: request.proposed,
                diagnostics: diagnostics.to_wire(),
                ..wire::Plan::default()
            },
        }))
    }

    async fn apply_resource_change(&self, request: Request<wire::PlannedChange>) -> Answer<wire::Applied> {
        let request = request.into_inner();
        Ok(Response::new(match self.apply(&request).await {
            Ok(applied) => applied,
            Err(diagnostics) => wire::Applied {
                state: request.prior,
                diagnostics: diagnostics.to_wire(),
                private: Vec::new(),
            },
        }))
    }

    async fn import_resource_state(&self, request: Request<wire::Import>) -> Answer<wire::Imported> {
        let request = request.get_ref();
        let (resources, diagnostics) = split(self.resource(&request.type_name).and_then(|resource| {
            let state = resource.import(&request.id)?;
            Ok(vec![wire::imported::Resource {
                type_name: request.type_name.clone(),
                state: dynamic(resource.schema(), Some(state)),
                private: Vec::new(),
            }])
        }));
        Ok(Response::new(wire::Imported { resources, diagnostics }))
    }

    async fn move_resource_state(&self, request: Request<wire::Move>) -> Answer<wire::Moved> {
        let request = request.get_ref();
        let text = format!(
            "A {} of {} cannot become a {}.",
            request.source_type, request.source_provider, request.target_type
        );
        Ok(Response::new(wire::Moved {
            state: None,
            diagnostics: Diagnostics::from(Diagnostic::error("Cannot be moved", text)).to_wire(),
        }))
    }

    async fn read_data_source(&self, request: Request<wire::Query>) -> Answer<wire::Answer> {
        let request = request.get_ref();
        let read = async {
            let source = named(self.provider.data_sources(), &request.type_name)?;
            let config = some_object(source.schema(), request.config.as_ref())?;
            let state = source.read(&config).await?;
            Ok(dynamic(source.schema(), Some(state)))
        };
        let (state, diagnostics) = split(read.await);
        Ok(Response::new(wire::Answer { state, diagnostics }))
    }

    async fn validate_ephemeral_resource_config(&self, request: Request<wire::Config>) -> Answer<wire::Verdict> {
        let request = request.get_ref();
        verdict(
            named(self.provider.ephemeral_resources(), &request.type_name).and_then(|resource| {
                let config = some_object(resource.schema(), request.config.as_ref())?;
                Ok(resource.validate(&config))
            }),
        )
    }

    async fn open_ephemeral_resource(&self, request: Request<wire::Config>) -> Answer<wire::Opened> {
        let request = request.get_ref();
        let open = async {
            let resource = named(self.provider.ephemeral_resources(), &request.type_name)?;
            let config = some_object(resource.schema(), request.config.as_ref())?;
            let result = resource.open(&config).await?;
            Ok(dynamic(resource.schema(), Some(result)))
        };
        let (result, diagnostics) = split(open.await);
        Ok(Response::new(wire::Opened {
            result,
            diagnostics,
            ..wire::Opened::default()
        }))
    }

    /// Nothing is renewed, since nothing asks for it.
    async fn renew_ephemeral_resource(&self, _: Request<wire::Held>) -> Answer<wire::Renewed> {
        Ok(Response::new(wire::Renewed::default()))
    }

    /// Nothing is held.
    async fn close_ephemeral_resource(&self, _: Request<wire::Held>) -> Answer<wire::Verdict> {
        Ok(Response::new(wire::Verdict::default()))
    }

    async fn get_functions(&self, _: Request<wire::Nothing>) -> Answer<wire::Functions> {
        Ok(Response::new(wire::Functions::default()))
    }

    async fn call_function(&self, request: Request<wire::Call>) -> Answer<wire::Returned> {
        let text = format!("this provider has no function {:?}", request.get_ref().name);
        Ok(Response::new(wire::Returned {
            result: None,
            error: Some(wire::returned::Failure { text }),
        }))
    }

    async fn stop_provider(&self, _: Request<wire::Nothing>) -> Answer<wire::Stopped> {
        self.provider.stop();
        Ok(Response::new(wire::Stopped::default()))
    }
}
