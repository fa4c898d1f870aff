//! How traffic finds its way.

mod ingress;
mod ingress_class;
mod network_policy;
mod ranges;
mod slice;

pub(super) use ingress::Ingress;
pub(super) use ingress_class::IngressClass;
pub(super) use network_policy::NetworkPolicy;
pub(super) use ranges::{IpAddress, ServiceCidr};
pub(super) use slice::EndpointSlice;
