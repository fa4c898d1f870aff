//! Reading and filling trees without ever indexing: what is absent, `null` or of another type reads as empty.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Reading side of a tree.
pub(crate) trait Tree {
    /// The member of this name; `null` when there is none.
    fn sub(&self, key: &str) -> &Value;
    /// The value at a dotted path, such as `spec.template.spec`; not for keys that hold dots.
    fn at(&self, path: &str) -> &Value;
    /// The text that this value is, or none.
    fn as_text(&self) -> &str;
    /// The list that this value is, or none.
    fn as_list(&self) -> &[Value];
    /// The members of the object that this value is, or none.
    fn entries(&self) -> Entries<'_>;
    /// Whether this value is `null`, `""`, `[]` or `{}`.
    fn is_blank(&self) -> bool;

    /// A member as text.
    fn text(&self, key: &str) -> &str {
        self.sub(key).as_text()
    }
    /// A member as a list.
    fn list(&self, key: &str) -> &[Value] {
        self.sub(key).as_list()
    }
    /// A member as a whole number.
    fn int(&self, key: &str) -> Option<i64> {
        self.sub(key).as_i64()
    }
    /// A member as a whole number; zero when there is none.
    fn count(&self, key: &str) -> i64 {
        self.int(key).unwrap_or(0)
    }
    /// Whether a member is `true`.
    fn on(&self, key: &str) -> bool {
        self.sub(key).as_bool().unwrap_or(false)
    }
    /// Whether there is such a member and it is not `null`.
    fn has(&self, key: &str) -> bool {
        !self.sub(key).is_null()
    }
}

/// Members of an object.
pub(crate) type Entries<'a> = std::iter::Flatten<std::option::IntoIter<&'a Map<String, Value>>>;

impl Tree for Value {
    fn sub(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }
    fn at(&self, path: &str) -> &Value {
        path.split('.').fold(self, |value, key| value.sub(key))
    }
    fn as_text(&self) -> &str {
        self.as_str().unwrap_or_default()
    }
    fn as_list(&self) -> &[Value] {
        self.as_array().map_or(&[], Vec::as_slice)
    }
    fn entries(&self) -> Entries<'_> {
        self.as_object().into_iter().flatten()
    }
    fn is_blank(&self) -> bool {
        match self {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }
}

/// Texts of a list; other items read as empty.
pub(crate) fn texts(list: &[Value]) -> Vec<&str> {
    list.iter().map(Tree::as_text).collect()
}

/// Sets a member that is absent or `null`.
pub(crate) fn fill(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a member that is absent, `null`, `""` or 0: what Go cannot tell from unset.
pub(crate) fn fill_zero(object: &mut Value, key: &str, value: impl Into<Value>) {
    let unset = match object.sub(key) {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    };
    if unset {
        put(object, key, value);
    }
}

/// Sets a member.
pub(crate) fn put(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a member, or takes it away for `null`.
pub(crate) fn set_or_drop(object: &mut Value, key: &str, value: Value) {
    if value.is_null() {
        drop_member(object, key);
    } else {
        put(object, key, value);
    }
}

/// Takes a member away.
pub(crate) fn drop_member(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key)
}

/// The member of this name, when it is an object.
pub(crate) fn sub_mut<'v>(object: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    object.get_mut(key).filter(|value| value.is_object())
}

/// The object at a dotted path.
pub(crate) fn at_mut<'v>(object: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    path.split('.').try_fold(object, |value, key| sub_mut(value, key))
}

/// The member of this name, made an empty object when absent; `None` when it is of another type.
pub(crate) fn ensure<'v>(object: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    fill(object, key, Value::Object(Map::new()));
    sub_mut(object, key)
}

/// Items of a list member, to change.
pub(crate) fn each<'v>(object: &'v mut Value, key: &str) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_there_reads_as_empty() {
        let tree = json!({"a": {"b": [1, "x"]}, "n": null, "t": "text"});
        assert_eq!(tree.at("a.b").as_list().len(), 2);
        assert_eq!(tree.at("a.b.c.d").as_text(), "");
        assert_eq!(tree.at("t.u"), &Value::Null);
        assert!(!tree.has("n"));
        assert_eq!(texts(tree.at("a.b").as_list()), ["", "x"]);
    }

    #[test]
    fn filling_keeps_what_is_there() {
        let mut tree = json!({"a": 0, "b": "", "c": null});
        fill(&mut tree, "a", 1);
        fill(&mut tree, "c", 1);
        fill_zero(&mut tree, "b", "x");
        assert_eq!(tree, json!({"a": 0, "b": "x", "c": 1}));
        fill_zero(&mut tree, "a", 1);
        assert_eq!(tree["a"], 1);
        assert!(ensure(&mut tree, "a").is_none());
        fill(&mut json!(3), "a", 1);
    }
}
