//! Compares with the samples that upstream keeps of every kind, in JSON and protobuf, all fields filled.
//!
//! The samples are upstream's and not kept here: set `MINATO_API_SAMPLES` to the folder `testdata/v1.36.0` of a checkout of
//! <https://github.com/kubernetes/api> of the same minor.

use std::fs;
use std::path::PathBuf;

use minato_codec::proto::{decode_protobuf, encode_protobuf, open};
use minato_codec::{Limits, decode_json};
use minato_schema::{builtin, check, prune, to_go_shape};
use serde_json::Value;

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k, without_nulls(v)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
#[ignore = "needs the samples of a kubernetes/api checkout in MINATO_API_SAMPLES"]
fn json_and_protobuf_agree_with_upstream() {
    let folder = PathBuf::from(std::env::var("MINATO_API_SAMPLES").expect("MINATO_API_SAMPLES names a folder"));
    let (mut seen, mut wrong) = (0, Vec::new());
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "json")) {
        let decoded = decode_json(&fs::read(&path).unwrap(), &Limits::default()).unwrap();
        assert!(decoded.duplicates.is_empty());
        let mut json = without_nulls(decoded.value);
        // The one map of times: its sample holds the zero time, which JSON shows as `null`.
        if let Some(status) = json.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("disruptedPods");
        }
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let Some(schema) = builtin().by_kind(group, version, &kind) else {
            continue;
        };
        seen += 1;
        let name = format!("{api_version} {kind}");
        let mut value = json.clone();
        let unknown = prune(&mut value, schema, 100);
        // Present in the Go type, absent from the published API.
        if !unknown.is_empty() && kind != "CSINode" {
            wrong.push(format!("{name}: unknown {unknown:?}"));
        }
        if let Err(error) = check(&value, schema) {
            wrong.push(format!("{name}: {error}"));
            continue;
        }
        let before = value.clone();
        to_go_shape(&mut value, schema);
        if value != before {
            wrong.push(format!(
                "{name}: shape: {}",
                first_difference(&before, &value, String::new())
            ));
        }
        if let Ok(bytes) = fs::read(path.with_extension("pb")) {
            let envelope = open(&bytes).unwrap();
            match decode_protobuf(&envelope, schema, &Limits::default()) {
                Ok(theirs) if theirs == value || kind == "PodDisruptionBudget" => {}
                Ok(theirs) => wrong.push(format!(
                    "{name}: protobuf: {}",
                    first_difference(&value, &theirs, String::new())
                )),
                Err(error) => wrong.push(format!("{name}: protobuf: {error}")),
            }
            match encode_protobuf(&value, schema) {
                Ok(ours) => {
                    let back = decode_protobuf(&open(&ours).unwrap(), schema, &Limits::default()).unwrap();
                    if back != value {
                        wrong.push(format!(
                            "{name}: own protobuf: {}",
                            first_difference(&value, &back, String::new())
                        ));
                    }
                }
                Err(error) => wrong.push(format!("{name}: encoding: {error}")),
            }
        }
    }
    assert!(seen > 80, "only {seen} samples are of known kinds");
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

fn first_difference(a: &Value, b: &Value, path: String) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => x
            .keys()
            .chain(y.keys())
            .find(|k| x.get(*k) != y.get(*k))
            .map(|k| {
                let null = Value::Null;
                first_difference(
                    x.get(k).unwrap_or(&null),
                    y.get(k).unwrap_or(&null),
                    format!("{path}.{k}"),
                )
            })
            .unwrap_or_default(),
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => x
            .iter()
            .zip(y)
            .enumerate()
            .find(|(_, (p, q))| p != q)
            .map(|(i, (p, q))| first_difference(p, q, format!("{path}[{i}]")))
            .unwrap_or_default(),
        _ => format!("{path}: {a} / {b}"),
    }
}
