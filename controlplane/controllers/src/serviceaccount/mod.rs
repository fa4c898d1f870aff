//! Every namespace has the ServiceAccount `default`, which pods run as that name no other.

use std::sync::Arc;

use minato_api::k8s::core::v1::{Namespace, ServiceAccount};
use minato_api::kube::api::PostParams;
use minato_api::meta_v1::ObjectMeta;
use minato_runtime::{Change, Controller, Informer, Next, ObjectKey};

use crate::Context;
use crate::error::{Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::ops;

const DEFAULT: &str = "default";

struct ServiceAccounts {
    cx: Context,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(ServiceAccounts {
        cx: cx.clone(),
        namespaces: cx.informer(),
        accounts: cx.informer(),
    });
    Controller::new("serviceaccount", &cx.runtime)
        .watch_primary(&this.namespaces)
        .watch(&this.accounts, |change, add| {
            let meta = &change.object().metadata;
            if matches!(change, Change::Deleted(_)) && ops::name(meta) == DEFAULT {
                add(ObjectKey::cluster(ops::namespace(meta)));
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl ServiceAccounts {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(namespace) = self.namespaces.get(&key) else {
            return Ok(Next::Done);
        };
        let there = self.accounts.get_in(&key.name, DEFAULT).is_some();
        if there || namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(DEFAULT.to_owned()),
                namespace: Some(key.name.clone()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        let api = ops::namespaced::<ServiceAccount>(self.cx.client(), &key.name);
        match api.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(Next::Done),
            Err(e) if is_already_exists(&e) || is_namespace_terminating(&e) || is_not_found(&e) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }
}
