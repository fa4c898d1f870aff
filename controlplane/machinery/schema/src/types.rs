//! The tree of facts: what a value may look like, how it merges, who owns its parts.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use minato_meta::GroupVersionKind;
use serde_json::Value;

use crate::table::builtin;
use crate::validation::Validation;

/// Text that is static for built-in kinds and owned for custom ones.
pub type Name = Cow<'static, str>;

/// What a value may look like.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Anything.
    Any,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer(IntegerFormat),
    /// A number.
    Number,
    /// Text.
    String,
    /// Text that is base64 of bytes.
    Bytes,
    /// RFC 3339 text, whole seconds, UTC (`metav1.Time`).
    Time,
    /// RFC 3339 text with six decimals, UTC (`metav1.MicroTime`).
    MicroTime,
    /// A quantity such as `500m` or `1Gi`.
    Quantity,
    /// A whole number or text.
    IntOrString,
    /// An object of any kind, kept as it is (`runtime.RawExtension`).
    Raw,
    /// A set of field paths (`metav1.FieldsV1`), kept as it is.
    FieldsV1,
    /// An array.
    List(SchemaRef),
    /// An object with free keys.
    Map(SchemaRef),
    /// An object with known keys, sorted by name.
    Object(Vec<Field>),
}

/// Width of a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerFormat {
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
}

/// How a list is merged and owned.
/// Source: <https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each there once.
    Set,
    /// Objects, told apart by these keys.
    Map(Box<[Name]>),
}

/// A node of the tree of facts.
#[derive(Debug, Clone)]
pub struct Schema {
    /// Name of the definition, such as `io.k8s.api.core.v1.Pod`, without the leading `io.k8s.`; empty for a node that
    /// has no name of its own. Use [`Schema::definition`] for the full name.
    pub(crate) name: Name,
    /// What the value may look like.
    pub shape: Shape,
    /// For lists: how they merge.
    pub list_type: ListType,
    /// For objects and maps: owned and replaced as a whole.
    pub atomic: bool,
    /// Whether `null` is a value (custom resources).
    pub nullable: bool,
    /// Whether unknown fields are kept (custom resources).
    pub preserve_unknown: bool,
    /// Whether the value is an object of some kind with its own metadata (custom resources).
    pub embedded_resource: bool,
    /// Value that an absent one gets.
    pub default: Option<Box<Value>>,
    /// Kinds that have this definition as their body.
    pub kinds: Box<[GroupVersionKind]>,
    /// Value checks (custom resources).
    pub validation: Option<Box<Validation>>,
}

/// When Go leaves a field out of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omit {
    /// Never: the zero value is written.
    Never,
    /// When empty: `false`, 0, "", nil, an empty list or map; never a struct.
    Empty,
    /// When it is the zero value, structs included.
    Zero,
}

/// How a strategic merge patch treats a list field.
/// Source: <https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists merge rather than replace.
    pub merge: bool,
    /// The patch may name the only keys to keep.
    pub retain_keys: bool,
    /// Key by which objects of the list are matched; `None` for lists of scalars.
    pub merge_key: Option<Name>,
}

/// A field of an object.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name in JSON.
    pub name: Name,
    /// What it holds.
    pub schema: SchemaRef,
    /// Whether validation wants it.
    pub required: bool,
    /// When Go leaves it out.
    pub omit: Omit,
    /// Whether Go holds it by pointer, so that a zero value is kept apart from an absent one.
    pub pointer: bool,
    /// Value that an absent one gets.
    pub default: Option<Box<Value>>,
    /// Strategic merge; `None` is replace.
    pub patch: Option<Box<PatchStrategy>>,
    /// Go's name of a scalar type of its own, such as `v1.ServiceType`; shown in decode errors.
    pub go_type: Option<&'static str>,
    pub(crate) proto: Option<Proto>,
}

/// Protobuf facts; see [`Field::proto_path`] and [`Field::proto_type`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proto {
    pub(crate) path: [u16; 3],
    pub(crate) kind: Option<&'static str>,
}

impl Field {
    /// The value that stands for an absent one when the field is a key of a list: its default, or Go's zero value where
    /// Go would write that.
    pub fn key_default(&self) -> Option<Value> {
        if let Some(default) = self.default.as_deref().or(self.schema.default.as_deref()) {
            return Some(default.clone());
        }
        if self.pointer || self.omit != Omit::Never {
            return None;
        }
        match self.schema.shape {
            Shape::String => Some(Value::String(String::new())),
            Shape::Integer(_) => Some(Value::from(0)),
            Shape::Boolean => Some(Value::Bool(false)),
            _ => None,
        }
    }

    /// Whether Go shows `null` for this field when it is unset: a list or map without `omitempty`.
    pub fn shows_null(&self) -> bool {
        !self.pointer && self.omit == Omit::Never && matches!(self.schema.shape, Shape::List(_) | Shape::Map(_))
    }

    /// Protobuf field numbers from the enclosing message to the field. More than one where Go inlines a struct that
    /// protobuf does not. Empty when the field has none: it cannot be transcoded.
    pub fn proto_path(&self) -> &[u16] {
        match &self.proto {
            None => &[],
            Some(proto) => {
                let length = proto.path.iter().position(|number| *number == 0);
                &proto.path[..length.unwrap_or(proto.path.len())]
            }
        }
    }

    /// Protobuf type where it does not follow from the JSON type, such as `ExtraValue`.
    pub fn proto_type(&self) -> Option<&'static str> {
        self.proto.as_ref().and_then(|p| p.kind)
    }
}

/// A schema by reference: owned, or a built-in definition that is parsed when first looked at.
#[derive(Clone)]
pub enum SchemaRef {
    /// A node of its own.
    Own(Arc<Schema>),
    /// Index of a built-in definition.
    Builtin(u16),
}

impl Deref for SchemaRef {
    type Target = Schema;
    fn deref(&self) -> &Schema {
        match self {
            Self::Own(schema) => schema,
            Self::Builtin(index) => builtin().at(*index),
        }
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self::Own(Arc::new(schema))
    }
}

impl fmt::Debug for SchemaRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(schema) => schema.fmt(f),
            // Definitions refer to themselves: show the name only.
            Self::Builtin(index) => write!(f, "@{}", builtin().name(*index)),
        }
    }
}

impl Schema {
    /// A node of this shape with no other facts.
    pub fn new(shape: Shape) -> Self {
        Self {
            name: Name::Borrowed(""),
            shape,
            list_type: ListType::Atomic,
            atomic: false,
            nullable: false,
            preserve_unknown: false,
            embedded_resource: false,
            default: None,
            kinds: Box::default(),
            validation: None,
        }
    }

    /// Full name of the definition, or `None` for a node without one.
    pub fn definition(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("io.k8s.{}", self.name))
    }

    /// Go's name of the type without its package: `PodSpec`. Empty for a node without a definition.
    pub fn type_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Go's name of the type with its package: `v1.PodSpec`.
    pub fn go_name(&self) -> &str {
        let mut dots = self.name.rmatch_indices('.');
        dots.next();
        match dots.next() {
            Some((at, _)) => &self.name[at + 1..],
            None => &self.name,
        }
    }

    /// The field of an object, by its JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let fields = self.fields();
        fields
            .binary_search_by(|f| f.name.as_ref().cmp(name))
            .ok()
            .map(|at| &fields[at])
    }

    /// The fields of an object, sorted by name; empty for other shapes.
    pub fn fields(&self) -> &[Field] {
        match &self.shape {
            Shape::Object(fields) => fields,
            _ => &[],
        }
    }

    /// What is under a key: a field of an object, or the values of a map.
    pub fn child(&self, key: &str) -> Option<&Schema> {
        match &self.shape {
            Shape::Object(_) => self.field(key).map(|f| &*f.schema),
            Shape::Map(values) => Some(values),
            _ => None,
        }
    }

    /// What anything may look like: shared by all free-form values.
    pub fn anything() -> &'static Self {
        static ANYTHING: OnceLock<Schema> = OnceLock::new();
        ANYTHING.get_or_init(|| Self::new(Shape::Any))
    }

    /// What is under a key of an object that is there, and whether the key is a named field. Keys that the schema does
    /// not know hold anything.
    pub fn member(&self, key: &str) -> (&Schema, bool) {
        match &self.shape {
            Shape::Object(_) => match self.field(key) {
                Some(field) => (&field.schema, true),
                None => (Self::anything(), false),
            },
            Shape::Map(values) => (values, false),
            _ => (Self::anything(), false),
        }
    }

    /// What the items of a list look like.
    pub fn items(&self) -> Option<&Schema> {
        match &self.shape {
            Shape::List(items) => Some(items),
            _ => None,
        }
    }

    /// The node at a dotted path such as `spec.template.spec.containers.image`; lists are passed through, as
    /// `kubectl explain` does. The empty path is the node itself.
    pub fn at_path(&self, path: &str) -> Option<&Schema> {
        path.split('.')
            .filter(|part| !part.is_empty())
            .try_fold(self, |node, part| {
                let mut node = node;
                while let Some(items) = node.items() {
                    node = items;
                }
                node.child(part)
            })
    }

    /// Whether the node has sub-fields that can be owned one by one.
    pub fn is_granular(&self) -> bool {
        match &self.shape {
            Shape::Object(_) | Shape::Map(_) | Shape::Any => !self.atomic,
            Shape::List(_) => self.list_type != ListType::Atomic,
            _ => false,
        }
    }
}
