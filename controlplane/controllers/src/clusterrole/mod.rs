//! ClusterRoles with an aggregation rule hold the rules of all roles that they select.

use std::sync::Arc;

use minato_api::k8s::rbac::v1::{ClusterRole, PolicyRule};
use minato_api::kube::Api;
use minato_meta::LabelSelector;
use minato_runtime::{Controller, Informer, Next, ObjectKey};
use serde_json::json;

use crate::Context;
use crate::error::{Result, is_not_found};
use crate::ops;

struct Aggregation {
    cx: Context,
    roles: Informer<ClusterRole>,
}

/// Starts the controller.
pub(crate) fn start(cx: &Context) {
    let this = Arc::new(Aggregation {
        cx: cx.clone(),
        roles: cx.informer(),
    });
    let roles = this.roles.clone();
    Controller::new("clusterrole-aggregation", &cx.runtime)
        .watch(&this.roles, move |change, add| {
            // Aggregating roles are few: a change of any role may concern each of them.
            if change.object().aggregation_rule.is_some() {
                add(ObjectKey::of(change.object().as_ref()));
            }
            for role in roles.list() {
                if role.aggregation_rule.is_some() {
                    add(ObjectKey::of(role.as_ref()));
                }
            }
        })
        .run(move |key| {
            let this = this.clone();
            async move { this.reconcile(key).await }
        });
}

impl Aggregation {
    async fn reconcile(&self, key: ObjectKey) -> Result<Next> {
        let Some(role) = self.roles.get(&key) else {
            return Ok(Next::Done);
        };
        if role.aggregation_rule.is_none() {
            return Ok(Next::Done);
        }
        let rules = aggregated(&role, &self.roles.list())?;
        if role.rules.clone().unwrap_or_default() == rules {
            return Ok(Next::Done);
        }
        let api: Api<ClusterRole> = Api::all(self.cx.client().clone());
        match ops::merge(&api, &role.metadata, json!({"rules": rules})).await {
            Ok(_) => Ok(Next::Done),
            Err(error) if is_not_found(&error) => Ok(Next::Done),
            Err(error) => Err(error.into()),
        }
    }
}

/// The distinct rules of the selected roles, in order of the roles' names.
fn aggregated(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Result<Vec<PolicyRule>> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    let selectors = role
        .aggregation_rule
        .iter()
        .flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    for selector in selectors {
        let selector = LabelSelector::from_typed(Some(selector))?;
        for other in all {
            let labels = other.metadata.labels.clone().unwrap_or_default();
            if other.metadata.name == role.metadata.name || !selector.matches_map(&labels) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use minato_api::k8s::rbac::v1::AggregationRule;
    use minato_api::meta_v1;

    use super::*;

    fn role(name: &str, label: &str, resource: &str) -> ClusterRole {
        let mut role = ClusterRole::default();
        role.metadata.name = Some(name.to_owned());
        role.metadata.labels = Some([(label.to_owned(), "true".to_owned())].into());
        role.rules = Some(vec![PolicyRule {
            verbs: vec!["get".to_owned()],
            resources: Some(vec![resource.to_owned()]),
            ..PolicyRule::default()
        }]);
        role
    }

    #[test]
    fn collects_distinct_rules_of_selected_roles() {
        let mut view = role("view", "self", "old");
        view.aggregation_rule = Some(AggregationRule {
            cluster_role_selectors: Some(vec![meta_v1::LabelSelector {
                match_labels: Some([("to-view".to_owned(), "true".to_owned())].into()),
                ..meta_v1::LabelSelector::default()
            }]),
        });
        let all = [
            role("a", "to-view", "pods"),
            role("b", "to-view", "pods"),
            role("c", "to-view", "services"),
            role("d", "to-edit", "secrets"),
        ]
        .map(Arc::new);
        let rules = aggregated(&view, &all).unwrap();
        let resources: Vec<_> = rules.iter().flat_map(|rule| rule.resources.clone().unwrap()).collect();
        assert_eq!(resources, ["pods", "services"]);
    }
}
