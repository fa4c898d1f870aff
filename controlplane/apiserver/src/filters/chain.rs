//! The order of the filters. Source: upstream's default handler chain; see the crate documentation for the picture.

use super::{Stage, authentication, authorization, impersonation, inflight, outer};

/// First to last. Audit logging and priority-and-fairness queues have their places marked; until they land, requests
/// pass the audit stage untouched, and the in-flight caps stand in for the queues.
pub(crate) static CHAIN: &[&dyn Stage] = &[
    &outer::PanicRecovery,
    &outer::AuditInit,
    &outer::Metrics,
    &outer::CacheControl,
    &outer::WaitGroup,
    &outer::Deadline,
    &outer::WarningHeaders,
    &authentication::Authentication,
    &outer::AuditLog,
    &impersonation::Impersonation,
    &inflight::InFlightCaps,
    &authorization::Authorization,
];
