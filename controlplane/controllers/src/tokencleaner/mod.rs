//! Deletes bootstrap tokens when they expire.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minato_api::k8s::core::v1::Secret;
use minato_api::kube::Api;
use minato_runtime::{Controller, Informer, Next, ObjectKey, WatchScope};

use crate::error::Result;
use crate::{Context, ops};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

struct TokenCleaner {
    cx: Context,
    secrets: Informer<Secret>,
}

/// Starts the controller. It reads no other Secrets.
pub(crate) fn start(cx: &Context) {
    let scope = WatchScope {
        fields: Some(format!("type={TYPE}")),
        labels: None,
    };
    let api = Api::namespaced(cx.client().clone(), NAMESPACE);
    let this = Arc::new(TokenCleaner {
        cx: cx.clone(),
        secrets: Informer::start(api, scope, &cx.runtime.tasks),
    });
    Controller::new("token-cleaner", &cx.runtime)
        .watch_primary(&this.secrets)
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

/// When a token ends. One whose time cannot be read has ended: nobody accepts it.
fn ends(secret: &Secret) -> Option<Timestamp> {
    let text = secret.data.as_ref()?.get("expiration")?;
    let text = String::from_utf8_lossy(&text.0);
    (!text.is_empty()).then(|| text.parse().unwrap_or(Timestamp::MIN))
}

impl TokenCleaner {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(secret) = self
            .secrets
            .get(&key)
            .filter(|secret| secret.type_.as_deref() == Some(TYPE))
        else {
            return Ok(Next::Done);
        };
        let Some(end) = ends(&secret) else {
            return Ok(Next::Done);
        };
        let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        let api = ops::namespaced::<Secret>(self.cx.client(), NAMESPACE);
        ops::delete(&api, &secret.metadata).await?;
        Ok(Next::Done)
    }
}
