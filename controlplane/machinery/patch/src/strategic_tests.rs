use minato_schema::builtin;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{PatchError, strategic_merge_patch};

fn patched(kind: (&str, &str, &str), target: Value, patch: Value) -> Result<Value, PatchError> {
    let schema = builtin().by_kind(kind.0, kind.1, kind.2).unwrap();
    let mut value = target;
    strategic_merge_patch(&mut value, &patch, schema).map(|()| value)
}

const POD: (&str, &str, &str) = ("", "v1", "Pod");
const SERVICE: (&str, &str, &str) = ("", "v1", "Service");

fn pod(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn lists_with_a_merge_key_merge_item_by_item() {
    let live = pod(json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "1"}]}));
    let patch = pod(json!({"containers": [{"name": "a", "image": "2"}, {"name": "c", "image": "3"}]}));
    // The items of the patch come first, as the documentation of `kubectl patch` shows.
    assert_eq!(
        patched(POD, live, patch).unwrap()["spec"]["containers"],
        json!([{"name": "a", "image": "2", "tty": true}, {"name": "c", "image": "3"}, {"name": "b", "image": "1"}])
    );
}

#[test]
fn items_are_deleted_and_lists_replaced_by_directive() {
    let live = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    let gone = pod(json!({"containers": [{"name": "a", "$patch": "delete"}]}));
    assert_eq!(
        patched(POD, live.clone(), gone).unwrap(),
        pod(json!({"containers": [{"name": "b"}]}))
    );
    let new = pod(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}));
    assert_eq!(
        patched(POD, live.clone(), new).unwrap(),
        pod(json!({"containers": [{"name": "z"}]}))
    );
    let whole = json!({"spec": {"$patch": "replace", "nodeName": "n"}});
    assert_eq!(
        patched(POD, live.clone(), whole).unwrap(),
        pod(json!({"nodeName": "n"}))
    );
    let nothing = json!({"spec": {"$patch": "delete"}});
    assert_eq!(patched(POD, live, nothing).unwrap(), pod(json!({})));
}

#[test]
fn ports_of_services_merge_by_port_alone() {
    let live = json!({"spec": {"ports": [{"port": 53, "protocol": "TCP", "name": "t"}]}});
    let patch = json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}});
    assert_eq!(
        patched(SERVICE, live, patch).unwrap(),
        json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "name": "t"}]}})
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    let live = pod(json!({"tolerations": [{"key": "a"}], "containers": [{"name": "a", "args": ["1"]}]}));
    let patch = pod(json!({"tolerations": [{"key": "b"}], "containers": [{"name": "a", "args": ["2", "3"]}]}));
    let result = patched(POD, live, patch).unwrap();
    assert_eq!(result["spec"]["tolerations"], json!([{"key": "b"}]));
    assert_eq!(result["spec"]["containers"][0]["args"], json!(["2", "3"]));
}

#[test]
fn sets_of_scalars_join_and_lose_items() {
    let live = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"finalizers": ["c", "a"]}});
    assert_eq!(
        patched(POD, live.clone(), patch).unwrap()["metadata"]["finalizers"],
        json!(["c", "a", "b"])
    );
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(
        patched(POD, live.clone(), patch).unwrap()["metadata"],
        json!({"finalizers": ["b"]})
    );
    let patch = json!({"metadata": {"$setElementOrder/finalizers": ["b", "c", "a"], "finalizers": ["c"]}});
    assert_eq!(
        patched(POD, live, patch).unwrap()["metadata"],
        json!({"finalizers": ["b", "c", "a"]})
    );
}

#[test]
fn stated_order_rules_and_server_items_stay() {
    let live = pod(json!({"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]}));
    let patch = pod(json!({
        "$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}],
        "containers": [{"name": "n"}]
    }));
    let names = |v: &Value| -> Vec<String> {
        v["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&patched(POD, live.clone(), patch).unwrap()),
        ["sidecar", "b", "n", "a"]
    );
    let only_order = pod(json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}));
    assert_eq!(names(&patched(POD, live, only_order).unwrap()), ["sidecar", "b", "a"]);
}

#[test]
fn retain_keys_clears_the_other_members_of_a_union() {
    let deployment = ("apps", "v1", "Deployment");
    let live = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched(deployment, live.clone(), patch).unwrap(),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
    let wrong = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
    assert!(matches!(
        patched(deployment, live, wrong),
        Err(PatchError::Malformed(_))
    ));
}

#[test]
fn null_deletes_and_new_values_carry_no_directives() {
    let live = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let patch = json!({"metadata": {"labels": {"a": null, "absent": null}}});
    assert_eq!(
        patched(POD, live, patch).unwrap(),
        json!({"metadata": {"labels": {"b": "2"}}})
    );
    let patch = pod(
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {"medium": null}}],
        "$setElementOrder/volumes": [{"name": "v"}]}),
    );
    assert_eq!(
        patched(POD, json!({}), patch).unwrap(),
        pod(json!({"volumes": [{"name": "v", "emptyDir": {}}]}))
    );
}

#[test]
fn what_cannot_be_merged_is_told() {
    let live = pod(json!({"containers": [{"name": "a"}]}));
    for (patch, malformed) in [
        (json!([]), true),
        (pod(json!({"containers": [{"image": "x"}]})), false),
        (pod(json!({"containers": [{"$patch": "delete"}]})), false),
        (pod(json!({"containers": [{"name": "a", "$patch": "explode"}]})), false),
        (pod(json!({"containers": [[1]]})), false),
        (pod(json!({"containers": ["a"]})), false),
        (pod(json!({"$patch": 5})), false),
        (pod(json!({"$retainKeys": "x"})), true),
        (pod(json!({"$setElementOrder/containers": 5})), true),
        (
            pod(json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]})),
            true,
        ),
        (
            pod(json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                "containers": [{"name": "b"}, {"name": "a"}]})),
            true,
        ),
        (json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}), true),
    ] {
        let error = patched(POD, live.clone(), patch.clone()).unwrap_err();
        assert_eq!(matches!(error, PatchError::Malformed(_)), malformed, "{patch}: {error}");
    }
}

fn containers() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::btree_map("[a-e]", ("[xy]", proptest::option::of(0i32..3)), 0..5).prop_map(|items| {
        items
            .into_iter()
            .map(|(name, (image, port))| {
                let mut item = json!({"name": name, "image": image});
                if let Some(port) = port {
                    item["ports"] = json!([{"containerPort": port}]);
                }
                item
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn merging_twice_is_merging_once(live in containers(), patch in containers(), finalizers in proptest::collection::vec("[a-c]", 0..4)) {
        let patch = json!({"spec": {"containers": patch}, "metadata": {"finalizers": finalizers}});
        let once = patched(POD, pod(json!({"containers": live})), patch.clone()).unwrap();
        let twice = patched(POD, once.clone(), patch).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn nothing_is_lost_without_being_asked_for(live in containers(), patch in containers()) {
        let merged = patched(POD, pod(json!({"containers": live.clone()})), pod(json!({"containers": patch.clone()}))).unwrap();
        let merged = merged["spec"]["containers"].as_array().unwrap().clone();
        for item in live.iter().chain(&patch) {
            prop_assert!(merged.iter().any(|m| m["name"] == item["name"]));
        }
        for item in &patch {
            let found = merged.iter().find(|m| m["name"] == item["name"]).unwrap();
            prop_assert_eq!(&found["image"], &item["image"]);
        }
    }
}
