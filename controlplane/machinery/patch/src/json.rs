//! JSON patch, RFC 6902, with limits.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::PatchError;

/// What one JSON patch may do.
#[derive(Debug, Clone, Copy)]
pub struct JsonPatchLimits {
    /// Operations in one patch; upstream takes 10,000.
    pub operations: usize,
    /// Bytes (as JSON) that all `copy` operations together may add; upstream takes 3 MiB.
    pub copied_bytes: usize,
    /// Nesting of the result.
    pub depth: usize,
}

impl Default for JsonPatchLimits {
    fn default() -> Self {
        Self {
            operations: 10_000,
            copied_bytes: 3 << 20,
            depth: 100,
        }
    }
}

/// Applies a JSON patch. `target` is unchanged when an error is returned.
///
/// # Errors
/// [`PatchError::Malformed`] when `patch` is no list of operations, [`PatchError::TooLarge`] beyond the limits,
/// [`PatchError::DoesNotApply`] when a path is absent or a `test` fails.
pub fn json_patch(target: &mut Value, patch: &Value, limits: &JsonPatchLimits) -> Result<(), PatchError> {
    if let Value::Array(operations) = patch
        && operations.len() > limits.operations
    {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {}, got {}",
            limits.operations,
            operations.len()
        )));
    }
    let Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    let mut result = target.clone();
    let mut budget = Budget {
        copied_bytes: 0,
        nodes: MAX_CHECKED_NODES,
        limits: *limits,
    };
    for operation in operations {
        budget.check(&operation, &result)?;
        json_patch::patch_unsafe(&mut result, std::slice::from_ref(&operation))
            .map_err(|e| PatchError::DoesNotApply(e.to_string()))?;
    }
    *target = result;
    Ok(())
}

/// Values that may be looked at to keep the limits; bounds the time of hostile patches.
const MAX_CHECKED_NODES: usize = 4_000_000;

struct Budget {
    copied_bytes: usize,
    nodes: usize,
    limits: JsonPatchLimits,
}

impl Budget {
    /// Checks what an operation would do before it is done: nesting could otherwise double with every `copy`.
    fn check(&mut self, operation: &PatchOperation, document: &Value) -> Result<(), PatchError> {
        let (path, moved) = match operation {
            PatchOperation::Copy(copy) => {
                let source = copy.from.resolve(document).ok();
                self.copied_bytes = self.copied_bytes.saturating_add(source.map_or(0, encoded_length));
                if self.copied_bytes > self.limits.copied_bytes {
                    return Err(PatchError::TooLarge(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {}",
                        self.copied_bytes, self.limits.copied_bytes
                    )));
                }
                (&copy.path, source)
            }
            PatchOperation::Move(change) => (&change.path, change.from.resolve(document).ok()),
            PatchOperation::Add(change) => (&change.path, Some(&change.value)),
            PatchOperation::Replace(change) => (&change.path, Some(&change.value)),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
        };
        let room = self.limits.depth.checked_sub(path.count());
        let fits = match (room, moved) {
            (Some(room), Some(value)) => self.fits(value, room),
            (room, _) => room.is_some(),
        };
        if fits {
            Ok(())
        } else {
            Err(PatchError::TooLarge("the patch nests values too deeply".to_owned()))
        }
    }

    fn fits(&mut self, value: &Value, depth: usize) -> bool {
        let Some(left) = self.nodes.checked_sub(1) else {
            return false;
        };
        self.nodes = left;
        match value {
            Value::Array(list) => depth > 0 && list.iter().all(|v| self.fits(v, depth - 1)),
            Value::Object(map) => depth > 0 && map.values().all(|v| self.fits(v, depth - 1)),
            _ => true,
        }
    }
}

/// Length of the JSON text without making it.
fn encoded_length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail; were it to, the limit would refuse the patch.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn apply(target: Value, patch: Value) -> Result<Value, PatchError> {
        let mut value = target;
        json_patch(&mut value, &patch, &JsonPatchLimits::default()).map(|()| value)
    }

    #[test]
    fn operations() {
        assert_eq!(
            apply(
                json!({"a": [1, 2], "b": {"c": 1}}),
                json!([
                    {"op": "test", "path": "/b/c", "value": 1},
                    {"op": "add", "path": "/a/-", "value": 3},
                    {"op": "remove", "path": "/a/0"},
                    {"op": "replace", "path": "/b/c", "value": {"d~/": true}},
                    {"op": "copy", "from": "/b/c/d~0~1", "path": "/e"},
                    {"op": "move", "from": "/b", "path": "/f"}
                ])
            )
            .unwrap(),
            json!({"a": [2, 3], "e": true, "f": {"c": {"d~/": true}}})
        );
    }

    #[test]
    fn errors_have_their_class_and_change_nothing() {
        let mut value = json!({"a": 1});
        let patch = json!([{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
        let error = json_patch(&mut value, &patch, &JsonPatchLimits::default()).unwrap_err();
        assert!(matches!(error, PatchError::DoesNotApply(_)));
        assert_eq!(value, json!({"a": 1}));
        assert!(matches!(
            apply(json!({}), json!([{"op": "remove", "path": "/a"}])),
            Err(PatchError::DoesNotApply(_))
        ));
        assert!(matches!(
            apply(json!({}), json!({"op": "add"})),
            Err(PatchError::Malformed(_))
        ));
        assert!(matches!(
            apply(json!({}), json!([{"op": "fly", "path": "/a"}])),
            Err(PatchError::Malformed(_))
        ));
    }

    #[test]
    fn copy_bombs_are_refused() {
        let copies: Vec<Value> = (0..200)
            .map(|_| json!({"op": "copy", "from": "/a", "path": "/a/b"}))
            .collect();
        assert!(matches!(
            apply(json!({"a": {"x": "y"}}), Value::Array(copies)),
            Err(PatchError::TooLarge(_))
        ));
        let doubling: Vec<Value> = (0..64)
            .flat_map(|i| [json!({"op": "copy", "from": "/a", "path": format!("/a/{i}")})])
            .collect();
        assert!(matches!(
            apply(json!({"a": {"x": "y"}}), Value::Array(doubling)),
            Err(PatchError::TooLarge(_))
        ));
        let many: Vec<Value> = (0..10_001)
            .map(|_| json!({"op": "add", "path": "/a", "value": 1}))
            .collect();
        assert!(matches!(
            apply(json!({}), Value::Array(many)),
            Err(PatchError::TooLarge(_))
        ));
    }
}
