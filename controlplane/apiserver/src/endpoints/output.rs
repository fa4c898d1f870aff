//! The form in which a client wants objects: whole, as metadata alone, or as rows of a table.
//!
//! Sources: <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables> and
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches>.

use jiff::Timestamp;
use minato_meta::ApiError;
use minato_rules::ResourceInfo;
use serde_json::{Map, Value, json};

use crate::request::ApiRequest;

/// Versions of the forms; they differ in name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FormVersion {
    V1,
    V1Beta1,
}

impl FormVersion {
    /// The `apiVersion` of what is sent.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What is made of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Nothing: it is sent as it is.
    Whole,
    /// `PartialObjectMetadata`, and a list of these for a list.
    Metadata(FormVersion),
    /// A row of a `Table`.
    Table(FormVersion),
}

/// What a row holds beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Include {
    None,
    Metadata,
    Object,
}

/// See the module documentation.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Output {
    form: Form,
    include: Include,
}

impl Output {
    /// The output of a request for this form.
    ///
    /// # Errors
    /// 400 when the request does not say rightly what rows are to include.
    pub(crate) fn new(form: Form, request: &ApiRequest) -> Result<Self, ApiError> {
        let include = match request.query.get_non_empty("includeObject") {
            None | Some("Metadata") => Include::Metadata,
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            // Only tables have rows; others do not look at the option.
            Some(_) if !matches!(form, Form::Table(_)) => Include::Metadata,
            Some(other) => {
                return Err(ApiError::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Self { form, include })
    }

    /// Whether objects are sent as they are.
    pub(crate) fn is_whole(&self) -> bool {
        self.form == Form::Whole
    }

    /// Whether what is sent depends on when it is sent: rows tell ages.
    pub(crate) fn tells_time(&self) -> bool {
        matches!(self.form, Form::Table(_))
    }

    /// Kind, `apiVersion` and name of the items of a list in this form.
    pub(crate) fn list_type(&self, resource: &ResourceInfo) -> (String, String, &'static str) {
        match self.form {
            Form::Whole => (
                resource.list_kind.clone(),
                resource.gvk.group_version().to_string(),
                "items",
            ),
            Form::Metadata(version) => (
                "PartialObjectMetadataList".to_owned(),
                version.api_version().to_owned(),
                "items",
            ),
            Form::Table(version) => ("Table".to_owned(), version.api_version().to_owned(), "rows"),
        }
    }

    /// What a list tells once, beside its metadata and items.
    pub(crate) fn list_facts(&self, resource: &ResourceInfo) -> Map<String, Value> {
        let mut facts = Map::new();
        if matches!(self.form, Form::Table(_)) {
            facts.insert("columnDefinitions".to_owned(), columns(resource));
        }
        facts
    }

    /// An object as an item of a list.
    pub(crate) fn item(&self, resource: &ResourceInfo, object: Value) -> Value {
        match self.form {
            Form::Whole => object,
            Form::Metadata(version) => metadata(version, object),
            Form::Table(version) => self.row(resource, object, version),
        }
    }

    /// An object by itself. `with_columns`: whether a table says what its columns are.
    pub(crate) fn object(&self, resource: &ResourceInfo, object: Value, with_columns: bool) -> Value {
        let Form::Table(version) = self.form else {
            return self.item(resource, object);
        };
        let revision = object.pointer("/metadata/resourceVersion").cloned();
        let columns = if with_columns { columns(resource) } else { json!([]) };
        json!({
            "kind": "Table",
            "apiVersion": version.api_version(),
            "metadata": {"resourceVersion": revision.unwrap_or_else(|| json!(""))},
            "columnDefinitions": columns,
            "rows": [self.row(resource, object, version)],
        })
    }

    fn row(&self, resource: &ResourceInfo, object: Value, version: FormVersion) -> Value {
        let cells = resource.strategy.cells(&object, Timestamp::now());
        let object = match self.include {
            Include::None => Value::Null,
            Include::Metadata => metadata(version, object),
            Include::Object => object,
        };
        json!({"cells": cells, "object": object})
    }
}

fn metadata(version: FormVersion, mut object: Value) -> Value {
    let metadata = object.get_mut("metadata").map(Value::take);
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata.unwrap_or_else(|| json!({})),
    })
}

fn columns(resource: &ResourceInfo) -> Value {
    let columns = resource.strategy.columns().into_iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.column_type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    columns.collect()
}
