use minato_schema::{builtin, to_go_shape};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Limits;

fn schema(kind: (&str, &str, &str)) -> &'static Schema {
    builtin().by_kind(kind.0, kind.1, kind.2).unwrap()
}

fn round_trip(kind: (&str, &str, &str), mut object: Value) {
    let schema = schema(kind);
    to_go_shape(&mut object, schema);
    let bytes = encode_protobuf(&object, schema).unwrap();
    let envelope = open(&bytes).unwrap();
    assert_eq!(envelope.kind, kind.2);
    assert_eq!(decode_protobuf(&envelope, schema, &Limits::default()).unwrap(), object);
}

#[test]
fn bytes_are_those_of_the_wire_format() {
    // ConfigMap: metadata 1 { name 1 }, data 2 { key 1, value 2 }. Worked out by hand.
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let raw = [0x0a, 3, 0x0a, 1, b'a', 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v'];
    let bytes = encode_protobuf(&object, schema(("", "v1", "ConfigMap"))).unwrap();
    let envelope = open(&bytes).unwrap();
    assert_eq!(
        envelope,
        Envelope {
            api_version: "v1",
            kind: "ConfigMap",
            // Fields are written in the order of their names: data, then metadata.
            raw: &[&raw[5..], &raw[..5]].concat(),
            content_type: "",
        }
    );
    assert!(bytes.starts_with(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d"));
}

#[test]
fn well_known_objects_round_trip() {
    round_trip(
        ("", "v1", "Pod"),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "creationTimestamp": "2024-01-02T03:04:05Z", "generation": -1, "labels": {"a": "", "b": "c"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": false}]},
            "spec": {"terminationGracePeriodSeconds": 0, "volumes": [
                {"name": "v", "hostPath": {"path": "/x"}}, {"name": "w", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
                "containers": [{"name": "c", "args": ["", "x"], "resources": {"limits": {"cpu": "500m"}},
                    "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}],
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 3},
                    "readinessProbe": {"tcpSocket": {"port": 8080}}}],
                "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c",
                    "livenessProbe": {"exec": {"command": ["true"]}}}]},
            "status": {"phase": "Running", "startTime": "2024-01-02T03:04:05Z"}}),
    );
    round_trip(
        ("coordination.k8s.io", "v1", "Lease"),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"renewTime": "2024-01-02T03:04:05.000678Z", "leaseTransitions": 0}}),
    );
    round_trip(
        ("", "v1", "Secret"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AAEC/w==", "e": ""}}),
    );
    round_trip(
        ("", "v1", "Service"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 0}], "selector": {"a": "b"}}}),
    );
    round_trip(
        ("authentication.k8s.io", "v1", "TokenReview"),
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"},
            "status": {"user": {"username": "u", "extra": {"a": ["b", "c"]}}}}),
    );
    round_trip(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"},
            "spec": {"group": "b", "scope": "Namespaced", "names": {"plural": "a", "kind": "A"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "a": {"type": "number", "minimum": 1.5, "default": {"x": [1, null]}, "enum": ["a", 1]},
                        "b": {"type": "array", "items": {"type": "string"}},
                        "c": {"type": "object", "additionalProperties": {"type": "string"}},
                        "d": {"type": "object", "additionalProperties": false}}}}}]}}),
    );
    round_trip(
        ("", "v1", "PodList"),
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}]}),
    );
}

#[test]
fn every_kind_is_covered() {
    // An object with every field at its zero value must find a number for each.
    let mut missing = Vec::new();
    for name in builtin().names() {
        let schema = builtin().get(&name).unwrap();
        for field in schema.fields() {
            if field.proto_path().is_empty() && !matches!(field.name.as_ref(), "apiVersion" | "kind") {
                missing.push(format!("{name}.{}", field.name));
            }
        }
    }
    let known = |m: &String| {
        // Never sent in protobuf: the groups are alpha, off, or the type is of JSON alone.
        m.contains("v1alpha") || m.contains("admissionregistration.v1beta1") || m.contains("pkg.version.Info")
    };
    missing.retain(|m| !known(m));
    let types: std::collections::BTreeSet<&str> = missing
        .iter()
        .map(|m| m.rsplit_once('.').map_or("", |(t, _)| t))
        .collect();
    assert!(types.is_empty(), "{types:?}");
}

#[test]
fn frames_of_watches() {
    let frame = watch_frame("ADDED", b"xyz");
    assert_eq!(
        frame,
        [&[0, 0, 0, 14][..], b"\x0a\x05ADDED\x12\x05\x0a\x03xyz"].concat()
    );
}

#[test]
fn hostile_bytes_end_in_errors() {
    let pod = schema(("", "v1", "Pod"));
    let decode = |raw: &[u8]| {
        let bytes = seal("v1", "Pod", raw);
        let envelope = open(&bytes).unwrap();
        decode_protobuf(&envelope, pod, &Limits::default())
    };
    assert!(open(b"{}").is_err());
    assert!(open(b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_err());
    for bad in [
        &b"\x0a"[..],
        b"\x0a\x05a",
        b"\x00\x00",
        b"\x0b",
        b"\x08\x01",
        b"\x0a\x03\x0a\x01\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(decode(bad).is_err(), "{bad:?}");
    }
    assert_eq!(
        decode(b"\x9a\x3f\x01x").unwrap(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}, "status": {}})
    );
    // Schemas nest without end.
    let crd = builtin()
        .get("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
        .unwrap();
    let not = crd.field("not").unwrap().proto_path()[0];
    let mut raw = Vec::new();
    for _ in 0..5_000 {
        let mut outer = Vec::new();
        wire::put_bytes(&mut outer, not, &raw);
        raw = outer;
    }
    let bytes = seal("v1", "X", &raw);
    assert_eq!(
        decode_protobuf(&open(&bytes).unwrap(), crd, &Limits::default()),
        Err(ProtobufError::TooComplex)
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let pod = schema(("", "v1", "Pod"));
        let sealed = seal("v1", "Pod", &raw);
        let _ = decode_protobuf(&open(&sealed).unwrap(), pod, &Limits::default());
        let _ = open(&raw);
    }
}

#[test]
fn a_list_is_put_together_from_its_items() {
    let types = minato_schema::builtin();
    let map = types.by_kind("", "v1", "ConfigMap").unwrap();
    let list_meta = types.get("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta").unwrap();
    let object = |n: usize| json!({"metadata": {"name": format!("m{n}")}, "data": {"k": "x".repeat(n * 60)}});
    for count in [0, 1, 5] {
        let items: Vec<_> = (0..count).map(|n| encode_message(&object(n), map).unwrap()).collect();
        let metadata = json!({"resourceVersion": "12", "continue": "c", "remainingItemCount": 3});
        let metadata = encode_message(&metadata, list_meta).unwrap();
        let total = items.iter().map(|i| item_length(i.len())).sum();
        let frame = ListFrame::new("v1", "ConfigMapList", &metadata, total);
        let mut bytes = frame.head.clone();
        for item in &items {
            let before = bytes.len();
            put_item_head(&mut bytes, item.len());
            bytes.extend_from_slice(item);
            assert_eq!(bytes.len() - before, item_length(item.len()));
        }
        bytes.extend_from_slice(&frame.tail);
        let list = types.by_kind("", "v1", "ConfigMapList").unwrap();
        let whole = json!({
            "apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": "12", "continue": "c", "remainingItemCount": 3},
            "items": (0..count).map(object).collect::<Vec<_>>(),
        });
        let read = |bytes: &[u8]| decode_protobuf(&open(bytes).unwrap(), list, &Limits::default()).unwrap();
        assert_eq!(read(&bytes), read(&encode_protobuf(&whole, list).unwrap()));
        assert_eq!(bytes.len(), encode_protobuf(&whole, list).unwrap().len());
    }
}
