//! One descriptor and one strategy per kind: names, scope, subresources, defaults, validation, columns, selectable fields.
//!
//! Data first, code only for exceptions. Adding a kind is one file here; built-in kinds and custom resources give the
//! API server the same [`ResourceInfo`]. May depend on: `meta`, `schema`, serde_json, jiff.

mod kinds;
pub mod quota;
mod resource;

pub use kinds::builtin;
pub use resource::{Column, ResourceInfo, Strategy, Subresource, Verb};
