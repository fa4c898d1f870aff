//! Whatever trees come, nothing panics, and failed patches change nothing.

use jiff::Timestamp;
use minato_schema::{Schema, builtin};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::{
    Apply, FieldSet, JsonPatchLimits, Writer, apply, json_patch, merge_patch, strategic_merge_patch, track_update,
};

/// Trees with the field names of pods and the keys of patches in unlikely places.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z$:{}\"]{0,6}".prop_map(Value::from),
        prop_oneof![Just("delete"), Just("replace"), Just("merge"), Just("TCP"), Just("1Gi")].prop_map(Value::from),
    ];
    let key = prop_oneof![
        prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("containers"),
            Just("ports"),
            Just("name"),
            Just("containerPort"),
            Just("protocol"),
            Just("labels"),
            Just("finalizers"),
            Just("resources"),
            Just("limits"),
            Just("status"),
            Just("managedFields"),
            Just("annotations"),
            Just("volumes"),
            Just("tolerations"),
            Just("nodeSelector"),
        ],
        prop_oneof![
            Just("$patch"),
            Just("$retainKeys"),
            Just("$setElementOrder/containers"),
            Just("$deleteFromPrimitiveList/finalizers"),
            Just("$setElementOrder/finalizers"),
            Just("f:spec"),
            Just("manager"),
            Just("operation"),
            Just("fieldsV1"),
            Just("op"),
            Just("path"),
            Just("from"),
            Just("value"),
        ],
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                Value::Object(
                    entries
                        .into_iter()
                        .map(|(k, v)| (k.to_owned(), v))
                        .collect::<Map<_, _>>(),
                )
            }),
        ]
    })
}

fn pod() -> &'static Schema {
    builtin().by_kind("", "v1", "Pod").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_tree_makes_anything_panic(a in tree(), b in tree(), c in tree()) {
        let nothing = FieldSet::default();
        let writer = Writer { manager: "m", subresource: "", api_version: "v1", ignored: &nothing, now: Timestamp::UNIX_EPOCH };
        let mut target = a.clone();
        merge_patch(&mut target, &b);
        let mut target = a.clone();
        if strategic_merge_patch(&mut target, &b, pod()).is_err() {
            prop_assert_eq!(&target, &a);
        }
        let mut target = a.clone();
        if json_patch(&mut target, &b, &JsonPatchLimits::default()).is_err() {
            prop_assert_eq!(&target, &a);
        }
        for live in [None, Some(&a)] {
            for force in [false, true] {
                if let Ok(first) = apply(&Apply { live, config: &b, schema: pod(), writer, force }) {
                    let _ = apply(&Apply { live: Some(&first), config: &c, schema: pod(), writer, force });
                }
            }
        }
        let mut new = b.clone();
        track_update(Some(&a), &mut new, pod(), &writer);
        track_update(None, &mut new, pod(), &writer);
        let _ = FieldSet::from_fields_v1(&a);
        let mut pruned = a.clone();
        minato_schema::prune(&mut pruned, pod(), 10);
        minato_schema::to_go_shape(&mut pruned, pod());
        minato_schema::apply_defaults(&mut pruned, pod());
        let _ = minato_schema::check(&pruned, pod());
        let _ = minato_schema::validate(&pruned, pod());
        let _ = Schema::from_openapi_v3(&a);
    }

    #[test]
    fn pruned_and_checked_trees_are_stable(a in tree()) {
        let mut value = a;
        minato_schema::prune(&mut value, pod(), 10);
        prop_assert!(minato_schema::prune(&mut value.clone(), pod(), 10).is_empty());
        if minato_schema::check(&value, pod()).is_ok() {
            minato_schema::to_go_shape(&mut value, pod());
            let once = value.clone();
            minato_schema::to_go_shape(&mut value, pod());
            prop_assert_eq!(&value, &once);
            prop_assert!(minato_schema::check(&value, pod()).is_ok());
        }
    }
}
