//! Drops fields that a schema does not know.

use serde_json::Value;

use crate::path::Path;
use crate::types::{Schema, Shape};

/// Drops unknown fields and returns their paths, such as `spec.containers[0].foo`, in the order of the tree.
///
/// Strict clients see each as `unknown field "PATH"`. At most `limit` paths are kept, so that a hostile body cannot make
/// a huge answer; all unknown fields are dropped nevertheless.
pub fn prune(value: &mut Value, schema: &Schema, limit: usize) -> Vec<String> {
    let mut unknown = Unknown {
        paths: Vec::new(),
        limit,
    };
    walk(value, schema, &Path::Root, &mut unknown);
    unknown.paths
}

struct Unknown {
    paths: Vec<String>,
    limit: usize,
}

fn walk(value: &mut Value, schema: &Schema, path: &Path<'_>, unknown: &mut Unknown) {
    match (&schema.shape, value) {
        (Shape::Object(_), Value::Object(map)) => {
            map.retain(|key, child| {
                if let Some(field) = schema.field(key) {
                    walk(child, &field.schema, &path.field(key), unknown);
                    return true;
                }
                if !schema.preserve_unknown && unknown.paths.len() < unknown.limit {
                    unknown.paths.push(path.field(key).to_string());
                }
                schema.preserve_unknown
            });
        }
        (Shape::Map(values), Value::Object(map)) => {
            for (key, child) in map {
                walk(child, values, &path.field(key), unknown);
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for (index, child) in list.iter_mut().enumerate() {
                walk(child, items, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin;

    #[test]
    fn unknown_fields_go_and_are_named_by_path() {
        let pod = builtin().by_kind("", "v1", "Pod").unwrap();
        let mut value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"any": "key"}, "clusterName": "x"},
            "spec": {"containers": [{"name": "c", "imag": "typo"}], "Foo": 1},
            "extra": true
        });
        let paths = prune(&mut value, pod, 100);
        assert_eq!(
            paths,
            ["extra", "metadata.clusterName", "spec.Foo", "spec.containers[0].imag"]
        );
        assert_eq!(
            value,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "labels": {"any": "key"}},
                "spec": {"containers": [{"name": "c"}]}
            })
        );
    }

    #[test]
    fn free_form_values_are_kept_and_reports_are_bounded() {
        let crd = builtin()
            .by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            .unwrap();
        let mut value = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {
            "default": {"any": ["thing"]}, "properties": {"a": {"items": {"type": "string"}}}}}}]}});
        let before = value.clone();
        assert!(prune(&mut value, crd, 10).is_empty());
        assert_eq!(value, before);

        let many: serde_json::Map<String, Value> = (0..50).map(|i| (format!("x{i}"), Value::Null)).collect();
        let mut value = Value::Object(many);
        assert_eq!(prune(&mut value, crd, 10).len(), 10);
        assert_eq!(value, json!({}));
    }
}
