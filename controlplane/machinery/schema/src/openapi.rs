//! Makes schemas of custom kinds from their `openAPIV3Schema`.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use minato_meta::GroupVersionKind;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::table::builtin;
use crate::types::{Field, IntegerFormat, ListType, Name, Omit, PatchStrategy, Schema, SchemaRef, Shape};
use crate::validation::{Bound, Validation};

/// Deeper nesting than any real kind has; protects the stack.
const MAX_DEPTH: usize = 100;
/// Compiled size of one pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Why a document is not a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct SchemaError {
    /// Path within the schema document, such as `properties[spec].pattern`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl Schema {
    /// A schema from an `openAPIV3Schema` document.
    ///
    /// # Errors
    /// When a keyword has a value of the wrong type, a type is unknown, a pattern does not compile, or nesting is absurd.
    pub fn from_openapi_v3(document: &Value) -> Result<Self, SchemaError> {
        Reader { path: Vec::new() }.node(document)
    }

    /// The schema of a custom kind's objects: the document with `apiVersion`, `kind` and full `metadata` at the root,
    /// whatever the document says about those.
    ///
    /// # Errors
    /// As [`Schema::from_openapi_v3`].
    pub fn custom_resource(document: &Value, kind: GroupVersionKind) -> Result<Self, SchemaError> {
        let mut schema = Self::from_openapi_v3(document)?;
        if matches!(schema.shape, Shape::Any) {
            schema.shape = Shape::Object(Vec::new());
        }
        add_object_head(&mut schema);
        schema.kinds = [kind].into();
        Ok(schema)
    }

    /// The body of a list of this kind.
    pub fn list_of(items: SchemaRef) -> Self {
        let mut schema = Self::new(Shape::Object(Vec::new()));
        add_object_head(&mut schema);
        if let Shape::Object(fields) = &mut schema.shape {
            fields.retain(|f| f.name != "metadata");
            fields.push(field(
                "metadata",
                builtin()
                    .reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
                    .unwrap_or_else(|| Schema::new(Shape::Any).into()),
            ));
            fields.push(field("items", Schema::new(Shape::List(items)).into()));
            fields.sort_by(|a, b| a.name.cmp(&b.name));
        }
        schema
    }
}

fn field(name: impl Into<Name>, schema: SchemaRef) -> Field {
    Field {
        name: name.into(),
        schema,
        required: false,
        // Custom kinds have no Go struct: what the client wrote is what is kept.
        omit: Omit::Empty,
        pointer: true,
        default: None,
        patch: None,
        go_type: None,
        proto: None,
    }
}

fn add_object_head(schema: &mut Schema) {
    if let Shape::Object(fields) = &mut schema.shape {
        fields.retain(|f| !matches!(f.name.as_ref(), "apiVersion" | "kind" | "metadata"));
        fields.push(field("apiVersion", Schema::new(Shape::String).into()));
        fields.push(field("kind", Schema::new(Shape::String).into()));
        if let Some(meta) = builtin().reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
            fields.push(field("metadata", meta));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

struct Reader {
    path: Vec<String>,
}

impl Reader {
    fn error<T>(&self, key: &str, problem: impl Into<String>) -> Result<T, SchemaError> {
        let mut path = self.path.join(".");
        if !key.is_empty() {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key);
        }
        Err(SchemaError {
            path,
            problem: problem.into(),
        })
    }

    fn within<T>(
        &mut self,
        segment: String,
        read: impl FnOnce(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<T, SchemaError> {
        if self.path.len() >= MAX_DEPTH {
            return self.error("", "is nested too deeply");
        }
        self.path.push(segment);
        let result = read(self);
        self.path.pop();
        result
    }

    fn node(&mut self, document: &Value) -> Result<Schema, SchemaError> {
        let Value::Object(keys) = document else {
            return self.error("", "must be an object");
        };
        let mut schema = Schema::new(self.shape(keys)?);
        schema.nullable = self.flag(keys, "nullable")?;
        schema.preserve_unknown = self.flag(keys, "x-kubernetes-preserve-unknown-fields")?;
        schema.embedded_resource = self.flag(keys, "x-kubernetes-embedded-resource")?;
        schema.atomic = self.text(keys, "x-kubernetes-map-type")? == Some("atomic");
        schema.default = keys.get("default").cloned().map(Box::new);
        schema.list_type = self.list_type(keys)?;
        schema.validation = self.validation(keys)?;
        if schema.embedded_resource {
            add_object_head(&mut schema);
        }
        Ok(schema)
    }

    fn shape(&mut self, keys: &Map<String, Value>) -> Result<Shape, SchemaError> {
        if self.flag(keys, "x-kubernetes-int-or-string")? {
            return Ok(Shape::IntOrString);
        }
        let kind = self.text(keys, "type")?;
        Ok(match kind {
            Some("boolean") => Shape::Boolean,
            Some("integer") => Shape::Integer(match self.text(keys, "format")? {
                Some("int32") => IntegerFormat::Int32,
                _ => IntegerFormat::Int64,
            }),
            Some("number") => Shape::Number,
            Some("string") => Shape::String,
            Some("array") => {
                let items = match keys.get("items") {
                    Some(items) => self.within("items".to_owned(), |r| r.node(items))?,
                    None => Schema::new(Shape::Any),
                };
                Shape::List(items.into())
            }
            Some("object") | None => self.object_shape(keys, kind.is_some())?,
            Some(other) => return self.error("type", format!("unknown type {other:?}")),
        })
    }

    fn object_shape(&mut self, keys: &Map<String, Value>, typed: bool) -> Result<Shape, SchemaError> {
        match keys.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => return Ok(Shape::Map(Schema::new(Shape::Any).into())),
            Some(values) => {
                let values = self.within("additionalProperties".to_owned(), |r| r.node(values))?;
                return Ok(Shape::Map(values.into()));
            }
        }
        let required = self.strings(keys, "required")?;
        let Some(properties) = keys.get("properties") else {
            // A bare `required` in anyOf and the like is kept by the validation facts.
            return Ok(if typed { Shape::Object(Vec::new()) } else { Shape::Any });
        };
        let Value::Object(properties) = properties else {
            return self.error("properties", "must be an object");
        };
        let mut fields = Vec::with_capacity(properties.len());
        for (name, document) in properties {
            let schema = self.within(format!("properties[{name}]"), |r| r.node(document))?;
            let mut field = field(name.clone(), schema.into());
            field.required = required.contains(name);
            field.patch = self.patch_strategy(document);
            fields.push(field);
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Shape::Object(fields))
    }

    /// Custom kinds take no strategic merge patches; kinds of our own that are told by such a document may.
    fn patch_strategy(&self, document: &Value) -> Option<Box<PatchStrategy>> {
        let strategy = document.get("x-kubernetes-patch-strategy")?.as_str()?;
        let key = document.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
        Some(Box::new(PatchStrategy {
            merge: strategy.contains("merge"),
            retain_keys: strategy.contains("retainKeys"),
            merge_key: key.map(|key| Name::Owned(key.to_owned())),
        }))
    }

    fn list_type(&self, keys: &Map<String, Value>) -> Result<ListType, SchemaError> {
        Ok(match self.text(keys, "x-kubernetes-list-type")? {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = self.strings(keys, "x-kubernetes-list-map-keys")?;
                if keys.is_empty() {
                    return self.error("x-kubernetes-list-map-keys", "Required value");
                }
                ListType::Map(keys.into_iter().map(Name::Owned).collect())
            }
            Some("atomic") | None => ListType::Atomic,
            Some(other) => return self.error("x-kubernetes-list-type", format!("unknown list type {other:?}")),
        })
    }

    fn validation(&mut self, keys: &Map<String, Value>) -> Result<Option<Box<Validation>>, SchemaError> {
        let bound = |reader: &Self, key: &str, exclusive: &str| -> Result<Option<Bound>, SchemaError> {
            let exclusive = reader.flag(keys, exclusive)?;
            Ok(reader.number(keys, key)?.map(|value| Bound { value, exclusive }))
        };
        let untyped_required = if keys.contains_key("properties") {
            Vec::new()
        } else {
            self.strings(keys, "required")?
        };
        let validation = Validation {
            format: self.text(keys, "format")?.map(str::to_owned),
            enumeration: match keys.get("enum") {
                None => Vec::new(),
                Some(Value::Array(values)) => values.clone(),
                Some(_) => return self.error("enum", "must be an array"),
            },
            pattern: self.pattern(keys)?,
            minimum: bound(self, "minimum", "exclusiveMinimum")?,
            maximum: bound(self, "maximum", "exclusiveMaximum")?,
            multiple_of: self.number(keys, "multipleOf")?,
            min_length: self.count(keys, "minLength")?,
            max_length: self.count(keys, "maxLength")?,
            min_items: self.count(keys, "minItems")?,
            max_items: self.count(keys, "maxItems")?,
            unique_items: self.flag(keys, "uniqueItems")?,
            min_properties: self.count(keys, "minProperties")?,
            max_properties: self.count(keys, "maxProperties")?,
            required: untyped_required,
            all_of: self.nodes(keys, "allOf")?,
            any_of: self.nodes(keys, "anyOf")?,
            one_of: self.nodes(keys, "oneOf")?,
            not: match keys.get("not") {
                Some(document) => Some(self.within("not".to_owned(), |r| r.node(document))?),
                None => None,
            },
            rules: match keys.get("x-kubernetes-validations") {
                None => Vec::new(),
                Some(Value::Array(rules)) => rules.clone(),
                Some(_) => return self.error("x-kubernetes-validations", "must be an array"),
            },
        };
        Ok(validation.states_anything().then(|| Box::new(validation)))
    }

    fn nodes(&mut self, keys: &Map<String, Value>, key: &str) -> Result<Vec<Schema>, SchemaError> {
        match keys.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(documents)) => documents
                .iter()
                .enumerate()
                .map(|(i, document)| self.within(format!("{key}[{i}]"), |r| r.node(document)))
                .collect(),
            Some(_) => self.error(key, "must be an array"),
        }
    }

    fn pattern(&self, keys: &Map<String, Value>) -> Result<Option<Regex>, SchemaError> {
        let Some(pattern) = self.text(keys, "pattern")? else {
            return Ok(None);
        };
        match RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build() {
            Ok(regex) => Ok(Some(regex)),
            Err(error) => self.error("pattern", format!("must be a valid regular expression: {error}")),
        }
    }

    fn flag(&self, keys: &Map<String, Value>, key: &str) -> Result<bool, SchemaError> {
        match keys.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(_) => self.error(key, "must be true or false"),
        }
    }

    fn text<'v>(&self, keys: &'v Map<String, Value>, key: &str) -> Result<Option<&'v str>, SchemaError> {
        match keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => self.error(key, "must be a string"),
        }
    }

    fn number(&self, keys: &Map<String, Value>, key: &str) -> Result<Option<f64>, SchemaError> {
        match keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => self.error(key, "must be a number"),
            },
        }
    }

    fn count(&self, keys: &Map<String, Value>, key: &str) -> Result<Option<u64>, SchemaError> {
        match keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) => Ok(Some(count)),
                None => self.error(key, "must be a whole number that is not negative"),
            },
        }
    }

    fn strings(&self, keys: &Map<String, Value>, key: &str) -> Result<Vec<String>, SchemaError> {
        match keys.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(values)) => values
                .iter()
                .map(|v| match v {
                    Value::String(text) => Ok(text.clone()),
                    _ => self.error(key, "must be an array of strings"),
                })
                .collect(),
            Some(_) => self.error(key, "must be an array of strings"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structure_is_read() {
        let schema = Schema::custom_resource(
            &json!({
                "type": "object",
                "properties": {
                    "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
                    "spec": {
                        "type": "object",
                        "required": ["size"],
                        "properties": {
                            "size": {"type": "integer", "format": "int32"},
                            "port": {"x-kubernetes-int-or-string": true},
                            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                            "hosts": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                                "x-kubernetes-preserve-unknown-fields": true}
                        }
                    }
                }
            }),
            GroupVersionKind::new("example.com", "v1", "Widget"),
        )
        .unwrap();
        let spec = schema.child("spec").unwrap();
        assert!(spec.field("size").unwrap().required);
        assert!(!spec.field("port").unwrap().required);
        assert!(matches!(spec.child("port").unwrap().shape, Shape::IntOrString));
        assert_eq!(spec.child("hosts").unwrap().list_type, ListType::Set);
        assert!(
            schema.at_path("metadata.ownerReferences.uid").is_some(),
            "metadata is the full one"
        );
        let mut value = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "nope": 1},
            "spec": {"size": 1, "typo": 2, "anything": {"goes": [1]}, "labels": {"a": "b"},
                "template": {"metadata": {"labels": {}, "nope": 1}, "spec": {"free": true}}}
        });
        assert_eq!(
            crate::prune(&mut value, &schema, 10),
            ["metadata.nope", "spec.template.metadata.nope", "spec.typo"]
        );
        assert_eq!(value["spec"]["template"]["spec"], json!({"free": true}));
    }

    #[test]
    fn bad_documents_are_told() {
        let error = |document: Value| Schema::from_openapi_v3(&document).unwrap_err().to_string();
        assert_eq!(error(json!({"type": "strin"})), "type: unknown type \"strin\"");
        assert_eq!(
            error(json!({"type": "object", "properties": {"a": {"type": "array", "items": 5}}})),
            "properties[a].items: must be an object"
        );
        assert!(error(json!({"type": "string", "pattern": "("})).starts_with("pattern: must be a valid"));
        let mut deep = json!({"type": "string"});
        for _ in 0..500 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(error(deep).ends_with("is nested too deeply"));
    }
}
