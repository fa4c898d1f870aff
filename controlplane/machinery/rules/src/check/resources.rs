//! Names and amounts of resources: `cpu`, `memory`, `example.com/gpu`.
//!
//! Source: <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/>.

use minato_meta::{FieldErrors, Quantity, names};
use serde_json::Value;

use super::{NOT_NEGATIVE, Path, Report as _};

/// A quantity as text or number.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Whether a quantity may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Zero or more.
    NotNegative,
    /// More than zero.
    Positive,
}

/// The amount of a resource.
pub(crate) fn resource_amount(errors: &mut FieldErrors, at: &Path<'_>, name: &str, value: &Value, amount: Amount) {
    let Some(quantity) = quantity(value) else {
        errors.invalid(at, value.clone(), "must be a quantity");
        return;
    };
    if quantity.signum() < 0 {
        errors.invalid(at, quantity.to_string(), NOT_NEGATIVE);
    } else if amount == Amount::Positive && quantity.signum() == 0 {
        errors.invalid(at, quantity.to_string(), "must be greater than zero");
    }
    if is_whole(name) && !quantity.is_integer() {
        errors.invalid(at, quantity.to_string(), "must be an integer");
    }
}

/// Whether only whole numbers of the resource make sense: objects, and what nodes advertise themselves.
fn is_whole(name: &str) -> bool {
    is_extended(name)
        || matches!(
            name,
            "pods"
                | "services"
                | "replicationcontrollers"
                | "resourcequotas"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

/// Whether the resource is of Kubernetes itself.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether nodes advertise the resource by plug-ins: counted, never shared.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether more may be promised than there is.
pub(crate) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// A resource name as containers use it.
pub(crate) fn resource_name(errors: &mut FieldErrors, at: &Path<'_>, name: &str) {
    errors.named(at, name, names::qualified_name);
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') {
        if !standard {
            errors.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(at, name, "doesn't follow extended resource name standard");
    }
}
