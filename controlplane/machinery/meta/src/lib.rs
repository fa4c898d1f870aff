//! Pure facts of the object model: group/version/kind names, `Status` errors, revisions, and the reading side of a
//! cluster as seen by authorizers and admission plug-ins.
//!
//! May depend on: `minato-api`, serde, bytes. No async runtime, no sockets, no clock.

pub use minato_api as api;

mod error;
mod ids;
mod reader;

pub use error::{ApiError, Cause, ErrorKind, FieldError, FieldErrorClass, FieldErrors};
pub use ids::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Revision};
pub use reader::{CachedObject, Change, ClusterReader};
