//! Kinds that are created to get an answer, and never stored.

use std::sync::Arc;

use minato_meta::{ApiError, ErrorKind};
use minato_rules::ResourceInfo;

use crate::endpoints::Target;
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// The review kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    Token,
    SelfSubject,
    SubjectAccess,
    SelfSubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
}

/// Which review a kind is, if it is one.
pub(crate) fn kind(resource: &ResourceInfo) -> Option<Review> {
    Some(match (resource.gvr.group.as_str(), resource.gvr.resource.as_str()) {
        ("authentication.k8s.io", "tokenreviews") => Review::Token,
        ("authentication.k8s.io", "selfsubjectreviews") => Review::SelfSubject,
        ("authorization.k8s.io", "subjectaccessreviews") => Review::SubjectAccess,
        ("authorization.k8s.io", "selfsubjectaccessreviews") => Review::SelfSubjectAccess,
        ("authorization.k8s.io", "localsubjectaccessreviews") => Review::LocalSubjectAccess,
        ("authorization.k8s.io", "selfsubjectrulesreviews") => Review::SelfSubjectRules,
        _ => return None,
    })
}

/// Answers a review.
///
/// # Errors
/// 503 until served.
pub(crate) async fn create(_: &Arc<ApiServer>, _: ApiRequest, _: Target, _: Review) -> Result<Response, ApiError> {
    Err(ApiError::new(
        ErrorKind::ServiceUnavailable,
        "reviews are not served yet",
    ))
}
