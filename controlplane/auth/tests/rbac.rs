//! Decisions by role, against tables and against a reading of all roles and bindings one by one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use minato_auth::{
    Attributes, Authorizer, Decision, MastersAuthorizer, RbacAuthorizer, RoleWrite, UnionAuthorizer, UserInfo,
    bootstrap_objects,
};
use minato_meta::{ClusterReader, GroupResource, MemoryReader};
use proptest::prelude::*;
use serde_json::{Value, json};

fn rbac(resource: &str) -> GroupResource {
    GroupResource::new("rbac.authorization.k8s.io", resource)
}

fn resource_of(object: &Value) -> GroupResource {
    rbac(&format!("{}s", object["kind"].as_str().unwrap().to_lowercase()))
}

fn put(reader: &MemoryReader, object: Value) {
    reader.put(&resource_of(&object), object);
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        ..UserInfo::default()
    }
}

/// `VERB GROUP RESOURCE[/SUB] NAMESPACE NAME` (`-` for nothing), or `VERB /PATH`.
fn ask(user: &UserInfo, text: &str) -> Attributes {
    let parts: Vec<&str> = text.split(' ').map(|p| if p == "-" { "" } else { p }).collect();
    if let [verb, path] = parts.as_slice() {
        return Attributes {
            user: user.clone(),
            verb: (*verb).into(),
            path: (*path).into(),
            ..Attributes::default()
        };
    }
    let (resource, subresource) = parts[2].split_once('/').unwrap_or((parts[2], ""));
    Attributes {
        user: user.clone(),
        verb: parts[0].into(),
        is_resource: true,
        group: parts[1].into(),
        version: "v1".into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: parts[3].into(),
        name: parts.get(4).unwrap_or(&"").to_string(),
        ..Attributes::default()
    }
}

fn allowed(authorizer: &RbacAuthorizer, user: &UserInfo, text: &str) -> bool {
    matches!(authorizer.decide(&ask(user, text)), Decision::Allow(_))
}

fn bootstrapped() -> (Arc<MemoryReader>, RbacAuthorizer) {
    let reader = Arc::new(MemoryReader::new());
    for object in bootstrap_objects() {
        put(&reader, object);
    }
    (reader.clone(), RbacAuthorizer::new(reader))
}

fn binding(namespace: &str, name: &str, role_kind: &str, role: &str, subjects: Value) -> Value {
    let mut binding = json!({
        "kind": if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" },
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    });
    if !namespace.is_empty() {
        binding["metadata"]["namespace"] = json!(namespace);
    }
    binding
}

#[test]
fn what_a_fresh_cluster_allows() {
    let (reader, authorizer) = bootstrapped();
    let jane = json!([{"kind": "User", "name": "jane"}]);
    put(&reader, binding("dev", "jane", "ClusterRole", "edit", jane));
    put(
        &reader,
        binding(
            "",
            "viewers",
            "ClusterRole",
            "view",
            json!([{"kind": "Group", "name": "viewers"}]),
        ),
    );
    let anonymous = user("system:anonymous", &["system:unauthenticated"]);
    let anybody = user("joe", &["system:authenticated"]);
    let jane = user("jane", &["system:authenticated"]);
    let viewer = user("v", &["viewers", "system:authenticated"]);
    let account = user(
        "system:serviceaccount:kube-system:deployment-controller",
        &[
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    );
    let bootstrapper = user(
        "system:bootstrap:abcdef",
        &["system:bootstrappers", "system:authenticated"],
    );
    let scheduler = user("system:kube-scheduler", &["system:authenticated"]);
    let table = [
        (&anonymous, "get /healthz", true),
        (&anonymous, "get /version", true),
        (&anonymous, "get /readyz", true),
        (&anonymous, "get /api", false),
        (&anonymous, "get /apis/apps/v1", false),
        (&anonymous, "get /metrics", false),
        (&anonymous, "get /openid/v1/jwks", false),
        (&anonymous, "list - pods default", false),
        (&anonymous, "create authentication.k8s.io selfsubjectreviews - -", false),
        (&anybody, "get /apis/apps/v1", true),
        (&anybody, "get /openapi/v3", true),
        (
            &anybody,
            "create authorization.k8s.io selfsubjectaccessreviews - -",
            true,
        ),
        (&anybody, "create authentication.k8s.io selfsubjectreviews - -", true),
        (&anybody, "list - pods default", false),
        (&jane, "create apps deployments dev", true),
        (&jane, "update apps deployments/scale dev d", true),
        (&jane, "get - secrets dev s", true),
        (&jane, "get - pods/log dev p", true),
        (&jane, "create - pods/exec dev p", true),
        (&jane, "create - pods/eviction dev p", true),
        (&jane, "create apps deployments other", false),
        (&jane, "create rbac.authorization.k8s.io roles dev", false),
        (&jane, "get - nodes - n", false),
        (&viewer, "list - pods any", true),
        (&viewer, "list - pods -", true),
        (&viewer, "get - secrets any s", false),
        (&viewer, "delete - pods any p", false),
        (&account, "create apps replicasets any", true),
        (&account, "update apps deployments/status any d", true),
        (&account, "delete apps deployments any d", false),
        (&account, "get /openid/v1/jwks", true),
        (
            &bootstrapper,
            "create certificates.k8s.io certificatesigningrequests - -",
            true,
        ),
        (
            &bootstrapper,
            "create certificates.k8s.io certificatesigningrequests/nodeclient - -",
            true,
        ),
        (&bootstrapper, "get - nodes - n", false),
        (&scheduler, "create - pods/binding any p", true),
        (
            &scheduler,
            "update coordination.k8s.io leases kube-system kube-scheduler",
            true,
        ),
        (&scheduler, "update coordination.k8s.io leases default other", false),
        (&scheduler, "create - pods any", false),
    ];
    for (user, text, expected) in table {
        assert_eq!(allowed(&authorizer, user, text), expected, "{} {text}", user.name);
    }
    // The role and who it was given to are told.
    assert_eq!(
        authorizer.decide(&ask(&jane, "get - pods dev p")),
        Decision::Allow(r#"RBAC: allowed by RoleBinding "jane/dev" of ClusterRole "edit" to User "jane""#.into())
    );
    assert_eq!(
        authorizer.decide(&ask(&account, "create apps replicasets any")),
        Decision::Allow(
            r#"RBAC: allowed by ClusterRoleBinding "system:controller:deployment-controller" of ClusterRole "system:controller:deployment-controller" to ServiceAccount "deployment-controller/kube-system""#
                .into()
        )
    );
}

#[tokio::test]
async fn masters_need_no_role() {
    let reader = Arc::new(MemoryReader::new());
    let union = UnionAuthorizer::new(vec![Arc::new(MastersAuthorizer), Arc::new(RbacAuthorizer::new(reader))]);
    let root = user("root", &["system:masters"]);
    for text in [
        "delete - nodes - n",
        "get /metrics",
        "escalate rbac.authorization.k8s.io clusterroles - x",
    ] {
        assert!(matches!(union.authorize(&ask(&root, text)).await, Decision::Allow(_)));
        let joe = user("joe", &["system:authenticated"]);
        assert!(matches!(
            union.authorize(&ask(&joe, text)).await,
            Decision::NoOpinion(_)
        ));
    }
    let rules = union.rules_for(&root, "any").await;
    assert_eq!(rules.resource_rules[0].verbs, ["*"]);
}

#[test]
fn aggregation_follows_labels() {
    let (reader, authorizer) = bootstrapped();
    put(
        &reader,
        binding(
            "dev",
            "a",
            "ClusterRole",
            "admin",
            json!([{"kind": "User", "name": "ann"}]),
        ),
    );
    put(
        &reader,
        binding(
            "dev",
            "v",
            "ClusterRole",
            "view",
            json!([{"kind": "User", "name": "vic"}]),
        ),
    );
    let (ann, vic) = (user("ann", &[]), user("vic", &[]));
    let text = "get example.com widgets dev w";
    let role = |label: &str| {
        json!({"kind": "ClusterRole", "metadata": {"name": "widgets", "labels": {label: "true"}},
               "rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}]})
    };
    assert!(!allowed(&authorizer, &ann, text));
    put(&reader, role("rbac.authorization.k8s.io/aggregate-to-view"));
    assert!(allowed(&authorizer, &vic, text), "view");
    assert!(allowed(&authorizer, &ann, text), "view is part of edit, edit of admin");
    put(&reader, role("rbac.authorization.k8s.io/aggregate-to-admin"));
    assert!(!allowed(&authorizer, &vic, text), "relabelled");
    assert!(allowed(&authorizer, &ann, text));
    reader.remove(&rbac("clusterroles"), None, "widgets");
    assert!(!allowed(&authorizer, &ann, text), "gone");
    // Two that gather each other end somewhere.
    for (name, other) in [("a", "b"), ("b", "a")] {
        put(
            &reader,
            json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": {name: "true"}}, "rules": [],
                   "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {other: "true"}}]}}),
        );
    }
    assert!(!allowed(&authorizer, &ann, "get - nodes - n"));
}

#[test]
fn a_binding_without_its_role_says_so() {
    let (reader, authorizer) = bootstrapped();
    put(
        &reader,
        binding("dev", "x", "Role", "nope", json!([{"kind": "User", "name": "joe"}])),
    );
    let joe = user("joe", &[]);
    assert_eq!(
        authorizer.decide(&ask(&joe, "get - pods dev p")),
        Decision::NoOpinion(r#"RBAC: role.rbac.authorization.k8s.io "nope" not found"#.into())
    );
    // A service account without a namespace is one of the binding's.
    put(
        &reader,
        binding(
            "dev",
            "y",
            "ClusterRole",
            "view",
            json!([{"kind": "ServiceAccount", "name": "sa"}]),
        ),
    );
    assert!(allowed(
        &authorizer,
        &user("system:serviceaccount:dev:sa", &[]),
        "get - pods dev p"
    ));
    assert!(!allowed(
        &authorizer,
        &user("system:serviceaccount:other:sa", &[]),
        "get - pods dev p"
    ));
    // Malformed objects grant nothing and break nothing.
    for object in [
        json!({"kind": "RoleBinding"}),
        json!({"kind": "RoleBinding", "metadata": {"name": 1}}),
    ] {
        reader.put(&rbac("rolebindings"), object);
    }
    assert!(allowed(
        &authorizer,
        &user("system:serviceaccount:dev:sa", &[]),
        "get - pods dev p"
    ));
}

async fn write(
    authorizer: &RbacAuthorizer,
    user: &UserInfo,
    resource: &str,
    namespace: &str,
    object: &Value,
    old: &Value,
) -> Result<(), String> {
    let write = RoleWrite {
        user,
        resource,
        namespace,
        name: object["metadata"]["name"].as_str().unwrap(),
        object,
        old,
    };
    let result = authorizer.check_write(&write, authorizer).await;
    result.map_err(|e| format!("{} {}", e.code(), e.message()))
}

#[tokio::test]
async fn nobody_gives_what_they_do_not_have() {
    let (reader, rbac) = bootstrapped();
    put(
        &reader,
        binding(
            "dev",
            "ann",
            "ClusterRole",
            "admin",
            json!([{"kind": "User", "name": "ann"}]),
        ),
    );
    let ann = user("ann", &["devs"]);
    let role = |verbs: &[&str], resource: &str| {
        json!({"kind": "Role", "metadata": {"namespace": "dev", "name": "r"},
               "rules": [{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]})
    };
    let none = Value::Null;
    assert_eq!(
        write(&rbac, &ann, "roles", "dev", &role(&["get", "delete"], "pods"), &none).await,
        Ok(())
    );
    assert_eq!(
        write(&rbac, &ann, "roles", "dev", &role(&["get", "watch"], "nodes"), &none)
            .await
            .unwrap_err(),
        "403 roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"ann\" (groups=[\"devs\"]) is attempting to grant \
         RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"watch\"]}"
    );
    // What she has in one namespace she does not have in another.
    assert!(
        write(&rbac, &ann, "roles", "other", &role(&["get"], "pods"), &none)
            .await
            .is_err()
    );
    // Old rules may stay while labels change; new ones may not come.
    let nodes = role(&["get"], "nodes");
    let mut labelled = nodes.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(write(&rbac, &ann, "roles", "dev", &labelled, &nodes).await, Ok(()));
    assert!(
        write(&rbac, &ann, "roles", "dev", &role(&["get", "list"], "nodes"), &nodes)
            .await
            .is_err()
    );
    // To gather by label is to get whatever will be labelled.
    let gathering = json!({"kind": "ClusterRole", "metadata": {"name": "g"}, "rules": [],
                           "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    assert!(write(&rbac, &ann, "clusterroles", "", &gathering, &none).await.is_err());
    let root = user("root", &["system:masters"]);
    assert_eq!(write(&rbac, &root, "clusterroles", "", &gathering, &none).await, Ok(()));

    let bind =
        |role_kind: &str, role: &str| binding("dev", "b", role_kind, role, json!([{"kind": "User", "name": "x"}]));
    for (kind, name, expected) in [
        ("ClusterRole", "view", None),
        ("ClusterRole", "admin", None),
        ("ClusterRole", "cluster-admin", Some("403")),
        ("ClusterRole", "system:node", Some("403")),
        ("ClusterRole", "nope", Some("404")),
        ("Role", "nope", Some("404")),
    ] {
        let result = write(&rbac, &ann, "rolebindings", "dev", &bind(kind, name), &none).await;
        assert_eq!(
            result.as_ref().err().map(|e| &e[..3]),
            expected,
            "{kind} {name}: {result:?}"
        );
    }
    let cluster_wide = binding("", "b", "ClusterRole", "view", json!([]));
    assert!(
        write(&rbac, &ann, "clusterrolebindings", "", &cluster_wide, &none)
            .await
            .is_err()
    );
    // Unless the power to bind or to escalate was given.
    put(
        &reader,
        json!({"kind": "Role", "metadata": {"namespace": "dev", "name": "powers"}, "rules": [
            {"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["system:node"]},
            {"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["r"]},
        ]}),
    );
    put(
        &reader,
        binding(
            "dev",
            "powers",
            "Role",
            "powers",
            json!([{"kind": "Group", "name": "devs"}]),
        ),
    );
    assert_eq!(
        write(
            &rbac,
            &ann,
            "rolebindings",
            "dev",
            &bind("ClusterRole", "system:node"),
            &none
        )
        .await,
        Ok(())
    );
    assert!(
        write(
            &rbac,
            &ann,
            "rolebindings",
            "dev",
            &bind("ClusterRole", "cluster-admin"),
            &none
        )
        .await
        .is_err()
    );
    assert_eq!(
        write(&rbac, &ann, "roles", "dev", &role(&["get"], "nodes"), &none).await,
        Ok(())
    );
    // Other resources are none of this.
    assert_eq!(
        write(&rbac, &ann, "pods", "dev", &role(&["get"], "nodes"), &none).await,
        Ok(())
    );
}

#[tokio::test]
async fn rules_are_listed() {
    let (reader, authorizer) = bootstrapped();
    put(
        &reader,
        binding(
            "dev",
            "ann",
            "ClusterRole",
            "view",
            json!([{"kind": "User", "name": "ann"}]),
        ),
    );
    let rules = authorizer
        .rules_for(&user("ann", &["system:authenticated"]), "dev")
        .await;
    assert!(!rules.incomplete);
    assert!(
        rules
            .resource_rules
            .iter()
            .any(|r| r.resources.as_ref().unwrap().contains(&"pods".to_owned()))
    );
    assert!(
        rules
            .non_resource_rules
            .iter()
            .any(|r| r.non_resource_urls.as_ref().unwrap().contains(&"/version".to_owned()))
    );
    let elsewhere = authorizer
        .rules_for(&user("ann", &["system:authenticated"]), "other")
        .await;
    assert!(elsewhere.resource_rules.len() < rules.resource_rules.len());
    let unfilled = RbacAuthorizer::new(Arc::new(MemoryReader::new()));
    assert!(unfilled.rules_for(&user("ann", &[]), "dev").await.incomplete);
}

#[test]
fn a_decision_does_not_wait_for_ten_thousand_bindings() {
    let (reader, authorizer) = bootstrapped();
    for at in 0..10_000 {
        let subjects = json!([{"kind": "User", "name": format!("u{}", at % 1000)}]);
        put(
            &reader,
            binding(
                &format!("ns{}", at % 100),
                &format!("b{at}"),
                "ClusterRole",
                "edit",
                subjects,
            ),
        );
    }
    let someone = user("u7", &["system:authenticated", "devs", "ops"]);
    assert!(allowed(&authorizer, &someone, "get - pods ns7 p"));
    let requests = [
        ask(&someone, "create apps deployments ns7"),
        ask(&someone, "create apps deployments ns8"),
        ask(&someone, "get /apis"),
    ];
    let start = std::time::Instant::now();
    let rounds = 2000;
    for _ in 0..rounds {
        for request in &requests {
            std::hint::black_box(authorizer.decide(request));
        }
    }
    let each = start.elapsed() / (rounds * 3);
    println!("{each:?} per decision");
    // Unoptimized code, on a busy machine; a scan of all bindings would take milliseconds.
    assert!(each.as_micros() < 200, "{each:?}");
}

/// The definition of the decision, without any index: all bindings, all their subjects, all rules.
fn naive(reader: &MemoryReader, request: &Attributes) -> bool {
    let all = |resource: &str| -> Vec<Value> {
        let objects = reader.list(&rbac(resource), None);
        objects
            .iter()
            .map(|o| serde_json::from_slice(&o.json).unwrap())
            .collect()
    };
    let text = |value: &Value, path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut bindings = all("clusterrolebindings");
    let local = all("rolebindings").into_iter();
    bindings
        .extend(local.filter(|b| !request.namespace.is_empty() && text(b, "/metadata/namespace") == request.namespace));
    let (roles, cluster_roles) = (all("roles"), all("clusterroles"));
    bindings.iter().any(|binding| {
        let namespace = text(binding, "/metadata/namespace");
        let bound = binding["subjects"]
            .as_array()
            .unwrap()
            .iter()
            .any(|s| match s["kind"].as_str().unwrap() {
                "User" => s["name"] == request.user.name.as_str(),
                "Group" => request.user.groups.iter().any(|g| s["name"] == g.as_str()),
                _ => {
                    let of = match text(s, "/namespace") {
                        of if of.is_empty() => namespace.clone(),
                        of => of,
                    };
                    !of.is_empty() && request.user.name == format!("system:serviceaccount:{of}:{}", text(s, "/name"))
                }
            });
        let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let role = if kind == "Role" {
            roles
                .iter()
                .find(|r| text(r, "/metadata/namespace") == namespace && text(r, "/metadata/name") == name)
        } else {
            cluster_roles.iter().find(|r| text(r, "/metadata/name") == name)
        };
        bound
            && role.is_some_and(|role| {
                role["rules"].as_array().unwrap().iter().any(|rule| {
                    let has = |field: &str, wanted: &str| {
                        rule[field]
                            .as_array()
                            .is_some_and(|l| l.iter().any(|v| v == "*" || v == wanted))
                    };
                    let names = rule["resourceNames"].as_array();
                    has("verbs", &request.verb)
                        && has("apiGroups", &request.group)
                        && has("resources", &request.resource)
                        && names.is_none_or(|n| n.is_empty() || n.iter().any(|v| v == request.name.as_str()))
                })
            })
    })
}

#[derive(Debug, Clone)]
enum Step {
    Put(Value),
    Remove(&'static str, &'static str, &'static str),
    Forget(&'static str),
    Ask(Box<Attributes>),
}

fn step() -> impl Strategy<Value = Step> {
    let namespace = prop_oneof![Just("a"), Just("b")];
    let name = prop_oneof![Just("x"), Just("y"), Just("z")];
    let verb = prop_oneof![Just("get"), Just("list"), Just("*")];
    let resource = prop_oneof![Just("pods"), Just("secrets"), Just("*")];
    let names = prop_oneof![3 => Just(json!([])), 1 => Just(json!(["n"]))];
    let rule = (verb, resource, names)
        .prop_map(|(verb, resource, names)| json!({"verbs": [verb], "apiGroups": [""], "resources": [resource], "resourceNames": names}));
    let role = (
        any::<bool>(),
        namespace.clone(),
        name.clone(),
        prop::collection::vec(rule, 0..3),
    )
        .prop_map(|(cluster, namespace, name, rules)| {
            if cluster {
                json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
            } else {
                json!({"kind": "Role", "metadata": {"name": name, "namespace": namespace}, "rules": rules})
            }
        });
    let subject = prop_oneof![
        Just(json!({"kind": "User", "name": "u1"})),
        Just(json!({"kind": "User", "name": "u2"})),
        Just(json!({"kind": "Group", "name": "g1"})),
        Just(json!({"kind": "Group", "name": "g2"})),
        Just(json!({"kind": "ServiceAccount", "name": "s"})),
        Just(json!({"kind": "ServiceAccount", "name": "s", "namespace": "b"})),
    ];
    let bound = (
        any::<bool>(),
        namespace.clone(),
        name.clone(),
        any::<bool>(),
        name.clone(),
        prop::collection::vec(subject, 0..3),
    )
        .prop_map(|(cluster, namespace, name, to_role, role, subjects)| {
            let kind = if to_role && !cluster { "Role" } else { "ClusterRole" };
            binding(if cluster { "" } else { namespace }, name, kind, role, json!(subjects))
        });
    let kinds = prop_oneof![
        Just("roles"),
        Just("clusterroles"),
        Just("rolebindings"),
        Just("clusterrolebindings")
    ];
    let asked = (
        prop_oneof![
            Just("u1"),
            Just("u3"),
            Just("system:serviceaccount:a:s"),
            Just("system:serviceaccount:b:s")
        ],
        prop::sample::subsequence(vec!["g1", "g2", "g3"], 0..3),
        prop_oneof![Just("get"), Just("list"), Just("delete")],
        prop_oneof![Just("pods"), Just("secrets"), Just("nodes")],
        prop_oneof![Just("a"), Just("b"), Just("")],
        prop_oneof![Just("n"), Just("m"), Just("")],
    )
        .prop_map(|(name, groups, verb, resource, namespace, object)| {
            let namespace = if namespace.is_empty() { "-" } else { namespace };
            let object = if object.is_empty() { "-" } else { object };
            Step::Ask(Box::new(ask(
                &user(name, &groups),
                &format!("{verb} - {resource} {namespace} {object}"),
            )))
        });
    prop_oneof![
        3 => role.prop_map(Step::Put),
        3 => bound.prop_map(Step::Put),
        1 => (kinds.clone(), namespace, name).prop_map(|(kind, namespace, name)| {
            Step::Remove(kind, if kind.starts_with("cluster") { "" } else { namespace }, name)
        }),
        1 => kinds.prop_map(Step::Forget),
        4 => asked,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_index_decides_as_a_reading_of_everything_would(steps in prop::collection::vec(step(), 1..60)) {
        let reader = Arc::new(MemoryReader::new());
        let authorizer = RbacAuthorizer::new(reader.clone());
        for step in steps {
            match step {
                Step::Put(object) => put(&reader, object),
                Step::Remove(kind, namespace, name) => {
                    reader.remove(&rbac(kind), (!namespace.is_empty()).then_some(namespace), name);
                }
                Step::Forget(kind) => reader.forget_history(&rbac(kind)),
                Step::Ask(request) => {
                    let decided = matches!(authorizer.decide(&request), Decision::Allow(_));
                    prop_assert_eq!(decided, naive(&reader, &request), "{:?}", request);
                }
            }
        }
    }
}
