//! Facts about kinds: fields, types, defaults, list and patch keys, and what follows from them: pruning, type checks,
//! Go's JSON shape, defaulting, validation.
//!
//! Built-in kinds come from a committed table ([`builtin`]), custom ones from their `openAPIV3Schema`
//! ([`Schema::from_openapi_v3`], [`Schema::custom_resource`]); everything else works on both alike.
//!
//! ```text
//! request tree -> check (400) -> prune (unknown fields) -> to_go_shape -> defaults -> validate (custom kinds, 422)
//! ```
//!
//! May depend on: `meta`, serde_json, regex. Pure: no I/O, no clock; the table is immutable and parsed lazily.

mod check;
mod defaults;
mod document;
mod openapi;
mod path;
mod prune;
mod shape;
mod structural;
mod table;
mod types;
mod validation;

pub use check::{TypeError, check};
pub use defaults::apply_defaults;
pub use document::{Describe, Dialect, add_references, openapi_definition};
pub use openapi::SchemaError;
pub use path::Path;
pub use prune::prune;
pub use shape::to_go_shape;
pub use structural::structural_errors;
pub use table::{Definitions, builtin};
pub use types::{Field, IntegerFormat, ListType, Name, Omit, PatchStrategy, Schema, SchemaRef, Shape};
pub use validation::{Validation, validate};
