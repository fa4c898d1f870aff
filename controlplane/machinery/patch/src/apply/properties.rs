use minato_schema::builtin;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn config() -> impl Strategy<Value = Value> {
    let container = (
        "[a-c]",
        proptest::option::of("[xy]"),
        proptest::collection::btree_set(1u16..4, 0..3),
    );
    (
        proptest::collection::btree_map("[a-c]", "[12]", 0..3),
        proptest::collection::btree_set("[a-c]", 0..3),
        proptest::option::of(0..3i32),
        proptest::collection::vec(container, 0..3),
    )
        .prop_map(|(labels, finalizers, priority, containers)| {
            let mut seen = std::collections::BTreeSet::new();
            let containers: Vec<Value> = containers
                .into_iter()
                .filter(|(name, ..)| seen.insert(name.clone()))
                .map(|(name, image, ports)| {
                    let mut c = json!({"name": name});
                    if let Some(image) = image {
                        c["image"] = json!(image);
                    }
                    if !ports.is_empty() {
                        c["ports"] = ports.iter().map(|p| json!({"containerPort": p})).collect();
                    }
                    c
                })
                .collect();
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
            if !labels.is_empty() {
                pod["metadata"]["labels"] = json!(labels);
            }
            if !finalizers.is_empty() {
                pod["metadata"]["finalizers"] = json!(finalizers);
            }
            if let Some(priority) = priority {
                pod["spec"]["priority"] = json!(priority);
            }
            if !containers.is_empty() {
                pod["spec"]["containers"] = json!(containers);
            }
            pod
        })
}

fn write(live: Option<&Value>, manager: &str, config: &Value, second: i64) -> Value {
    let nothing = FieldSet::default();
    apply(&Apply {
        live,
        config,
        schema: builtin().by_kind("", "v1", "Pod").unwrap(),
        writer: Writer {
            manager,
            subresource: "",
            api_version: "v1",
            ignored: &nothing,
            now: Timestamp::from_second(second).unwrap(),
        },
        force: true,
    })
    .unwrap()
}

fn fields(object: &Value, manager: &str) -> FieldSet {
    let identity = Identity::new(manager, Operation::Apply, "", "v1");
    Managers::of(object)
        .get(&identity)
        .map(|m| m.fields.clone())
        .unwrap_or_default()
}

/// Whether everything that `part` says stands in `whole`, list items by key and in any order.
fn holds(whole: &Value, part: &Value) -> bool {
    let pod = builtin().by_kind("", "v1", "Pod").unwrap();
    let change = difference(part, whole, pod);
    change.modified.is_empty() && change.removed.is_empty()
}

proptest! {
    #[test]
    fn a_forced_apply_stands_and_owns_exactly_its_fields(a in config(), b in config()) {
        let first = write(None, "a", &a, 1);
        let second = write(Some(&first), "b", &b, 2);
        prop_assert!(holds(&second, &b));
        let mut wanted = fields_of(&b, builtin().by_kind("", "v1", "Pod").unwrap()).unwrap();
        wanted.subtract(server_fields());
        prop_assert_eq!(fields(&second, "b"), wanted);
    }

    #[test]
    fn applying_again_is_a_no_op(a in config(), b in config()) {
        let first = write(None, "a", &a, 1);
        let second = write(Some(&first), "b", &b, 2);
        prop_assert_eq!(&write(Some(&second), "b", &b, 3), &second);
    }

    #[test]
    fn giving_everything_up_leaves_what_the_other_said(a in config(), b in config()) {
        let empty = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let first = write(None, "a", &a, 1);
        let second = write(Some(&first), "b", &b, 2);
        let third = write(Some(&second), "a", &empty, 3);
        prop_assert!(holds(&third, &b));
        prop_assert!(fields(&third, "a").is_empty());
        // Nothing of a is left: what is there is b's, the hollow parents of what is gone, or what Go shows by itself.
        let left = fields_of(&without_managers(&third), builtin().by_kind("", "v1", "Pod").unwrap()).unwrap();
        let mut unowned = left;
        unowned.subtract(&fields(&third, "b"));
        unowned.subtract(server_fields());
        for path in unowned.paths() {
            let last = path.last().cloned().unwrap_or_default();
            let hollow = ["f:spec", "f:containers", "f:ports", "f:labels", "f:finalizers", "f:status", "f:resources"];
            prop_assert!(
                hollow.contains(&last.as_str()),
                "{}", display_path(&path)
            );
        }
    }

    #[test]
    fn a_change_of_the_config_changes_nothing_of_others(a in config(), b1 in config(), b2 in config()) {
        // Unforced writes that do not conflict never touch what another applier holds.
        let first = write(None, "a", &a, 1);
        let nothing = FieldSet::default();
        let unforced = |live: &Value, config: &Value| apply(&Apply {
            live: Some(live),
            config,
            schema: builtin().by_kind("", "v1", "Pod").unwrap(),
            writer: Writer { manager: "b", subresource: "", api_version: "v1", ignored: &nothing, now: Timestamp::from_second(2).unwrap() },
            force: false,
        });
        if let Ok(second) = unforced(&first, &b1) {
            prop_assert!(holds(&second, &a));
            if let Ok(third) = unforced(&second, &b2) {
                prop_assert!(holds(&third, &a));
                prop_assert!(holds(&third, &b2));
            }
        }
    }

    #[test]
    fn an_update_owns_its_changes_and_nobody_else_does(a in config(), b in config()) {
        let schema = builtin().by_kind("", "v1", "Pod").unwrap();
        let first = write(None, "a", &a, 1);
        let mut second = b.clone();
        second["metadata"]["managedFields"] = first["metadata"]["managedFields"].clone();
        let nothing = FieldSet::default();
        track_update(Some(&first), &mut second, schema, &Writer {
            manager: "u", subresource: "", api_version: "v1", ignored: &nothing, now: Timestamp::from_second(2).unwrap(),
        });
        let mut changes = difference(&without_managers(&first), &without_managers(&second), schema);
        let mut owned = changes.added.clone();
        owned.union(&changes.modified);
        owned.subtract(server_fields());
        let managers = Managers::of(&second);
        let identity = Identity::new("u", Operation::Update, "", "v1");
        let got = managers.get(&identity).map(|m| m.fields.clone()).unwrap_or_default();
        prop_assert_eq!(&got, &owned);
        changes.removed.union(&owned);
        prop_assert!(fields(&second, "a").intersection(&changes.removed).is_empty());
    }
}
