//! Workloads that last.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

pub(super) use controller_revision::ControllerRevision;
pub(super) use daemon_set::DaemonSet;
pub(super) use deployment::Deployment;
pub(super) use replica_set::ReplicaSet;
pub(super) use stateful_set::StatefulSet;
