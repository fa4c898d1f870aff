//! The roles and bindings that every cluster has from its start.
//!
//! Their names and rules are part of the contract: components, charts and manuals refer to them. They are kept as lines of
//! facts, `VERBS GROUPS RESOURCES [NAMES]` or `VERBS url PATHS`, lists by comma, `core` for the core group, and short
//! forms `R` (read), `W` (write) and `RW` for verbs; the line `E` lets somebody write events.
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>.

mod cluster;
mod controllers;
mod namespaced;

use serde_json::{Value, json};

use crate::rbac::Rule;

const GROUP: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";
const READ: &str = "get,list,watch";
const WRITE: &str = "create,delete,deletecollection,patch,update";
const EVENTS: &str = "create,patch,update core,events.k8s.io events";

/// A cluster role: name, the aggregated role that it becomes part of (or nothing), rules.
type ClusterRole = (&'static str, &'static str, &'static [&'static str]);
/// A cluster role that gathers others: name, what it becomes part of itself (or nothing).
type Aggregate = (&'static str, &'static str);
/// A cluster role binding: name, cluster role, subjects.
type ClusterBinding = (&'static str, &'static str, &'static [&'static str]);
/// A role or binding in a namespace: namespace, name, rules or role and subjects.
type Role = (&'static str, &'static str, &'static [&'static str]);
type Binding = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// All of them, as objects to create, or to give back what they lack.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut all = Vec::new();
    for (name, part_of, lines) in cluster::ROLES {
        all.push(cluster_role(name, part_of, json!(rules(lines))));
    }
    for aggregate in cluster::AGGREGATES {
        all.push(aggregated_role(aggregate));
    }
    for (name, lines) in controllers::ROLES {
        let role = format!("system:controller:{name}");
        all.push(cluster_role(&role, "", json!(rules(lines))));
        all.push(cluster_binding(&role, &role, &[&format!("account kube-system/{name}")]));
    }
    for (name, role, subjects) in cluster::BINDINGS {
        all.push(cluster_binding(name, role, subjects));
    }
    for (namespace, name, lines) in namespaced::ROLES {
        let mut role = object("Role", name);
        role["metadata"]["namespace"] = json!(namespace);
        role["rules"] = json!(rules(lines));
        all.push(role);
    }
    for (namespace, name, role, subjects) in namespaced::BINDINGS {
        let mut binding = object("RoleBinding", name);
        binding["metadata"]["namespace"] = json!(namespace);
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "Role", "name": role});
        binding["subjects"] = subjects.iter().map(|s| subject(s)).collect();
        all.push(binding);
    }
    all
}

/// What the Node authorizer lets every kubelet do, unless it knows better.
pub(crate) fn node_rules() -> Vec<Rule> {
    rules(cluster::NODE)
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    })
}

fn part_label(aggregate: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{aggregate}")
}

fn cluster_role(name: &str, part_of: &str, rules: Value) -> Value {
    let mut role = object("ClusterRole", name);
    if !part_of.is_empty() {
        role["metadata"]["labels"][part_label(part_of)] = json!("true");
    }
    role["rules"] = rules;
    role
}

/// An aggregated role has its rules from the start, and a controller keeps them so.
fn aggregated_role((name, part_of): &Aggregate) -> Value {
    let mut gathered = Vec::new();
    gather(name, &mut gathered);
    let mut role = cluster_role(name, part_of, json!(gathered));
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {part_label(name): "true"}}]});
    role
}

fn gather(aggregate: &str, rules_so_far: &mut Vec<Rule>) {
    for (_, _, lines) in cluster::ROLES.iter().filter(|(_, part_of, _)| *part_of == aggregate) {
        for rule in rules(lines) {
            if !rules_so_far.contains(&rule) {
                rules_so_far.push(rule);
            }
        }
    }
    for (name, _) in cluster::AGGREGATES.iter().filter(|(_, part_of)| *part_of == aggregate) {
        gather(name, rules_so_far);
    }
}

fn cluster_binding(name: &str, role: &str, subjects: &[&str]) -> Value {
    let mut binding = object("ClusterRoleBinding", name);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role});
    if !subjects.is_empty() {
        binding["subjects"] = subjects.iter().map(|s| subject(s)).collect();
    }
    binding
}

/// `user NAME`, `group NAME` or `account NAMESPACE/NAME`.
fn subject(text: &str) -> Value {
    let (kind, name) = text.split_once(' ').unwrap_or(("", text));
    match (kind, name.split_once('/')) {
        ("account", Some((namespace, name))) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        ("group", _) => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        _ => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
    }
}

fn rules(lines: &[&str]) -> Vec<Rule> {
    lines
        .iter()
        .map(|line| rule(if *line == "E" { EVENTS } else { line }))
        .collect()
}

fn rule(line: &str) -> Rule {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut fields = line.split(' ');
    let mut field = || fields.next().unwrap_or_default();
    let verbs = match field() {
        "R" => list(READ),
        "W" => list(WRITE),
        "RW" => list(&format!("{READ},{WRITE}")),
        other => list(other),
    };
    let (groups, resources, names) = (field(), field(), field());
    if groups == "url" {
        return Rule {
            verbs,
            non_resource_urls: list(resources),
            ..Rule::default()
        };
    }
    let group = |g: &str| if g == "core" { String::new() } else { g.to_owned() };
    Rule {
        verbs,
        api_groups: groups.split(',').map(group).collect(),
        resources: list(resources),
        resource_names: if names.is_empty() { Vec::new() } else { list(names) },
        non_resource_urls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
        let found = all.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    #[test]
    fn lines_become_rules() {
        assert_eq!(
            json!(rule("R core,apps pods,pods/log a,b")),
            json!({"verbs": ["get", "list", "watch"], "apiGroups": ["", "apps"], "resources": ["pods", "pods/log"],
                   "resourceNames": ["a", "b"]})
        );
        assert_eq!(
            json!(rule("get url /healthz,/livez")),
            json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez"]})
        );
    }

    #[test]
    fn every_line_is_well_formed() {
        let verbs: HashSet<&str> = [
            "get",
            "list",
            "watch",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
            "*",
            "impersonate",
            "approve",
            "sign",
            "escalate",
            "proxy",
            "attest",
        ]
        .into();
        let mut names = HashSet::new();
        for object in bootstrap_objects() {
            let place = (
                object["kind"].to_string(),
                object["metadata"]["namespace"].to_string(),
                object["metadata"]["name"].to_string(),
            );
            assert!(names.insert(place.clone()), "{place:?} is there twice");
            for rule in object["rules"].as_array().into_iter().flatten() {
                let rule: Rule = serde_json::from_value(rule.clone()).unwrap();
                assert!(
                    rule.verbs.iter().all(|v| verbs.contains(v.as_str())),
                    "{place:?} {rule:?}"
                );
                assert_ne!(
                    rule.resources.is_empty(),
                    rule.non_resource_urls.is_empty(),
                    "{place:?} {rule:?}"
                );
                assert!(rule.resources.iter().all(|r| !r.is_empty()), "{place:?} {rule:?}");
                assert!(rule.non_resource_urls.iter().all(|u| u == "*" || u.starts_with('/')));
            }
        }
    }

    #[test]
    fn every_binding_has_its_role_and_every_controller_both() {
        let all = bootstrap_objects();
        for binding in all.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("Binding")) {
            let role = &binding["roleRef"];
            find(&all, role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
        }
        let name = "system:controller:deployment-controller";
        find(&all, "ClusterRole", name);
        assert_eq!(
            find(&all, "ClusterRoleBinding", name)["subjects"],
            json!([{"kind": "ServiceAccount", "name": "deployment-controller", "namespace": "kube-system"}])
        );
        // Nodes have their own authorizer: the binding is there, and binds nobody.
        assert_eq!(find(&all, "ClusterRoleBinding", "system:node").get("subjects"), None);
    }

    #[test]
    fn admin_holds_what_edit_holds_and_edit_what_view_holds() {
        let all = bootstrap_objects();
        let rules = |name: &str| find(&all, "ClusterRole", name)["rules"].as_array().unwrap().clone();
        let (admin, edit, view) = (rules("admin"), rules("edit"), rules("view"));
        assert!(view.iter().all(|r| edit.contains(r)) && edit.iter().all(|r| admin.contains(r)));
        assert!(admin.len() > edit.len() && edit.len() > view.len());
        let labels = &find(&all, "ClusterRole", "view")["metadata"]["labels"];
        assert_eq!(labels["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
        let secrets = |rules: &[Value]| {
            rules
                .iter()
                .any(|r| r["resources"].as_array().is_some_and(|r| r.contains(&json!("secrets"))))
        };
        assert!(!secrets(&view) && secrets(&edit));
    }
}
