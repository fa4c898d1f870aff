//! Pods and pod templates: what every workload kind shares.

mod container_defaults;
mod defaults;
mod level;
mod qos;
mod status;
pub(crate) mod validation;
pub(crate) mod warnings;

pub(crate) use defaults::{persistent_source, pod as default_pod, template as default_template, volume_claim_spec};
pub(crate) use qos::qos_class;
pub(crate) use status::cells;
