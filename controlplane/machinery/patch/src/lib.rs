//! Patches: RFC 6902, RFC 7396, strategic merge, server-side apply and field ownership.
//!
//! All functions are pure and driven by `minato-schema`; time is an argument. May depend on: `meta`, `schema`,
//! json-patch, serde_json.

mod apply;
mod field_set;
#[cfg(test)]
mod hostile_tests;
mod json;
mod merge;
mod order;
mod strategic;
#[cfg(test)]
mod strategic_tests;

pub use apply::{Apply, ApplyError, Conflict, Writer, apply, same_but_for_times, track_update};
pub use field_set::{FieldSet, FieldSetError, Step, display_path, field_step, key_step, value_step};
pub use json::{JsonPatchLimits, json_patch};
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

/// Why a patch cannot be applied; the caller turns it into a `Status` by [`PatchError::into_api_error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed but does not fit this object: 422.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch asks for more work or space than allowed: 413.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// The answer for the client.
    pub fn into_api_error(self) -> minato_meta::ApiError {
        use minato_meta::{ApiError, ErrorKind};
        match self {
            Self::Malformed(message) => ApiError::bad_request(message),
            Self::DoesNotApply(message) => ApiError::new(
                ErrorKind::Invalid,
                format!("the server rejected our request due to an error in our request: {message}"),
            ),
            Self::TooLarge(message) => ApiError::new(ErrorKind::RequestEntityTooLarge, message),
        }
    }
}
