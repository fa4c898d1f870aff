use minato_schema::{Schema, builtin, to_go_shape};
use serde_json::{Value, json};

use super::*;

fn schema(group: &str, version: &str, kind: &str) -> &'static Schema {
    builtin().by_kind(group, version, kind).unwrap()
}

fn deployment_schema() -> &'static Schema {
    schema("apps", "v1", "Deployment")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Writes on one object, one second apart.
struct Cluster {
    schema: &'static Schema,
    version: &'static str,
    object: Option<Value>,
    second: i64,
    ignored: FieldSet,
}

impl Cluster {
    fn new(schema: &'static Schema, version: &'static str) -> Self {
        Self {
            schema,
            version,
            object: None,
            second: 0,
            ignored: FieldSet::default(),
        }
    }

    fn writer<'a>(&'a self, manager: &'a str) -> Writer<'a> {
        Writer {
            manager,
            subresource: "",
            api_version: self.version,
            ignored: &self.ignored,
            now: at(self.second),
        }
    }

    fn try_apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), ApplyError> {
        self.second += 1;
        let result = apply(&Apply {
            live: self.object.as_ref(),
            config: &config,
            schema: self.schema,
            writer: self.writer(manager),
            force,
        })?;
        self.object = Some(result);
        Ok(())
    }

    fn apply(&mut self, manager: &str, config: Value) {
        self.try_apply(manager, config, false).unwrap();
    }

    fn conflict(&mut self, manager: &str, config: Value) -> String {
        self.try_apply(manager, config, false).unwrap_err().to_string()
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.second += 1;
        let mut new = self.object.clone().unwrap_or_else(|| json!({}));
        change(&mut new);
        to_go_shape(&mut new, self.schema);
        track_update(self.object.as_ref(), &mut new, self.schema, &self.writer(manager));
        self.object = Some(new);
    }

    fn get(&self, pointer: &str) -> Value {
        self.object
            .as_ref()
            .unwrap()
            .pointer(pointer)
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// The fields that a manager owns, and how.
    fn owns(&self, manager: &str) -> Option<(String, Value)> {
        let list = self.get("/metadata/managedFields");
        let entry = list.as_array()?.iter().find(|e| e["manager"] == manager)?.clone();
        Some((entry["operation"].as_str()?.to_owned(), entry["fieldsV1"].clone()))
    }
}

fn web(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

#[test]
fn an_apply_owns_what_it_says() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply(
        "me",
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}}}}),
    );
    assert_eq!(
        c.get("/metadata/managedFields"),
        json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "apps/v1", "time": "2023-11-14T22:13:21Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:selector": {},
                    "f:template": {
                        "f:metadata": {"f:labels": {"f:app": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                            ".": {}, "f:name": {}, "f:image": {},
                            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}
                        }}}
                    }
                }
            }
        }])
    );
}

#[test]
fn an_update_owns_what_it_changed() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.update("kubectl-create", |o| {
        *o = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    });
    let (operation, fields) = c.owns("kubectl-create").unwrap();
    assert_eq!(operation, "Update");
    assert_eq!(fields["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
    let pod = &fields["f:spec"]["f:template"]["f:spec"];
    assert_eq!(
        pod["f:containers"],
        json!({"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {}}})
    );
    c.update("scaler", |o| o["spec"]["replicas"] = json!(5));
    assert_eq!(c.owns("scaler").unwrap().1, json!({"f:spec": {"f:replicas": {}}}));
    // Taking a field takes it from its owner.
    c.update("other", |o| o["spec"]["replicas"] = json!(6));
    assert_eq!(c.owns("scaler"), None);
    assert_eq!(c.owns("other").unwrap().1, json!({"f:spec": {"f:replicas": {}}}));
    // Removing a field removes its ownership, and a manager without fields.
    c.update("third", |o| {
        o["spec"].as_object_mut().unwrap().remove("replicas");
    });
    assert_eq!(c.owns("other"), None);
    assert_eq!(c.owns("third"), None);
}

#[test]
fn conflicts_name_the_owner_and_the_field() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("me", web(json!({"paused": true})));
    c.update("kubectl", |o| o["spec"]["replicas"] = json!(2));
    assert_eq!(
        c.conflict("me", web(json!({"paused": true, "replicas": 3}))),
        "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas"
    );
    c.apply("you", web(json!({"minReadySeconds": 5})));
    let error = c
        .try_apply(
            "me",
            web(json!({"paused": true, "replicas": 3, "minReadySeconds": 9})),
            false,
        )
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1:\n- .spec.replicas\n\
         conflicts with \"you\":\n- .spec.minReadySeconds"
    );
    let status = error.into_api_error().to_status();
    assert_eq!((status.code, status.reason.as_deref()), (Some(409), Some("Conflict")));
    let causes = status.details.unwrap().causes.unwrap();
    assert_eq!(causes.len(), 2);
    let kubectl = causes
        .iter()
        .find(|c| c.field.as_deref() == Some(".spec.replicas"))
        .unwrap();
    assert_eq!(kubectl.reason.as_deref(), Some("FieldManagerConflict"));
    assert_eq!(
        kubectl.message.as_deref(),
        Some("conflict with \"kubectl\" using apps/v1")
    );
    assert_eq!(c.get("/spec/replicas"), json!(2), "nothing changed");
}

#[test]
fn force_takes_and_equal_values_are_shared() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("a", web(json!({"replicas": 3, "paused": true})));
    c.apply("b", web(json!({"replicas": 3})));
    assert_eq!(
        c.owns("a").unwrap().1,
        json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})
    );
    assert_eq!(c.owns("b").unwrap().1, json!({"f:spec": {"f:replicas": {}}}));
    c.try_apply("b", web(json!({"replicas": 4})), true).unwrap();
    assert_eq!(c.get("/spec/replicas"), json!(4));
    assert_eq!(c.owns("a").unwrap().1, json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(c.owns("b").unwrap().1, json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn leaving_a_field_out_removes_it_unless_someone_holds_it() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("a", web(json!({"replicas": 3, "paused": true, "minReadySeconds": 1})));
    c.apply("b", web(json!({"replicas": 3})));
    c.update("u", |o| o["spec"]["minReadySeconds"] = json!(2));
    let without_spec = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    c.apply("a", without_spec.clone());
    assert_eq!(c.get("/spec/replicas"), json!(3), "b holds it");
    assert_eq!(c.get("/spec/minReadySeconds"), json!(2), "u took it");
    assert_eq!(c.get("/spec/paused"), Value::Null);
    assert_eq!(c.owns("a"), None);
    c.apply("b", web(json!({})));
    assert_eq!(c.get("/spec/replicas"), Value::Null);
    // An empty object is a value, and owned as one.
    assert_eq!(c.owns("b").unwrap().1, json!({"f:spec": {}}));
}

#[test]
fn list_items_come_and_go_by_key() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    let with = |containers: Value| web(json!({"template": {"spec": {"containers": containers}}}));
    c.apply(
        "a",
        with(json!([{"name": "x", "image": "1"}, {"name": "y", "image": "1"}])),
    );
    c.update("injector", |o| {
        let list = o["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
        list.insert(1, json!({"name": "sidecar", "image": "s"}));
    });
    c.apply("a", with(json!([{"name": "y", "image": "2"}])));
    let names: Vec<(Value, Value)> = c
        .get("/spec/template/spec/containers")
        .as_array()
        .unwrap()
        .iter()
        .map(|i| (i["name"].clone(), i["image"].clone()))
        .collect();
    assert_eq!(names, [(json!("sidecar"), json!("s")), (json!("y"), json!("2"))]);
}

#[test]
fn ports_are_told_apart_by_port_and_protocol() {
    let mut c = Cluster::new(schema("", "v1", "Service"), "v1");
    let dns = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns"}, "spec": {"ports": ports}});
    c.apply(
        "a",
        dns(json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "name": "t"}])),
    );
    c.apply("b", dns(json!([{"port": 53, "protocol": "TCP", "appProtocol": "dns"}])));
    assert_eq!(
        c.get("/spec/ports"),
        json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "name": "t", "protocol": "TCP", "appProtocol": "dns"}])
    );
    let error = c.try_apply("a", dns(json!([{"port": 53}, {"port": 53, "protocol": "TCP"}])), false);
    assert_eq!(
        error.unwrap_err().to_string(),
        "failed to create typed patch object: .spec.ports: duplicate entries for key [port=53,protocol=\"TCP\"]"
    );
}

#[test]
fn sets_maps_and_atomic_lists() {
    let mut c = Cluster::new(schema("", "v1", "Pod"), "v1");
    let pod = |labels: Value, finalizers: Value, args: Value, selector: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels, "finalizers": finalizers},
            "spec": {"containers": [{"name": "c", "args": args}], "nodeSelector": selector}})
    };
    c.apply(
        "a",
        pod(json!({"a": "1"}), json!(["x/a"]), json!(["1"]), json!({"k": "v"})),
    );
    assert_eq!(
        c.conflict("b", pod(json!({}), json!([]), json!(["2"]), json!({"k": "v"}))),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.containers[name=\"c\"].args"
    );
    assert_eq!(
        c.conflict("b", pod(json!({}), json!([]), json!(["1"]), json!({"other": "v"}))),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.nodeSelector"
    );
    c.apply(
        "b",
        pod(json!({"b": "2"}), json!(["x/b"]), json!(["1"]), json!({"k": "v"})),
    );
    assert_eq!(c.get("/metadata/labels"), json!({"a": "1", "b": "2"}));
    assert_eq!(c.get("/metadata/finalizers"), json!(["x/a", "x/b"]));
    c.apply(
        "a",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
    );
    assert_eq!(c.get("/metadata/labels"), json!({"b": "2"}));
    assert_eq!(c.get("/metadata/finalizers"), json!(["x/b"]));
    assert_eq!(c.get("/spec/nodeSelector"), json!({"k": "v"}));
}

#[test]
fn applying_the_same_again_changes_nothing_at_all() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("a", web(json!({"replicas": 3})));
    c.update("u", |o| o["spec"]["paused"] = json!(true));
    let before = c.object.clone();
    c.apply("a", web(json!({"replicas": 3})));
    assert_eq!(c.object, before);
    c.update("u", |_| {});
    assert_eq!(c.object, before);
    c.update("stranger", |_| {});
    assert_eq!(c.object, before);
}

#[test]
fn values_that_go_writes_otherwise_are_no_changes() {
    let mut c = Cluster::new(schema("", "v1", "Pod"), "v1");
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"hostNetwork": false,
        "containers": [{"name": "c", "env": [], "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}}}]}});
    c.apply("a", config.clone());
    assert_eq!(
        c.get("/spec/containers/0/resources/limits"),
        json!({"cpu": "1", "memory": "1Gi"})
    );
    let before = c.object.clone();
    c.apply("a", config.clone());
    assert_eq!(c.object, before);
    c.apply("b", config);
    assert!(
        c.owns("a").unwrap().1["f:spec"].get("f:hostNetwork").is_some(),
        "shared"
    );
}

#[test]
fn items_are_told_apart_by_the_keys_they_have() {
    let schema = Schema::custom_resource(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"items": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "v": {"type": "integer"}}}}}}}}),
        minato_meta::GroupVersionKind::new("example.com", "v1", "Widget"),
    )
    .unwrap();
    let mut c = Cluster::new(Box::leak(Box::new(schema)), "example.com/v1");
    c.apply("x", json!({"spec": {"items": [{"a": "1"}, {"a": "1", "b": "2"}]}}));
    assert_eq!(
        c.owns("x").unwrap().1["f:spec"]["f:items"],
        json!({"k:{\"a\":\"1\"}": {".": {}, "f:a": {}}, "k:{\"a\":\"1\",\"b\":\"2\"}": {".": {}, "f:a": {}, "f:b": {}}})
    );
    assert_eq!(
        c.conflict("x", json!({"spec": {"items": [{"v": 1}]}})),
        "failed to create typed patch object: .spec.items: associative list with keys has an element that omits all key \
         fields [\"a\" \"b\"] (and doesn't have default values for any key fields)"
    );
}

#[test]
fn a_null_claims_a_map_and_leaves_what_is_in_it() {
    let mut c = Cluster::new(schema("", "v1", "ConfigMap"), "v1");
    c.apply(
        "a",
        json!({"metadata": {"name": "m", "labels": {"a": "1"}}, "data": {"k": "v"}}),
    );
    c.apply("b", json!({"metadata": {"name": "m", "labels": null}, "data": null}));
    assert_eq!(c.get("/metadata/labels"), json!({"a": "1"}));
    assert_eq!(c.get("/data"), json!({"k": "v"}));
    assert_eq!(
        c.owns("b").unwrap().1,
        json!({"f:metadata": {"f:labels": {}}, "f:data": {}})
    );
}

#[test]
fn items_that_cannot_be_told_apart_are_owned_together() {
    let mut c = Cluster::new(schema("", "v1", "Service"), "v1");
    let name = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|n| json!({"port": 80, "protocol": "TCP", "name": n}))
            .collect()
    };
    c.update("one", |o| {
        *o = json!({"metadata": {"name": "s"}, "spec": {"ports": name(&["a"])}})
    });
    let port = |c: &Cluster, manager: &str| {
        c.owns(manager)
            .map(|(_, f)| f["f:spec"]["f:ports"]["k:{\"port\":80,\"protocol\":\"TCP\"}"].clone())
    };
    assert!(port(&c, "one").unwrap().get("f:name").is_some());
    c.update("two", |o| o["spec"]["ports"] = name(&["a", "b"]));
    assert_eq!(port(&c, "two"), Some(json!({})), "the items as a whole");
    assert_eq!(port(&c, "one"), Some(Value::Null));
    c.update("three", |o| o["spec"]["ports"] = name(&["b"]));
    assert!(port(&c, "three").unwrap().get("f:name").is_some());
    assert_eq!(c.owns("two"), None);
}

#[test]
fn clients_may_clear_the_managers() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("a", web(json!({"replicas": 3})));
    c.update("x", |o| o["metadata"]["managedFields"] = json!([{}]));
    assert_eq!(c.get("/metadata/managedFields"), Value::Null);
    c.update("x", |o| o["spec"]["replicas"] = json!(4));
    assert_eq!(c.get("/metadata/managedFields"), Value::Null, "stays untracked");
    // What was there belongs to nobody in particular until it is applied over.
    assert_eq!(
        c.conflict("a", web(json!({"replicas": 5}))),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
    c.try_apply("a", web(json!({"replicas": 5})), true).unwrap();
    assert!(c.owns("before-first-apply").is_some());
    assert_eq!(c.owns("a").unwrap().1, json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn a_client_that_does_not_know_managers_does_not_lose_them() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    c.apply("a", web(json!({"replicas": 3})));
    c.update("old", |o| {
        o["metadata"].as_object_mut().unwrap().remove("managedFields");
        o["spec"]["paused"] = json!(true);
    });
    assert_eq!(c.owns("a").unwrap().0, "Apply");
    c.update("old", |o| {
        o["metadata"]["managedFields"] = json!([{"manager": "broken"}])
    });
    assert_eq!(c.owns("a").unwrap().0, "Apply");
}

#[test]
fn subresources_are_managers_of_their_own() {
    let schema = deployment_schema();
    let main_ignores = FieldSet::of_paths(&["status"]);
    let status_ignores = FieldSet::of_paths(&["spec", "metadata"]);
    let writer = |subresource: &'static str, ignored, second| Writer {
        manager: "ctl",
        subresource,
        api_version: "apps/v1",
        ignored,
        now: at(second),
    };
    let mut object = web(json!({"replicas": 1}));
    object["status"] = json!({"replicas": 7});
    to_go_shape(&mut object, schema);
    track_update(None, &mut object, schema, &writer("", &main_ignores, 1));
    let mut new = object.clone();
    new["status"]["replicas"] = json!(1);
    new["spec"]["replicas"] = json!(99);
    track_update(Some(&object), &mut new, schema, &writer("status", &status_ignores, 2));
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries[0].get("subresource").is_none());
    assert!(entries[0]["fieldsV1"].get("f:status").is_none());
    assert!(entries[0]["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    assert_eq!(entries[1]["subresource"], json!("status"));
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
    let error = apply(&Apply {
        live: Some(&new),
        config: &json!({"status": {"replicas": 3}}),
        schema,
        writer: Writer {
            manager: "me",
            ..writer("status", &status_ignores, 3)
        },
        force: false,
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"ctl\" with subresource \"status\" using apps/v1: .status.replicas"
    );
}

#[test]
fn old_updaters_are_folded() {
    let mut c = Cluster::new(schema("", "v1", "ConfigMap"), "v1");
    c.apply("applier", json!({"metadata": {"name": "m"}, "data": {"applied": "1"}}));
    for i in 0..15 {
        c.update(&format!("u{i:02}"), |o| o["data"][format!("k{i:02}")] = json!("v"));
    }
    let list = c.get("/metadata/managedFields");
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 11, "ten updaters and the applier");
    let (_, fields) = c.owns("ancient-changes").unwrap();
    assert_eq!(fields["f:data"].as_object().unwrap().len(), 6);
    assert!(c.owns("u14").is_some() && c.owns("u00").is_none());
    assert_eq!(list[0]["manager"], json!("applier"), "appliers stand first");
}

#[test]
fn kubectl_moves_from_client_side_without_conflict() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    let config = web(json!({"replicas": 3}));
    c.update("kubectl-client-side-apply", |o| {
        *o = config.clone();
        o["metadata"]["annotations"] = json!({LAST_APPLIED: config.to_string()});
    });
    c.apply("kubectl", web(json!({"replicas": 4})));
    assert_eq!(c.get("/spec/replicas"), json!(4));
    let annotation = c.object.as_ref().and_then(last_applied).unwrap().to_owned();
    assert_eq!(
        serde_json::from_str::<Value>(&annotation).unwrap()["spec"],
        json!({"replicas": 4})
    );
    // Someone else changed it since: that is a conflict.
    let mut c2 = Cluster::new(deployment_schema(), "apps/v1");
    c2.update("kubectl-client-side-apply", |o| {
        *o = config.clone();
        o["metadata"]["annotations"] = json!({LAST_APPLIED: config.to_string()});
    });
    c2.update("hpa", |o| o["spec"]["replicas"] = json!(9));
    assert!(c2.conflict("kubectl", web(json!({"replicas": 4}))).contains("\"hpa\""));
}

#[test]
fn unusable_configurations_are_told() {
    let mut c = Cluster::new(deployment_schema(), "apps/v1");
    for (config, message) in [
        (
            json!({"metadata": {"managedFields": [{}]}}),
            "metadata.managedFields must be nil",
        ),
        (
            web(json!({"template": {"spec": {"containers": ["x"]}}})),
            "failed to create typed patch object: .spec.template.spec.containers: associative list with keys may not have \
             non-map elements",
        ),
        (
            web(json!({"template": {"spec": {"containers": [{"ports": [{"hostPort": 1}, {"hostPort": 2}]}]}}})),
            "failed to create typed patch object: .spec.template.spec.containers.ports: duplicate entries for key \
             [containerPort=0,protocol=\"TCP\"]",
        ),
    ] {
        assert_eq!(c.conflict("me", config), message);
    }
}

#[test]
fn custom_kinds_follow_their_schema_and_the_unknown_is_granular() {
    let schema = Schema::custom_resource(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "string"}, "v": {"type": "integer"}}}}}}}}),
        minato_meta::GroupVersionKind::new("example.com", "v1", "Widget"),
    )
    .unwrap();
    let mut c = Cluster::new(Box::leak(Box::new(schema)), "example.com/v1");
    c.apply(
        "a",
        json!({"spec": {"items": [{"id": "1", "v": 1}], "free": {"x": {"y": 1}, "list": [1]}}}),
    );
    c.apply("b", json!({"spec": {"items": [{"id": "2", "v": 1}], "free": {"z": 2}}}));
    assert_eq!(
        c.get("/spec"),
        json!({"items": [{"id": "1", "v": 1}, {"id": "2", "v": 1}], "free": {"x": {"y": 1}, "list": [1], "z": 2}})
    );
    assert!(
        c.conflict("b", json!({"spec": {"free": {"list": [2]}}}))
            .ends_with(".spec.free.list")
    );
    c.apply("a", json!({"spec": {"items": [{"id": "1"}]}}));
    assert_eq!(
        c.get("/spec"),
        json!({"items": [{"id": "1"}, {"id": "2", "v": 1}], "free": {"z": 2}})
    );
}

#[test]
fn times_alone_are_no_difference() {
    let a = json!({"metadata": {"resourceVersion": "1", "managedFields": [{"manager": "m", "time": "1"}]}, "spec": 1});
    let b = json!({"metadata": {"resourceVersion": "2", "managedFields": [{"manager": "m", "time": "2"}]}, "spec": 1});
    assert!(same_but_for_times(&a, &b));
    for other in [
        json!({"metadata": {"managedFields": [{"manager": "n"}]}, "spec": 1}),
        json!({"metadata": {"managedFields": [{"manager": "m"}]}, "spec": 2}),
        json!({"metadata": {"managedFields": [{"manager": "m"}], "name": "x"}, "spec": 1}),
        json!({"metadata": {"managedFields": [{"manager": "m"}]}, "spec": 1, "status": {}}),
        json!({"metadata": {}, "spec": 1}),
    ] {
        assert!(!same_but_for_times(&a, &other), "{other}");
        assert!(!same_but_for_times(&other, &a), "{other}");
    }
}
