//! One descriptor and one strategy per kind: names, scope, subresources, defaults, validation, columns, selectable fields.
//!
//! Data first, code only for exceptions. Adding a kind is one row in `kinds/table.rs` and, when it has any behaviour of
//! its own, one file in `kinds/GROUP`. Built-in kinds and custom resources give the API server the same [`ResourceInfo`].
//!
//! ```text
//! kinds/table.rs (facts) ──┐
//! kinds/GROUP/KIND.rs ─────┴─ use pod (templates), check (rules, field errors), show (columns), tree (access)
//! ```
//!
//! Trees are read through `tree` alone, never by index, so that no tree whatever makes a strategy panic. May depend on:
//! `meta`, `schema`, serde_json, jiff, base64.

mod check;
mod kinds;
mod pod;
pub mod quota;
mod resource;
mod show;
mod tree;

pub use kinds::{Schedule, builtin};
pub use resource::{Column, ResourceInfo, ScalePaths, Strategy, Subresource, Verb};
pub use show::{age, since};
