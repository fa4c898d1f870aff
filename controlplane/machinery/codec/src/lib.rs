//! Text in and out: JSON with limits and duplicate-key reports, YAML into the same tree, splicing into finished JSON.
//!
//! May depend on: `meta`, `schema`, serde_json, serde_yaml_ng. Pure. Every decoder here meets hostile bytes: bounded
//! depth, bounded size, no panic.

mod json;
pub mod proto;
mod splice;
mod yaml;

pub use json::{DecodeError, Decoded, Limits, decode_json, depth_within};
pub use splice::{splice_type, with_resource_version};
pub use yaml::decode_yaml;
