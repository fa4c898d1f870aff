//! Types of values, their JSON form, and values made to fit them.

use std::collections::BTreeMap;

use serde_json::json;

use crate::diagnostics::{Path, Step};
use crate::value::Value;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A truth value.
    Bool,
    /// A number.
    Number,
    /// A text.
    String,
    /// A list of one type.
    List(Box<Type>),
    /// A map from texts to one type.
    Map(Box<Type>),
    /// Named attributes.
    Object(BTreeMap<String, Type>),
}

/// A value is not of the type that it should have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {wanted} is wanted")]
pub struct TypeError {
    /// Where.
    pub path: Path,
    /// What should be there.
    pub wanted: &'static str,
}

impl Type {
    /// A list.
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// A map.
    pub fn map(of: Self) -> Self {
        Self::Map(Box::new(of))
    }

    /// The form in which schemas name types.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool => json!("bool"),
            Self::Number => json!("number"),
            Self::String => json!("string"),
            Self::List(of) => json!(["list", of.to_json()]),
            Self::Map(of) => json!(["map", of.to_json()]),
            Self::Object(attributes) => {
                let attributes: serde_json::Map<_, _> = attributes
                    .iter()
                    .map(|(name, of)| (name.clone(), of.to_json()))
                    .collect();
                json!(["object", attributes])
            }
        }
    }

    /// The value with all attributes of this type and no others. Numbers may be written as texts: large ones are.
    ///
    /// # Errors
    /// The value has a part of another type.
    pub fn conform(&self, value: Value) -> Result<Value, TypeError> {
        self.conform_at(value, &mut Path::default())
    }

    fn conform_at(&self, value: Value, path: &mut Path) -> Result<Value, TypeError> {
        let wanted = match (self, value) {
            (_, value @ (Value::Null | Value::Unknown)) => return Ok(value),
            (Self::Bool, value @ Value::Bool(_))
            | (Self::Number, value @ Value::Number(_))
            | (Self::String, value @ Value::String(_)) => return Ok(value),
            (Self::Number, Value::String(text)) => match text.parse().ok().and_then(Value::float) {
                Some(number) => return Ok(number),
                None => "a number",
            },
            (Self::List(of), Value::List(items)) => {
                let each = items.into_iter().enumerate();
                let items = each.map(|(index, item)| of.within(item, path, Step::Index(index)));
                return items.collect::<Result<_, _>>().map(Value::List);
            }
            (Self::Map(of), Value::Map(items)) => {
                let conform = |(key, item): (String, Value)| {
                    let item = of.within(item, path, Step::Key(key.clone()))?;
                    Ok((key, item))
                };
                return items.into_iter().map(conform).collect::<Result<_, _>>().map(Value::Map);
            }
            (Self::Object(attributes), Value::Map(mut items)) => {
                let conform = |(name, of): (&String, &Self)| {
                    let item = items.remove(name).unwrap_or_default();
                    Ok((name.clone(), of.within(item, path, Step::Attribute(name.clone()))?))
                };
                return attributes.iter().map(conform).collect::<Result<_, _>>().map(Value::Map);
            }
            (Self::Bool, _) => "true or false",
            (Self::Number, _) => "a number",
            (Self::String, _) => "a string",
            (Self::List(_), _) => "a list",
            (Self::Map(_), _) => "a map",
            (Self::Object(_), _) => "an object",
        };
        Err(TypeError {
            path: path.clone(),
            wanted,
        })
    }

    fn within(&self, value: Value, path: &mut Path, step: Step) -> Result<Value, TypeError> {
        path.0.push(step);
        let result = self.conform_at(value, path);
        path.0.pop();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Object;

    fn pool() -> Type {
        let taint = Type::Object(BTreeMap::from([("key".to_owned(), Type::String)]));
        Type::Object(BTreeMap::from([
            ("replicas".to_owned(), Type::Number),
            ("labels".to_owned(), Type::map(Type::String)),
            ("taints".to_owned(), Type::list(taint)),
        ]))
    }

    #[test]
    fn types_are_named_in_json() {
        let json = r#"["object",{"labels":["map","string"],"replicas":"number","taints":["list",["object",{"key":"string"}]]}]"#;
        assert_eq!(pool().to_json().to_string(), json);
    }

    #[test]
    fn absent_attributes_are_null_and_foreign_ones_go() {
        let value = Object::from([("replicas", "12".into()), ("old", 1.into())]).into();
        let conformed = pool().conform(value);
        let wanted = Object::from([
            ("replicas", 12.into()),
            ("labels", Value::Null),
            ("taints", Value::Null),
        ]);
        assert_eq!(conformed, Ok(wanted.into()));
        assert_eq!(pool().conform(Value::Unknown), Ok(Value::Unknown));
    }

    #[test]
    fn a_wrong_type_is_named_by_its_path() {
        let taint = Object::from([("key", true.into())]);
        let value = Object::from([("taints", Value::List(vec![Value::Null, taint.into()]))]);
        let error = pool().conform(value.into()).map_err(|error| error.to_string());
        assert_eq!(error, Err("taints[1].key: a string is wanted".to_owned()));
        let labels = Object::from([("labels", Object::from([("a/b", 1.into())]).into())]);
        let error = pool().conform(labels.into()).map_err(|error| error.to_string());
        assert_eq!(error, Err("labels[\"a/b\"]: a string is wanted".to_owned()));
        assert!(pool().conform(Object::from([("replicas", "x".into())]).into()).is_err());
    }
}
