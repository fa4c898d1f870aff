//! Empties namespaces that are being deleted, kind by kind as discovery tells them, and then lets them go.
//!
//! Pods go first: they may still use what else is in the namespace. What keeps a namespace is told in its conditions.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Namespace;
use minato_api::kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use minato_api::kube::{Api, Client, ResourceExt};
use minato_runtime::{Controller, Informer, Next, ObjectKey};

use crate::Context;
use crate::discovery::{self, Served};
use crate::error::{Result, code, is_conflict, is_not_found};
use crate::ops;
use plan::{Remaining, Report};

/// The finalizer in `spec.finalizers` that is ours.
const FINALIZER: &str = "kubernetes";
/// How soon to look again for content that goes by itself, and for pods that are stopping.
const SOON: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

struct Namespaces {
    cx: Context,
    namespaces: Informer<Namespace>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Namespaces {
        cx: cx.clone(),
        namespaces: cx.informer(),
    });
    Controller::new("namespace", &cx.runtime)
        .workers(10)
        .watch_primary(&this.namespaces)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl Namespaces {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(namespace) = self.namespaces.get(&key) else {
            return Ok(Next::Done);
        };
        let spec_finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
        let ours = spec_finalizers.is_some_and(|finalizers| finalizers.iter().any(|name| name == FINALIZER));
        if namespace.metadata.deletion_timestamp.is_none() || !ours {
            return Ok(Next::Done);
        }
        let report = self.empty(&key.name).await?;
        let status = plan::status(namespace.status.as_ref(), &report, Timestamp::now());
        let api: Api<Namespace> = Api::all(self.cx.client().clone());
        if namespace.status.as_ref() != Some(&status) {
            let mut updated = Namespace::clone(&namespace);
            updated.status = Some(status);
            match api.replace_status(&key.name, &PostParams::default(), &updated).await {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => return Ok(Next::Done),
                // The next look will tell again.
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !report.is_empty() {
            let pods = report.remaining.iter().any(|remaining| remaining.resource == "pods");
            return Ok(Next::After(if pods { SOON.1 } else { SOON.0 }));
        }
        self.finalize(&api, &key.name).await
    }

    /// Takes our finalizer off; the last one takes the namespace with it.
    async fn finalize(&self, api: &Api<Namespace>, name: &str) -> Result<Next> {
        let Some(mut fresh) = api.get_opt(name).await? else {
            return Ok(Next::Done);
        };
        if let Some(spec) = &mut fresh.spec {
            spec.finalizers
                .iter_mut()
                .for_each(|finalizers| finalizers.retain(|finalizer| finalizer != FINALIZER));
        }
        let sent = api
            .replace_subresource("finalize", name, &PostParams::default(), &fresh)
            .await;
        match sent {
            Ok::<Namespace, _>(_) => Ok(Next::Done),
            Err(error) if is_not_found(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }

    async fn empty(&self, namespace: &str) -> Result<Report> {
        let discovered = discovery::discover(self.cx.client()).await?;
        let mut report = Report {
            undiscovered: discovered.failed,
            ..Report::default()
        };
        let mut kinds: Vec<Served> = discovered.resources;
        kinds.retain(|served| served.namespaced && served.can("delete") && served.can("list"));
        // Events are last, so that those of the deletion itself go as well.
        let is = |served: &Served, plural: &str| served.resource.plural == plural;
        let (pods, others): (Vec<_>, Vec<_>) = kinds
            .into_iter()
            .partition(|served| is(served, "pods") && served.resource.group.is_empty());
        let (events, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|served| is(served, "events"));
        for stage in [pods, others, events] {
            let emptied = stage
                .iter()
                .map(|served| empty_kind(self.cx.client(), served, namespace));
            for outcome in futures::future::join_all(emptied).await {
                match outcome {
                    Ok(Some(remaining)) => report.remaining.push(remaining),
                    Ok(None) => {}
                    Err(failure) => report.failures.push(failure),
                }
            }
            if !report.remaining.is_empty() || !report.failures.is_empty() {
                break;
            }
        }
        Ok(report)
    }
}

/// Deletes all objects of a kind in a namespace and tells what is left.
async fn empty_kind(
    client: &Client,
    served: &Served,
    namespace: &str,
) -> std::result::Result<Option<Remaining>, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &served.resource);
    let describe = |error: minato_api::kube::Error| format!("{}: {error}", served.resource.plural);
    let list = api.list_metadata(&ListParams::default()).await;
    let found = match list {
        Ok(list) => list.items,
        Err(error) if matches!(code(&error), Some(404 | 405)) => return Ok(None),
        Err(error) => return Err(describe(error)),
    };
    if found.is_empty() {
        return Ok(None);
    }
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    if served.can("deletecollection") {
        match api.delete_collection(&params, &ListParams::default()).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(describe(error)),
        }
    } else {
        for object in &found {
            ops::delete_with(&api, &object.metadata, params.clone())
                .await
                .map_err(describe)?;
        }
    }
    let left = api.list_metadata(&ListParams::default()).await.map_err(describe)?.items;
    let finalizers = left.iter().flat_map(|object| object.finalizers().to_vec()).collect();
    Ok((!left.is_empty()).then(|| Remaining {
        resource: served.resource.plural.clone(),
        group: served.resource.group.clone(),
        count: left.len(),
        finalizers,
    }))
}
