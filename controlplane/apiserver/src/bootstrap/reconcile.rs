//! What becomes of bootstrap objects that exist already.

use std::sync::Arc;

use async_trait::async_trait;
use minato_meta::ApiError;
use serde_json::{Value, json};

use crate::endpoints::transaction::{self, Change, Effects, Stored, Transform};
use crate::endpoints::{Target, metadata};
use crate::server::ApiServer;

/// Set to `false` by administrators who want to keep a default role as they made it.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Gives an existing object back what it lacks.
pub(super) async fn existing(server: &Arc<ApiServer>, target: &Target, wanted: &Value) -> Result<(), ApiError> {
    let group = target.resource.gvr.group.as_str();
    let fields: &[&str] = match (group, target.resource.gvk.kind.as_str()) {
        (RBAC, "ClusterRole" | "Role") => &["rules", "aggregationRule"],
        (RBAC, _) => &["subjects"],
        ("", "Endpoints") => &["subsets"],
        ("discovery.k8s.io", "EndpointSlice") => &["endpoints", "ports"],
        _ => return Ok(()),
    };
    let mut transform = Mend {
        target,
        wanted,
        fields,
        adds: group == RBAC,
    };
    transaction::run(server, target, false, &mut transform).await.map(drop)
}

struct Mend<'a> {
    target: &'a Target,
    wanted: &'a Value,
    fields: &'a [&'static str],
    /// Whether to add what lists lack (roles), or to make them equal (endpoints).
    adds: bool,
}

#[async_trait]
impl Transform for Mend<'_> {
    async fn apply(&mut self, current: Option<&Stored>) -> Result<Change, ApiError> {
        // Gone since the batch saw it: the next round makes it anew.
        let current = current.ok_or_else(|| self.target.not_found())?;
        let kept = current
            .object
            .pointer("/metadata/annotations")
            .and_then(|a| a.get(AUTO_UPDATE));
        if self.adds && kept == Some(&json!("false")) || metadata::is_deleting(&current.object) {
            return Ok(Change::Keep);
        }
        let mut object = current.object.clone();
        for field in self.fields {
            let Some(wanted) = self.wanted.get(*field) else {
                continue;
            };
            match (wanted, object.get_mut(*field), self.adds) {
                (Value::Array(wanted), Some(Value::Array(present)), true) => {
                    // An aggregated role's rules are the controller's.
                    for item in wanted {
                        if !present.iter().any(|p| covers(p, item)) {
                            present.push(item.clone());
                        }
                    }
                }
                (_, Some(present), false) if same_list(present, wanted) => {}
                (_, Some(_), true) => {}
                _ => object[*field] = wanted.clone(),
            }
        }
        if object == current.object {
            return Ok(Change::Keep);
        }
        Ok(Change::Put {
            object,
            effects: Effects::default(),
        })
    }
}

/// Whether an item has all that is wanted of it; defaults that it has besides do not matter.
fn covers(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| present.get(key).is_some_and(|p| covers(p, value))),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(p, w)| covers(p, w))
        }
        _ => present == wanted,
    }
}

fn same_list(present: &Value, wanted: &Value) -> bool {
    covers(present, wanted)
}
