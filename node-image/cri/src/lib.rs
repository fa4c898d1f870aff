//! Client of a container runtime through CRI v1 (gRPC over a unix socket), and wake-ups from containerd's own events.
//!
//! [`Cri`] has one method per call that a node agent makes; each has a deadline, and its error says which call failed
//! ([`CriError`]). Messages are those of the protocol, under [`v1`]. May depend on: tonic. Nothing of ours.
//!
//! Source: <https://kubernetes.io/docs/concepts/architecture/cri/>.

mod client;
mod error;
mod events;

pub use client::Cri;
pub use error::CriError;
pub use events::watch_exits;
pub use k8s_cri::v1;
pub use tonic::Code;
