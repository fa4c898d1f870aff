//! Who manages which field: the seam to `minato-patch`.

use serde_json::Value;

use super::options::WriteOptions;
use crate::registry::Registry;
use minato_rules::ResourceInfo;

/// Books the difference between `old` and `new` to the request's manager, in `new`'s `metadata.managedFields`.
pub(crate) fn record(
    _registry: &Registry,
    _resource: &ResourceInfo,
    _subresource: &str,
    _old: Option<&Value>,
    _new: &mut Value,
    _options: &WriteOptions,
) {
}
