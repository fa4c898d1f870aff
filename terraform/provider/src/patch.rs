//! A merge patch from one tree to another. Source: RFC 7396.

use serde_json::{Map, Value};

/// What makes `old` into `new`; `None` when they are the same. What neither mentions is left alone.
pub(crate) fn merge(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(before) => merge(before, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_differences_are_sent() {
        let old = json!({"a": {"x": 1, "y": 2}, "l": [1, 2], "gone": {"z": 1}, "same": 1});
        let new = json!({"a": {"x": 1, "y": 3}, "l": [2], "same": 1, "fresh": {"k": "v"}});
        let patch = json!({"a": {"y": 3}, "l": [2], "gone": null, "fresh": {"k": "v"}});
        assert_eq!(merge(&old, &new), Some(patch));
        assert_eq!(merge(&old, &old), None);
    }
}
