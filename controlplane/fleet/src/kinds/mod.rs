//! The management kinds as an API server serves them: names, schema, defaults, validation, columns.

mod cluster;
mod pool;
mod protection;

use std::sync::Arc;

use minato_api::fleet;
use minato_meta::{FieldError, FieldErrors, GroupResource, GroupVersionKind, GroupVersionResource};
use minato_rules::{Column, ResourceInfo, Strategy, Subresource, Verb};
use minato_schema::{Schema, SchemaError, SchemaRef};
use serde_json::{Map, Value, json};

pub use protection::DeletionProtection;

/// All management kinds, each with its schema.
///
/// # Errors
/// One of the schemas is not one: a mistake in this crate, which its tests would show.
pub fn resources() -> Result<Vec<(ResourceInfo, SchemaRef)>, SchemaError> {
    const READ_WRITE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
    let status = || Subresource {
        name: "status",
        kind: None,
        verbs: READ_WRITE,
    };
    let scale = Subresource {
        name: "scale",
        kind: Some(GroupVersionKind::new("autoscaling", "v1", "Scale")),
        verbs: READ_WRITE,
    };
    Ok(vec![
        kind(
            "Cluster",
            "clusters",
            Arc::new(cluster::Clusters),
            vec![status()],
            &cluster::schema(),
        )?,
        kind(
            "NodePool",
            "nodepools",
            Arc::new(pool::NodePools),
            vec![status(), scale],
            &pool::schema(),
        )?,
    ])
}

fn kind(
    kind: &str,
    plural: &str,
    strategy: Arc<dyn Strategy>,
    subresources: Vec<Subresource>,
    schema: &Value,
) -> Result<(ResourceInfo, SchemaRef), SchemaError> {
    let gvk = GroupVersionKind::new(fleet::GROUP, fleet::VERSION, kind);
    let schema = Schema::custom_resource(schema, gvk.clone())?;
    let info = ResourceInfo {
        gvr: GroupVersionResource::new(fleet::GROUP, fleet::VERSION, plural),
        gvk,
        list_kind: format!("{kind}List"),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: vec!["fleet".to_owned()],
        namespaced: true,
        verbs: Verb::ALL,
        subresources,
        definition: String::new(),
        storage: GroupResource::new(fleet::GROUP, plural),
        storage_version: fleet::VERSION.to_owned(),
        strategy,
    };
    Ok((info, schema.into()))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Sets `spec.<path>` unless it is there and not empty; makes the objects on the way.
fn fill(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = object;
    for key in std::iter::once(&"spec").chain(parents) {
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(*key).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(fields) = at.as_object_mut() else { return };
    let unset = |value: &Value| value.is_null() || value.as_str() == Some("");
    if fields.get(*last).is_none_or(unset) {
        fields.insert((*last).to_owned(), value);
    }
}

/// Refuses a change of what cannot be changed while it is in use.
fn unchanged(errors: &mut FieldErrors, object: &Value, old: &Value, field: &str) {
    let pointer = format!("/{}", field.replace('.', "/"));
    let (new, old) = (object.pointer(&pointer), old.pointer(&pointer));
    if new != old {
        let value = new.cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(field, value, "field is immutable"));
    }
}

fn column(name: &str, column_type: &str, description: &str) -> Column {
    Column {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        format: if name == "Name" { "name" } else { "" }.to_owned(),
        description: description.to_owned(),
        priority: 0,
    }
}

fn string(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

/// The schema of `status.conditions`, as of <https://kubernetes.io/docs/reference/using-api/api-concepts/>.
fn conditions() -> Value {
    json!({
        "type": "array",
        "description": "The state in the form that programs wait for.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": string("What the condition is about."),
                "status": string("True, False or Unknown."),
                "reason": string("One word of CamelCase that says why."),
                "message": string("The same for people."),
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When the status changed last."},
                "observedGeneration": integer("The generation of the object that this is about."),
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_structural() {
        for schema in [cluster::schema(), pool::schema()] {
            assert_eq!(minato_schema::structural_errors(&schema), FieldErrors::default());
        }
        assert_eq!(resources().map(|list| list.len()), Ok(2));
    }

    #[test]
    fn an_empty_cluster_gets_all_defaults_and_is_valid() {
        let strategy = cluster::Clusters;
        let mut object = json!({"metadata": {"name": "a"}, "spec": {"network": {"podCIDR": ""}}});
        strategy.default(&mut object);
        let expected = json!({
            "version": "1.36",
            "controlPlane": {"hosting": "process", "store": "embedded"},
            "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/16", "dnsDomain": "cluster.local"},
            "cloud": {"provider": "mock"},
        });
        assert_eq!(object["spec"], expected);
        assert!(strategy.validate(&object).is_empty());
    }

    #[test]
    fn bad_clusters_are_refused_by_field() {
        let strategy = cluster::Clusters;
        let mut object = json!({"metadata": {"name": "a"}, "spec": {
            "version": "1.12",
            "network": {"podCIDR": "10.0.0.0/8", "serviceCIDR": "10.96.0.0/16"},
        }});
        strategy.default(&mut object);
        let fields: Vec<String> = strategy.validate(&object).0.into_iter().map(|e| e.field).collect();
        assert_eq!(fields, ["spec.version", "spec.network.serviceCIDR"]);
    }

    #[test]
    fn networks_do_not_change() {
        let strategy = cluster::Clusters;
        let mut old = json!({"metadata": {"name": "a"}, "spec": {}});
        strategy.default(&mut old);
        let mut new = old.clone();
        new["spec"]["network"]["podCIDR"] = json!("10.245.0.0/16");
        let errors = strategy.validate_update(&new, &old);
        assert_eq!(errors.0.len(), 1);
        assert_eq!(errors.0[0].field, "spec.network.podCIDR");
    }
}
