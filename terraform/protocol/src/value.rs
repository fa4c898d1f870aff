//! Values as Terraform has them: like JSON's, and any part may be unknown until something has been made.

use std::collections::BTreeMap;

use serde_json::Number;

/// One value.
#[derive(Clone, Default, PartialEq)]
pub enum Value {
    /// Not set.
    #[default]
    Null,
    /// Not known before the plan is carried out.
    Unknown,
    /// A truth value.
    Bool(bool),
    /// A number; whole numbers are kept as such however they were written.
    Number(Number),
    /// A text.
    String(String),
    /// A list.
    List(Vec<Value>),
    /// A map or an object.
    Map(BTreeMap<String, Value>),
}

/// Shows the shape alone: a value may be a secret, and what is shown ends up in logs.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Unknown => f.write_str("unknown"),
            Self::Bool(_) => f.write_str("bool"),
            Self::Number(_) => f.write_str("number"),
            Self::String(_) => f.write_str("string"),
            Self::List(items) => f.debug_list().entries(items).finish(),
            Self::Map(items) => f.debug_map().entries(items).finish(),
        }
    }
}

impl Value {
    /// What there is of an absent attribute.
    pub(crate) const NULL: &'static Self = &Self::Null;

    /// A number from a float; `None` when it is not finite. Whole numbers become integers.
    pub fn float(number: f64) -> Option<Self> {
        // 2^53: every whole number below has an exact float.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && number.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            return Some(Self::from(number as i64));
        }
        Number::from_f64(number).map(Self::Number)
    }

    /// Whether it is [`Value::Null`].
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether it is [`Value::Unknown`] itself; parts of it may be unknown when it is not.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether no part of it is unknown.
    pub fn is_wholly_known(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::List(items) => items.iter().all(Self::is_wholly_known),
            Self::Map(items) => items.values().all(Self::is_wholly_known),
            _ => true,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The items, if it is a map or an object.
    pub fn as_map(&self) -> Option<&BTreeMap<String, Value>> {
        match self {
            Self::Map(items) => Some(items),
            _ => None,
        }
    }

    /// A map without items.
    pub fn empty_map() -> Self {
        Self::Map(BTreeMap::new())
    }

    /// A list without items.
    pub fn empty_list() -> Self {
        Self::List(Vec::new())
    }

    /// Nothing, in any of its spellings: unset, or an empty text, list or map.
    fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::String(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(items) => items.is_empty(),
            _ => false,
        }
    }

    /// This value, with nothing spelled as in `like`, if that says anything: an API that leaves out what is empty must not look
    /// like a change.
    pub fn spelled_like(self, like: &Self) -> Self {
        match (self, like) {
            (this, like) if this.is_empty() && like.is_empty() && !like.is_null() => like.clone(),
            (Self::List(items), Self::List(like)) if items.len() == like.len() => {
                let pairs = items.into_iter().zip(like);
                Self::List(pairs.map(|(item, like)| item.spelled_like(like)).collect())
            }
            (Self::Map(items), Self::Map(like)) => {
                let respell = |(key, item): (String, Self)| {
                    // An item that is not in the other is one, even if it is empty.
                    let item = match like.get(&key) {
                        Some(like) => item.spelled_like(like),
                        None => item,
                    };
                    (key, item)
                };
                Self::Map(items.into_iter().map(respell).collect())
            }
            (this, _) => this,
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl FromIterator<(String, Value)> for Value {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(items: I) -> Self {
        Self::Map(items.into_iter().collect())
    }
}

/// The attributes of a resource or a configuration, by name; what is absent is null.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object(pub BTreeMap<String, Value>);

impl Object {
    /// One attribute.
    pub fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(Value::NULL)
    }

    /// One attribute's text.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name).as_str()
    }

    /// Sets one attribute.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Map(object.0)
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Object {
    fn from(items: [(&str, Value); N]) -> Self {
        Self(items.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Value {
        items.iter().copied().collect()
    }

    #[test]
    fn whole_floats_are_integers() {
        assert_eq!(Value::float(3.0), Some(Value::from(3)));
        assert_eq!(Value::float(-3.0).and_then(|value| value.as_i64()), Some(-3));
        assert_eq!(Value::float(0.5).and_then(|value| value.as_i64()), None);
        assert_eq!(Value::float(f64::NAN), None);
    }

    #[test]
    fn nothing_is_spelled_as_it_was() {
        let empty = Value::Map(BTreeMap::new());
        assert_eq!(Value::Null.spelled_like(&empty), empty);
        assert_eq!(empty.clone().spelled_like(&Value::Null), empty);
        assert_eq!(Value::Null.spelled_like(&Value::from("a")), Value::Null);
        assert_eq!(list(&["a"]).spelled_like(&list(&[])), list(&["a"]));
        let taint = |value: Value| Value::List(vec![Object::from([("value", value)]).into()]);
        assert_eq!(taint(Value::Null).spelled_like(&taint("".into())), taint("".into()));
        assert_eq!(taint("".into()).spelled_like(&taint(Value::Null)), taint("".into()));
    }

    #[test]
    fn an_empty_item_of_a_map_is_an_item() {
        let map = |value: Value| Value::from(Object::from([("a", value)]));
        assert_eq!(map("".into()).spelled_like(&map("".into())), map("".into()));
        let other = Value::from(Object::from([("b", "".into())]));
        assert_eq!(map("".into()).spelled_like(&other), map("".into()));
    }

    #[test]
    fn what_is_shown_has_no_secret_in_it() {
        let object = Object::from([("key", "hidden".into()), ("n", 7.into())]);
        assert_eq!(format!("{object:?}"), r#"Object({"key": string, "n": number})"#);
    }
}
