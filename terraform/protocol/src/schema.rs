//! What a configuration may say, and who decides what.

use std::collections::BTreeMap;

use crate::types::Type;
use crate::value::Value;
use crate::wire::provider as wire;

/// Who gives an attribute its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// The configuration, always.
    Required,
    /// The configuration, if it likes.
    Optional,
    /// The configuration, or else this.
    Default(Value),
    /// The configuration, or else the provider.
    Either,
    /// The provider.
    Computed,
}

/// What an update of anything does to an attribute that the provider computes.
#[derive(Debug, Clone, PartialEq)]
pub enum OnUpdate {
    /// It stays.
    Keep,
    /// It may be anything afterwards.
    Unknown,
    /// It may be anything afterwards if this attribute changes; otherwise it stays.
    UnknownWith(&'static str),
    /// It is this when the update has succeeded.
    Becomes(Value),
}

#[derive(Debug, Clone)]
enum Kind {
    Plain(Type),
    Single(Vec<Attribute>),
    List(Vec<Attribute>),
}

/// One attribute.
#[derive(Debug, Clone)]
pub struct Attribute {
    pub(crate) name: &'static str,
    kind: Kind,
    pub(crate) source: Source,
    pub(crate) replaces: bool,
    pub(crate) on_update: OnUpdate,
    sensitive: bool,
    description: &'static str,
}

impl Attribute {
    fn new(name: &'static str, kind: Kind, source: Source, description: &'static str) -> Self {
        Self {
            name,
            kind,
            source,
            replaces: false,
            on_update: OnUpdate::Keep,
            sensitive: false,
            description,
        }
    }

    /// One that the configuration must set.
    pub fn required(name: &'static str, of: Type, description: &'static str) -> Self {
        Self::new(name, Kind::Plain(of), Source::Required, description)
    }

    /// One that the configuration may set.
    pub fn optional(name: &'static str, of: Type, description: &'static str) -> Self {
        Self::new(name, Kind::Plain(of), Source::Optional, description)
    }

    /// One that the configuration may set, and that has a value in any case.
    pub fn default(name: &'static str, of: Type, value: impl Into<Value>, description: &'static str) -> Self {
        Self::new(name, Kind::Plain(of), Source::Default(value.into()), description)
    }

    /// One that the configuration may set, or else the provider does.
    pub fn either(name: &'static str, of: Type, description: &'static str) -> Self {
        Self::new(name, Kind::Plain(of), Source::Either, description)
    }

    /// One that the provider sets.
    pub fn computed(name: &'static str, of: Type, description: &'static str) -> Self {
        Self::new(name, Kind::Plain(of), Source::Computed, description)
    }

    /// One with attributes of its own, which the configuration may set.
    pub fn single(name: &'static str, attributes: Vec<Self>, description: &'static str) -> Self {
        Self::new(name, Kind::Single(attributes), Source::Optional, description)
    }

    /// A list of such, empty if the configuration does not set it.
    pub fn list(name: &'static str, attributes: Vec<Self>, description: &'static str) -> Self {
        let source = Source::Default(Value::empty_list());
        Self::new(name, Kind::List(attributes), source, description)
    }

    /// A change of it needs a new resource.
    #[must_use]
    pub fn replaces(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// It is not shown.
    #[must_use]
    pub fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self
    }

    /// What an update of the resource does to it.
    #[must_use]
    pub fn on_update(mut self, what: OnUpdate) -> Self {
        self.on_update = what;
        self
    }

    fn value_type(&self) -> Type {
        let object = |attributes: &[Self]| Type::Object(types(attributes));
        match &self.kind {
            Kind::Plain(of) => of.clone(),
            Kind::Single(attributes) => object(attributes),
            Kind::List(attributes) => Type::list(object(attributes)),
        }
    }

    fn to_wire(&self) -> wire::schema::Attribute {
        use wire::schema::nested::Nesting;
        let nested = |attributes: &[Self], nesting: Nesting| wire::schema::Nested {
            attributes: attributes.iter().map(Self::to_wire).collect(),
            nesting: nesting.into(),
        };
        let (r#type, nested) = match &self.kind {
            Kind::Plain(of) => (of.to_json().to_string().into_bytes(), None),
            Kind::Single(attributes) => (Vec::new(), Some(nested(attributes, Nesting::Single))),
            Kind::List(attributes) => (Vec::new(), Some(nested(attributes, Nesting::List))),
        };
        wire::schema::Attribute {
            name: self.name.to_owned(),
            r#type,
            nested,
            description: self.description.to_owned(),
            required: self.source == Source::Required,
            optional: matches!(self.source, Source::Optional | Source::Either | Source::Default(_)),
            computed: matches!(self.source, Source::Computed | Source::Either | Source::Default(_)),
            sensitive: self.sensitive,
            description_format: wire::TextFormat::Plain.into(),
        }
    }
}

fn types(attributes: &[Attribute]) -> BTreeMap<String, Type> {
    let each = attributes.iter();
    each.map(|attribute| (attribute.name.to_owned(), attribute.value_type()))
        .collect()
}

/// The attributes of a resource, a data source or a provider's configuration.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) version: i64,
    pub(crate) attributes: Vec<Attribute>,
    description: &'static str,
}

impl Schema {
    /// A schema of version 0.
    pub fn new(description: &'static str, attributes: Vec<Attribute>) -> Self {
        Self {
            version: 0,
            attributes,
            description,
        }
    }

    /// The type of its values.
    pub fn value_type(&self) -> Type {
        Type::Object(types(&self.attributes))
    }

    pub(crate) fn to_wire(&self) -> wire::Schema {
        wire::Schema {
            version: self.version,
            block: Some(wire::schema::Block {
                version: self.version,
                attributes: self.attributes.iter().map(Attribute::to_wire).collect(),
                description: self.description.to_owned(),
                description_format: wire::TextFormat::Plain.into(),
            }),
        }
    }
}
