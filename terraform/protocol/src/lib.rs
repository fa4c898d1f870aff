//! Terraform's plug-in protocol 6: what stands between Terraform and a [`Provider`].
//!
//! ```text
//! terraform ── handshake line, mutual TLS, gRPC (plugin/) ── calls (service/) ── plan/ and values ── dyn Provider
//! ```
//!
//! A provider is a set of [`Resource`]s, [`DataSource`]s and [`EphemeralResource`]s, each with a [`Schema`] and a few
//! methods on [`Object`]s; [`serve`] does the rest. Knows nothing of Minato. May depend on: tonic, rustls. Nothing of ours.
//!
//! Source: <https://developer.hashicorp.com/terraform/plugin/terraform-plugin-protocol>.

mod diagnostics;
mod json;
mod log;
mod msgpack;
mod plan;
mod plugin;
mod provider;
mod schema;
mod service;
mod types;
mod value;

#[allow(missing_docs, clippy::all, unreachable_pub, reason = "generated")]
pub mod wire {
    //! Messages and services as they are on the wire.
    pub mod provider {
        //! The provider protocol.
        tonic::include_proto!("tfplugin6");
    }
    pub mod host {
        //! The protocol of every plug-in.
        tonic::include_proto!("plugin");
    }
}

pub use diagnostics::{Diagnostic, Diagnostics, Path, Step};
pub use log::init as init_log;
pub use msgpack::{decode, encode};
pub use plugin::{COOKIE, ServeError, serve};
pub use provider::{Applied, DataSource, EphemeralResource, Provider, Resource};
pub use schema::{Attribute, OnUpdate, Schema};
pub use types::{Type, TypeError};
pub use value::{Object, Value};
