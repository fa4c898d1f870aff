//! Pure facts of the object model: group/version/kind names, `Status` errors, revisions, and the reading side of a
//! cluster as seen by authorizers and admission plug-ins.
//!
//! May depend on: `minato-api`, serde, bytes. No async runtime, no sockets, no clock.

pub use minato_api as api;

mod base64;
mod continuation;
mod error;
mod fields;
mod ids;
mod labels;
mod memory_reader;
pub mod names;
mod quantity;
mod reader;
mod time;

pub use base64::{first_bad_base64, is_base64};
pub use continuation::{ContinueError, ContinueToken};
pub use error::{ApiError, Cause, ErrorKind, FieldError, FieldErrorClass, FieldErrors};
pub use fields::{FieldSelector, FieldSelectorError, FieldTerm};
pub use ids::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Revision};
pub use labels::{LabelSelector, Operator, Requirement, SelectorError};
pub use memory_reader::MemoryReader;
pub use quantity::{Quantity, QuantityError, QuantityFormat};
pub use reader::{CachedObject, Change, ClusterReader};
pub use time::{DurationError, TimeError, format_duration, format_micro_time, format_time, parse_duration, parse_time};
