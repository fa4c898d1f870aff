//! Reads the committed table of facts, one definition at a time and only when it is asked for.
//!
//! A line that begins with `=` opens a definition; the lines after it are its fields, sorted by name.
//!
//! ```text
//! =api.core.v1.ServicePort [ma] [T=shape] [G=group/version/kind …]
//! protocol s 2 o g=v1.Protocol d="TCP"
//! name     type  proto  flags
//! ```
//!
//! Types: `s` string, `b` boolean, `i` int32, `l` int64, `d` double, `x` bytes, `*` anything, `@name` a definition,
//! `[T` list of T, `{T` map to T. Proto: field numbers from the message inwards, `-` for none, and after a colon the
//! protobuf type where it does not follow from the JSON type. Flags: `r` required, `o` omitempty, `z` omitzero, `p`
//! pointer, `ls` set, `lm=…` list map keys, `ma`/`mg` atomic or granular map, `P=` patch strategy, `K=` patch merge
//! key, `g=` Go type, `d=` default in JSON.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use minato_meta::GroupVersionKind;

use crate::types::{Field, IntegerFormat, ListType, Name, Omit, PatchStrategy, Proto, Schema, SchemaRef, Shape};

const TABLE: &str = include_str!("generated/kinds.txt");
const PREFIX: &str = "io.k8s.";

/// All built-in definitions. Immutable; a definition is parsed on first use and kept.
pub struct Definitions {
    entries: Vec<Entry>,
    kinds: HashMap<(&'static str, &'static str, &'static str), u16>,
}

struct Entry {
    name: &'static str,
    head: &'static str,
    body: &'static str,
    /// Boxed, so that the definitions nobody asks for cost little.
    schema: OnceLock<Box<Schema>>,
}

/// The built-in definitions of Kubernetes 1.36.
pub fn builtin() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(|| Definitions::index(TABLE))
}

impl Definitions {
    fn index(table: &'static str) -> Self {
        let mut entries: Vec<Entry> = table
            .split("\n=")
            .map(|block| {
                let block = block.strip_prefix('=').unwrap_or(block);
                let (head, body) = block.split_once('\n').unwrap_or((block, ""));
                let (name, head) = head.split_once(' ').unwrap_or((head, ""));
                Entry {
                    name,
                    head,
                    body,
                    schema: OnceLock::new(),
                }
            })
            .collect();
        entries.sort_by_key(|e| e.name);
        let mut kinds = HashMap::new();
        for (at, entry) in (0u16..).zip(&entries) {
            for kind in kinds_of(entry.head) {
                kinds.insert(kind, at);
            }
        }
        Self { entries, kinds }
    }

    /// A definition by its name, such as `io.k8s.api.core.v1.Pod`.
    pub fn get(&self, name: &str) -> Option<&Schema> {
        self.find(name).map(|index| self.at(index))
    }

    /// A definition by its name, as a handle that can be kept beside owned schemas.
    pub fn reference(&self, name: &str) -> Option<SchemaRef> {
        self.find(name).map(SchemaRef::Builtin)
    }

    /// The body of a kind. The core group is the empty string.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Schema> {
        self.kinds.get(&(group, version, kind)).map(|index| self.at(*index))
    }

    /// The body of a kind, as a handle.
    pub fn kind_reference(&self, kind: &GroupVersionKind) -> Option<SchemaRef> {
        self.kinds
            .get(&(kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()))
            .map(|index| SchemaRef::Builtin(*index))
    }

    /// Full names of all definitions, sorted.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(|e| format!("{PREFIX}{}", e.name))
    }

    pub(crate) fn find(&self, name: &str) -> Option<u16> {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        let at = self.entries.binary_search_by(|e| e.name.cmp(name)).ok()?;
        u16::try_from(at).ok()
    }

    pub(crate) fn at(&self, index: u16) -> &Schema {
        let entry = &self.entries[usize::from(index)];
        entry.schema.get_or_init(|| Box::new(self.parse(entry)))
    }

    pub(crate) fn name(&self, index: u16) -> &'static str {
        self.entries[usize::from(index)].name
    }

    fn parse(&self, entry: &Entry) -> Schema {
        let shape = match flag(entry.head, "T=") {
            None => Shape::Object(entry.body.lines().filter_map(|line| self.parse_field(line)).collect()),
            Some("quantity") => Shape::Quantity,
            Some("time") => Shape::Time,
            Some("microtime") => Shape::MicroTime,
            Some("intorstring") => Shape::IntOrString,
            Some("fieldsv1") => Shape::FieldsV1,
            Some("raw") => Shape::Raw,
            Some("any") => Shape::Any,
            Some(_) => Shape::Object(Vec::new()),
        };
        let mut schema = Schema::new(shape);
        schema.name = Name::Borrowed(entry.name);
        schema.atomic = entry.head.split(' ').any(|f| f == "ma");
        schema.kinds = kinds_of(entry.head)
            .map(|(g, v, k)| GroupVersionKind::new(g, v, k))
            .collect();
        schema
    }

    fn parse_field(&self, line: &'static str) -> Option<Field> {
        let mut words = line.splitn(4, ' ');
        let (name, kind, proto) = (words.next()?, words.next()?, words.next()?);
        let flags = words.next().unwrap_or_default();
        let has = |f: &str| flags.split(' ').any(|x| x == f);
        let patch = flag(flags, "P=").map(|strategy| {
            Box::new(PatchStrategy {
                merge: strategy.contains("merge"),
                retain_keys: strategy.contains("retainKeys"),
                merge_key: flag(flags, "K=").map(Name::Borrowed),
            })
        });
        Some(Field {
            name: Name::Borrowed(name),
            schema: self.parse_type(kind, flags),
            required: has("r"),
            omit: match () {
                () if has("z") => Omit::Zero,
                () if has("o") => Omit::Empty,
                () => Omit::Never,
            },
            pointer: has("p"),
            default: flag(flags, "d=")
                .and_then(|d| serde_json::from_str(d).ok())
                .map(Box::new),
            patch,
            go_type: flag(flags, "g="),
            proto: parse_proto(proto),
        })
    }

    fn parse_type(&self, kind: &'static str, flags: &'static str) -> SchemaRef {
        let granular = flags.split(' ').any(|x| x == "mg");
        if let Some(name) = kind.strip_prefix('@') {
            return match self.find(name) {
                // A field may loosen a definition that is atomic elsewhere.
                Some(index) if granular && self.at(index).atomic => {
                    let mut schema = self.at(index).clone();
                    schema.atomic = false;
                    schema.into()
                }
                Some(index) => SchemaRef::Builtin(index),
                None => scalar(Shape::Any),
            };
        }
        if let Some(items) = kind.strip_prefix('[') {
            let mut schema = Schema::new(Shape::List(self.parse_type(items, "")));
            schema.list_type = match flag(flags, "lm=") {
                Some(keys) => ListType::Map(keys.split(',').map(Name::Borrowed).collect()),
                None if flags.split(' ').any(|x| x == "ls") => ListType::Set,
                None => ListType::Atomic,
            };
            return schema.into();
        }
        if let Some(values) = kind.strip_prefix('{') {
            let mut schema = Schema::new(Shape::Map(self.parse_type(values, "")));
            schema.atomic = flags.split(' ').any(|x| x == "ma");
            return schema.into();
        }
        scalar(match kind {
            "s" => Shape::String,
            "b" => Shape::Boolean,
            "i" => Shape::Integer(IntegerFormat::Int32),
            "l" => Shape::Integer(IntegerFormat::Int64),
            "d" => Shape::Number,
            "x" => Shape::Bytes,
            _ => Shape::Any,
        })
    }
}

/// `2`, `1.4` or `5:ExtraValue`; `-` is none.
fn parse_proto(text: &'static str) -> Option<Proto> {
    let (numbers, kind) = match text.split_once(':') {
        Some((numbers, kind)) => (numbers, Some(kind)),
        None => (text, None),
    };
    let mut path = [0; 3];
    for (slot, number) in path.iter_mut().zip(numbers.split('.')) {
        *slot = number.parse().ok()?;
    }
    Some(Proto { path, kind })
}

/// Scalars without further facts are shared by all fields.
fn scalar(shape: Shape) -> SchemaRef {
    static SHARED: OnceLock<Vec<Arc<Schema>>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        [
            Shape::String,
            Shape::Boolean,
            Shape::Integer(IntegerFormat::Int32),
            Shape::Integer(IntegerFormat::Int64),
            Shape::Number,
            Shape::Bytes,
            Shape::Any,
        ]
        .into_iter()
        .map(|shape| Arc::new(Schema::new(shape)))
        .collect()
    });
    let at = match shape {
        Shape::String => 0,
        Shape::Boolean => 1,
        Shape::Integer(IntegerFormat::Int32) => 2,
        Shape::Integer(IntegerFormat::Int64) => 3,
        Shape::Number => 4,
        Shape::Bytes => 5,
        _ => 6,
    };
    SchemaRef::Own(Arc::clone(&shared[at]))
}

fn flag(flags: &'static str, key: &str) -> Option<&'static str> {
    flags.split(' ').find_map(|f| f.strip_prefix(key))
}

fn kinds_of(head: &'static str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    head.split(' ').filter_map(|f| f.strip_prefix("G=")).filter_map(|gvk| {
        let mut parts = gvk.split('/');
        Some((parts.next()?, parts.next()?, parts.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_parses_and_every_reference_resolves() {
        let definitions = builtin();
        assert_eq!(definitions.entries.len(), 771);
        for (at, entry) in (0u16..).zip(&definitions.entries) {
            let schema = definitions.at(at);
            assert!(
                schema.fields().windows(2).all(|w| w[0].name < w[1].name),
                "{} is not sorted",
                entry.name
            );
            for line in entry.body.lines() {
                let kind = line.split(' ').nth(1).unwrap().trim_start_matches(['[', '{']);
                if let Some(name) = kind.strip_prefix('@') {
                    assert!(definitions.find(name).is_some(), "{name}");
                }
            }
        }
    }

    #[test]
    fn facts_of_well_known_fields() {
        let service = builtin().by_kind("", "v1", "Service").unwrap();
        assert_eq!(service.definition().as_deref(), Some("io.k8s.api.core.v1.Service"));
        assert_eq!((service.type_name(), service.go_name()), ("Service", "v1.Service"));
        let spec = service.child("spec").unwrap();
        let ports = spec.field("ports").unwrap();
        assert_eq!(
            ports.schema.list_type,
            ListType::Map(["port".into(), "protocol".into()].into())
        );
        assert_eq!(ports.patch.as_ref().unwrap().merge_key.as_deref(), Some("port"));
        let protocol = ports.schema.items().unwrap().field("protocol").unwrap();
        assert_eq!(protocol.default.as_deref(), Some(&serde_json::json!("TCP")));
        assert!(spec.child("selector").unwrap().atomic);
        assert!(matches!(
            service.at_path("spec.ports.targetPort").unwrap().shape,
            Shape::IntOrString
        ));
    }

    #[test]
    fn a_field_loosens_an_atomic_definition() {
        let reference = builtin().get("io.k8s.api.core.v1.ObjectReference").unwrap();
        assert!(reference.atomic);
        let volume = builtin().get("io.k8s.api.core.v1.PersistentVolumeSpec").unwrap();
        assert!(!volume.child("claimRef").unwrap().atomic);
    }

    #[test]
    fn protobuf_numbers_follow_inlined_structs() {
        let probe = builtin().get("io.k8s.api.core.v1.Probe").unwrap();
        let numbers = |name: &str| probe.field(name).unwrap().proto_path().to_vec();
        assert_eq!(numbers("httpGet"), [1, 2]);
        assert_eq!(numbers("periodSeconds"), [4]);
    }
}
