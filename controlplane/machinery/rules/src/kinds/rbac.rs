//! Who may do what.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SelectorRule, same, selector};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, CREATED_AT, Col, NAME};
use crate::tree::{Tree as _, each, fill_zero, sub_mut};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Rights within a namespace.
#[derive(Default)]
pub(super) struct Role;

/// Rights everywhere, or in the namespaces where it is bound.
#[derive(Default)]
pub(super) struct ClusterRole;

/// A role given to users in a namespace.
#[derive(Default)]
pub(super) struct RoleBinding;

/// A role given to users everywhere.
#[derive(Default)]
pub(super) struct ClusterRoleBinding;

/// What all four kinds share: names may hold colons, and nothing counts their changes.
macro_rules! common {
    () => {
        fn validate_name(&self, name: &str) -> Vec<String> {
            names::path_segment(name)
        }
        fn allow_create_on_update(&self) -> bool {
            true
        }
        fn has_generation(&self) -> bool {
            false
        }
    };
}

impl Strategy for Role {
    common!();

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        rules(&mut errors, object, false);
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, CREATED_AT])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::created_at(object)]
    }
}

impl Strategy for ClusterRole {
    common!();

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        rules(&mut errors, object, true);
        if object.has("aggregationRule") {
            let at = Path::Root.field("aggregationRule");
            let list = at.field("clusterRoleSelectors");
            let selectors = object.at("aggregationRule.clusterRoleSelectors").as_list();
            if selectors.is_empty() {
                errors.required(
                    &list,
                    "at least one clusterRoleSelector required if aggregationRule is non-nil",
                );
            }
            for (index, value) in selectors.iter().enumerate() {
                selector(&mut errors, &list.index(index), value, SelectorRule::Any);
            }
        }
        errors
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, CREATED_AT])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::created_at(object)]
    }
}

impl Strategy for RoleBinding {
    common!();

    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        binding(object, &["ClusterRole", "Role"], true)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        binding_update(self, object, old)
    }

    fn columns(&self) -> Vec<Column> {
        binding_columns()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        binding_cells(object, now)
    }
}

impl Strategy for ClusterRoleBinding {
    common!();

    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        binding(object, &["ClusterRole"], false)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        binding_update(self, object, old)
    }

    fn columns(&self) -> Vec<Column> {
        binding_columns()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        binding_cells(object, now)
    }
}

fn rules(errors: &mut FieldErrors, object: &Value, whole_cluster: bool) {
    let list = Path::Root.field("rules");
    for (index, rule) in object.list("rules").iter().enumerate() {
        let at = list.index(index);
        if rule.list("verbs").is_empty() {
            errors.required(&at.field("verbs"), "verbs must contain at least one value");
        }
        if !rule.list("nonResourceURLs").is_empty() {
            let (at, urls) = (at.field("nonResourceURLs"), rule.sub("nonResourceURLs").clone());
            if !whole_cluster {
                errors.invalid(&at, urls.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            let resources = ["apiGroups", "resources", "resourceNames"];
            if resources.iter().any(|field| !rule.list(field).is_empty()) {
                errors.invalid(
                    &at,
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if rule.list("apiGroups").is_empty() {
            errors.required(
                &at.field("apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if rule.list("resources").is_empty() {
            errors.required(
                &at.field("resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
}

fn default_binding(object: &mut Value) {
    if let Some(role) = sub_mut(object, "roleRef") {
        fill_zero(role, "apiGroup", GROUP);
    }
    for subject in each(object, "subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            fill_zero(subject, "apiGroup", GROUP);
        }
    }
}

fn binding(object: &Value, roles: &[&str], in_namespace: bool) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let (at, role) = (Path::Root.field("roleRef"), object.sub("roleRef"));
    errors.one_of(&at.field("apiGroup"), role.text("apiGroup"), &[GROUP]);
    errors.one_of(&at.field("kind"), role.text("kind"), roles);
    errors.named_required(&at.field("name"), role.text("name"), names::path_segment);
    let list = Path::Root.field("subjects");
    for (index, subject) in object.list("subjects").iter().enumerate() {
        self::subject(&mut errors, &list.index(index), subject, in_namespace);
    }
    errors
}

fn subject(errors: &mut FieldErrors, at: &Path<'_>, subject: &Value, in_namespace: bool) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    if name.is_empty() {
        errors.required(&at.field("name"), "");
    }
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.named(&at.field("name"), name, names::dns1123_subdomain);
            }
            if !group.is_empty() {
                errors.unsupported(&at.field("apiGroup"), group, &[""]);
            }
            if !in_namespace && subject.text("namespace").is_empty() {
                errors.required(&at.field("namespace"), "");
            }
        }
        "User" | "Group" => errors.one_of(&at.field("apiGroup"), group, &[GROUP]),
        other => errors.unsupported(&at.field("kind"), other, &["Group", "ServiceAccount", "User"]),
    }
}

fn binding_update(strategy: &dyn Strategy, object: &Value, old: &Value) -> FieldErrors {
    let mut errors = strategy.validate(object);
    let role = object.sub("roleRef");
    if !same(role, old.sub("roleRef")) {
        errors.invalid(&Path::Root.field("roleRef"), role.clone(), "cannot change roleRef");
    }
    errors
}

fn binding_columns() -> Vec<Column> {
    show::columns(&[
        NAME,
        Col::text("Role", "Kind and name of the role."),
        AGE,
        Col::text("Users", "Users that have the role.").wide(),
        Col::text("Groups", "Groups that have the role.").wide(),
        Col::text("ServiceAccounts", "Service accounts that have the role.").wide(),
    ])
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = object.sub("roleRef");
    let of = |kind: &str| {
        let found = object.list("subjects").iter().filter(|s| s.text("kind") == kind);
        let found = found.map(|s| match (kind, s.text("name")) {
            ("ServiceAccount", name) => format!("{}/{name}", s.text("namespace")),
            (_, name) => name.to_owned(),
        });
        json!(found.collect::<Vec<_>>().join(", "))
    };
    vec![
        show::name(object),
        json!(format!("{}/{}", role.text("kind"), role.text("name"))),
        show::age(object, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn roles() {
        let urls = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]});
        assert!(ClusterRole.validate(&urls).is_empty());
        assert_eq!(
            texts(&Role.validate(&urls)),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/healthz\"]: namespaced rules cannot apply to non-resource URLs"
            ]
        );
        assert_eq!(
            texts(&Role.validate(&json!({"rules": [{}]}))),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        assert!(Role.validate_name("system:a b").is_empty() && !Role.validate_name("a/b").is_empty());
    }

    #[test]
    fn bindings() {
        let mut object = json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [
            {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]});
        RoleBinding.default(&mut object);
        assert!(RoleBinding.validate(&object).is_empty() && ClusterRoleBinding.validate(&object).is_empty());
        let cells = RoleBinding.cells(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1], "ClusterRole/admin");
        assert_eq!(cells[3..6], [json!("ann"), json!("g"), json!("n/s")]);
        let mut other = object.clone();
        other["roleRef"]["name"] = json!("view");
        assert!(texts(&RoleBinding.validate_update(&other, &object))[0].ends_with(": cannot change roleRef"));
        other["roleRef"]["kind"] = json!("Role");
        assert_eq!(
            texts(&ClusterRoleBinding.validate(&other)),
            ["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""]
        );
        let robot = json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "Robot", "name": "r"}]});
        assert_eq!(
            texts(&RoleBinding.validate(&robot)),
            [
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"Group\", \"ServiceAccount\", \"User\""
            ]
        );
    }
}
