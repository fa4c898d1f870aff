//! Byte streams between clients, API server and kubelets: WebSocket channel protocols (v4, v5), SPDY/3.1, port-forward
//! framing, and the [`Egress`] trait by which the API server reaches into the tenant's network.
//!
//! May depend on: tokio, hyper, tungstenite. Nothing of ours.

mod egress;

pub use egress::{Egress, EgressError, Stream, Target};
