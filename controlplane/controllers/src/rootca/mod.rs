//! Every namespace has a ConfigMap with the certificates that pods trust the API server by.

use std::collections::BTreeMap;
use std::sync::Arc;

use minato_api::k8s::core::v1::{ConfigMap, Namespace};
use minato_api::kube::Api;
use minato_api::kube::api::PostParams;
use minato_api::meta_v1::ObjectMeta;
use minato_runtime::{Controller, Informer, Next, ObjectKey, WatchScope};
use serde_json::json;

use crate::Context;
use crate::error::{Result, is_already_exists, is_namespace_terminating, is_not_found};
use crate::ops;

const NAME: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Certificates by which clients within the cluster trust the API server.",
);

struct RootCa {
    cx: Context,
    certificates: String,
    namespaces: Informer<Namespace>,
    /// Only maps of that one name: a cache of all ConfigMaps would be the largest of all.
    maps: Informer<ConfigMap>,
}

/// Starts the controller, if there is a certificate to publish.
pub(crate) fn start(cx: &Context) {
    let Some(certificates) = cx.config.root_ca.clone() else {
        return;
    };
    let scope = WatchScope {
        fields: Some(format!("metadata.name={NAME}")),
        labels: None,
    };
    let this = Arc::new(RootCa {
        cx: cx.clone(),
        certificates,
        namespaces: cx.informer(),
        maps: Informer::start(Api::all(cx.reader()), scope, &cx.runtime.tasks),
    });
    Controller::new("root-ca-certificate-publisher", &cx.runtime)
        .watch_primary(&this.namespaces)
        .watch(&this.maps, |change, add| {
            if ops::name(&change.object().metadata) == NAME {
                add(ObjectKey::cluster(ops::namespace(&change.object().metadata)));
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl RootCa {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(namespace) = self.namespaces.get(&key) else {
            return Ok(Next::Done);
        };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let api = ops::namespaced::<ConfigMap>(self.cx.client(), &key.name);
        let data: BTreeMap<_, _> = [(FILE.to_owned(), self.certificates.clone())].into();
        let sent = match self.maps.get_in(&key.name, NAME) {
            Some(map) if map.data.as_ref() == Some(&data) => return Ok(Next::Done),
            Some(map) => ops::merge(&api, &map.metadata, json!({"data": data})).await,
            None => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_owned()),
                        namespace: Some(key.name.clone()),
                        annotations: Some([(DESCRIPTION.0.to_owned(), DESCRIPTION.1.to_owned())].into()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    ..ConfigMap::default()
                };
                api.create(&PostParams::default(), &map).await
            }
        };
        match sent {
            Ok(_) => Ok(Next::Done),
            Err(e) if is_already_exists(&e) || is_namespace_terminating(&e) || is_not_found(&e) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }
}
