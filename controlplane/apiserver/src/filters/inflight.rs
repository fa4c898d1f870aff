//! Caps on concurrent requests: the first version of overload protection, in the place of priority and fairness.

use async_trait::async_trait;
use minato_meta::{ApiError, ErrorKind};

use super::{Next, Stage};
use crate::request::ApiRequest;
use crate::response::{self, Response};
use crate::server::OwnComponent;

const MASTERS: &str = "system:masters";

/// Refuses with 429 beyond the caps. Long-running requests and `system:masters` are exempt, as upstream has it; so are
/// the components of this process, which bound what they do at a time themselves.
pub(crate) struct InFlightCaps;

#[async_trait]
impl Stage for InFlightCaps {
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response {
        let exempt = request.user.in_group(MASTERS) || request.extensions.get::<OwnComponent>().is_some();
        if exempt || request.info.is_long_running() || !request.info.is_resource {
            return next.run(request).await;
        }
        let caps = &next.server.inflight;
        let cap = if request.info.is_read_only() {
            &caps.reads
        } else {
            &caps.writes
        };
        match cap.clone().try_acquire_owned() {
            Ok(_permit) => next.run(request).await,
            Err(_) => response::error(
                &ApiError::new(ErrorKind::TooManyRequests, "Too many requests, please try again later.")
                    .with_retry_after(1),
            ),
        }
    }
}
