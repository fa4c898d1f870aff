//! The node agent: registers its node and keeps its lease, runs the pods that are bound to it through a container
//! runtime's CRI, reports their state, and serves logs and streams to the API server.
//!
//! ```text
//!  options, config -> settings      certificates, client        node (object, lease, pod network)
//!  worker (one per pod): view -> plan -> execute | end          status: compute -> send
//!      sandbox, container, env, fields, network, volumes, images, probes, hooks, cgroup, resources
//!  pleg (what runs) wakes workers                             server: auth, logs, streams
//! ```
//! Start with `worker`. May depend on: machinery, runtime, streams, pki, cri and the tunnel's agent end; nothing else of the control plane. It talks
//! to the control plane through the Kubernetes API alone.

mod certificates;
mod cgroup;
mod client;
mod cni;
mod config;
mod container;
mod context;
mod env;
mod fields;
mod hooks;
mod images;
mod kubelet;
mod logs;
mod metrics;
mod network;
mod node;
mod objects;
mod options;
mod pleg;
mod pods;
mod probes;
mod resources;
mod sandbox;
mod server;
mod settings;
mod static_pods;
mod status;
mod view;
mod volumes;
mod worker;

pub use certificates::CertificateError;
pub use client::ClientError;
pub use config::{Anonymous, Authentication, Authorization, AuthorizationWebhook, KubeletConfiguration, Webhook, X509};
pub use kubelet::{Kubelet, KubeletError};
pub use options::{Labels, Options, Taints};
pub use server::ServerError;
pub use settings::{Settings, SettingsError};
