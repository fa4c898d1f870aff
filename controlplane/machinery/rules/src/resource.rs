//! What the generic handlers of the API server need to know about a kind.

use std::sync::Arc;

use jiff::Timestamp;
use minato_meta::{FieldErrors, GroupResource, GroupVersionKind, GroupVersionResource, names};
use serde_json::Value;

use crate::show;

/// API verbs as discovery lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the verbs of the API, by name")]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// All eight.
    pub const ALL: &'static [Self] = &[
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];
    /// For review kinds that are created and never stored.
    pub const CREATE_ONLY: &'static [Self] = &[Self::Create];
    /// For kinds that are computed.
    pub const READ_ONLY: &'static [Self] = &[Self::Get, Self::List];
    /// For kinds that are too dear to be deleted by the dozen.
    pub const NO_COLLECTION: &'static [Self] = &[
        Self::Create,
        Self::Delete,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];
}

/// A subresource of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Name in the path, such as `status`, `scale`, `log`.
    pub name: &'static str,
    /// Kind of its body, when it differs from the parent's (`Scale`, `Eviction`, `TokenRequest`, …).
    pub kind: Option<GroupVersionKind>,
    /// Verbs; `Connect`-like subresources (`exec`) list what discovery lists: create and get.
    pub verbs: &'static [Verb],
}

/// A column of the kind's Table form.
/// Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Header.
    pub name: String,
    /// OpenAPI type: `string`, `integer`, `number`, `boolean`, `date`.
    pub column_type: String,
    /// OpenAPI format, such as `name`; may be empty.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// Zero is shown always, one only in wide output.
    pub priority: i32,
}

/// A served kind: everything that the generic handlers ask about it.
#[derive(Clone)]
pub struct ResourceInfo {
    /// Group, version and plural name: the path.
    pub gvr: GroupVersionResource,
    /// Group, version and kind: the body.
    pub gvk: GroupVersionKind,
    /// Kind of the list body, usually the kind with `List`.
    pub list_kind: String,
    /// Singular name.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs of the main resource.
    pub verbs: &'static [Verb],
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Name of the definition in `minato-schema`, such as `io.k8s.api.core.v1.Pod`; for custom resources the schema is
    /// carried by the registry.
    pub definition: String,
    /// Resource under which objects are stored; differs from `gvr` where two groups share one kind (events).
    pub storage: GroupResource,
    /// Version in which objects are stored.
    pub storage_version: String,
    /// Behaviour.
    pub strategy: Arc<dyn Strategy>,
}

impl ResourceInfo {
    /// Whether the kind has this subresource.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
    /// Whether status is written apart from spec.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// Where a kind keeps what its `scale` subresource shows, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number of replicas.
    pub spec_replicas: String,
    /// The present one.
    pub status_replicas: String,
    /// A label selector as text; `None` for kinds that tell none.
    pub selector: Option<String>,
}

/// Behaviour of a kind. Every method has the default that suits most kinds.
///
/// The generic code does by itself, before and after these: system metadata (uid, creationTimestamp, generation,
/// managedFields), keeping `status` out of main writes and everything else out of status writes, name and label
/// validation, immutability of metadata, pruning of unknown fields by the schema.
pub trait Strategy: Send + Sync + 'static {
    /// Fills the defaults of the version; runs on every decode of a request and must be idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Sets what the server decides on create (initial phase, cleared fields).
    fn prepare_for_create(&self, _object: &mut Value) {}

    /// Keeps or clears what the main endpoint may not change.
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value) {}

    /// Puts in what keeps an object that is deleted from going at once.
    fn prepare_for_delete(&self, _object: &mut Value, _now: Timestamp) {}

    /// Keeps or clears what the status endpoint may not change; the generic code has already taken all but `status`
    /// (and the metadata that may change) from `old`.
    fn prepare_for_status_update(&self, _object: &mut Value, _old: &Value) {}

    /// What is wrong with a new object.
    fn validate(&self, _object: &Value) -> FieldErrors {
        FieldErrors::default()
    }

    /// What is wrong with a change: immutable fields, and values that were not wrong before.
    fn validate_update(&self, object: &Value, _old: &Value) -> FieldErrors {
        self.validate(object)
    }

    /// As [`Strategy::prepare_for_update`], for a subresource that writes the object itself, other than `status`:
    /// `approval`, `ephemeralcontainers`, `finalize`, `resize`, `scale`.
    fn prepare_for_subresource_update(&self, _subresource: &str, object: &mut Value, old: &Value) {
        self.prepare_for_update(object, old);
    }

    /// As [`Strategy::validate_update`], for such a subresource.
    fn validate_subresource_update(&self, _subresource: &str, object: &Value, old: &Value) -> FieldErrors {
        self.validate_update(object, old)
    }

    /// What is wrong with a status change.
    fn validate_status_update(&self, _object: &Value, _old: &Value) -> FieldErrors {
        FieldErrors::default()
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How names are checked; returns what is wrong, worded as upstream. The default is a DNS-1123 subdomain.
    fn validate_name(&self, name: &str) -> Vec<String> {
        names::dns1123_subdomain(name)
    }

    /// Whether PUT to an absent name creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Whether PUT without `resourceVersion` is taken.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Whether status changes bump nothing and spec changes bump `metadata.generation`.
    fn has_generation(&self) -> bool {
        true
    }

    /// The grace period in seconds with which this object would be deleted when the client names none. `None` for kinds
    /// that are deleted at once; pods answer from their spec, and zero when unscheduled or finished.
    fn graceful_deletion_seconds(&self, _object: &Value) -> Option<u64> {
        None
    }

    /// Whether dependents are orphaned when the client names no policy.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Time to live of new objects in seconds (events).
    fn ttl_seconds(&self) -> Option<u64> {
        None
    }

    /// Field labels that selectors may use besides `metadata.name` and `metadata.namespace`.
    fn field_labels(&self) -> &[&str] {
        &[]
    }

    /// [`Strategy::field_labels`] of kinds that learn them when they are made.
    fn selectable_fields(&self) -> Vec<String> {
        self.field_labels().iter().map(|label| (*label).to_owned()).collect()
    }

    /// Where the numbers of `scale` are, when not where built-in kinds have them.
    fn scale_paths(&self) -> Option<&ScalePaths> {
        None
    }

    /// What clients of this version are warned of, when it is on its way out.
    fn deprecation(&self) -> Option<&str> {
        None
    }

    /// Value of a field label; the empty string when unset, as upstream compares.
    fn field(&self, _object: &Value, _label: &str) -> String {
        String::new()
    }

    /// Table columns; name and age unless the kind has more to show.
    fn columns(&self) -> Vec<Column> {
        show::columns(&[show::NAME, show::AGE])
    }

    /// Cells of one row, one per column. `now` is for ages.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::age(object, now)]
    }
}
