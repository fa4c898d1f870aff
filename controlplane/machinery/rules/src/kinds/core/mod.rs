//! Kinds of the core group.

mod component_status;
mod config_map;
mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;
mod service_validation;

pub(super) use component_status::ComponentStatus;
pub(super) use config_map::ConfigMap;
pub(super) use endpoints::Endpoints;
pub(super) use event::Event;
pub(super) use limit_range::LimitRange;
pub(super) use namespace::Namespace;
pub(super) use node::Node;
pub(super) use persistent_volume::PersistentVolume;
pub(super) use persistent_volume_claim::PersistentVolumeClaim;
pub(crate) use persistent_volume_claim::spec as claim_spec;
pub(super) use pod::Pod;
pub(super) use pod_template::PodTemplate;
pub(super) use replication_controller::ReplicationController;
pub(super) use resource_quota::ResourceQuota;
pub(super) use secret::Secret;
pub(super) use service::Service;
pub(super) use service_account::ServiceAccount;
