//! Stages that every request passes, in upstream's order. [`chain::CHAIN`] is the one list.

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod chain;
pub(crate) mod impersonation;
pub(crate) mod inflight;
pub(crate) mod outer;

use std::sync::Arc;

use async_trait::async_trait;

use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

/// One stage. It may answer by itself, or change the request and pass it on, or change the response.
#[async_trait]
pub(crate) trait Stage: Send + Sync {
    /// Handles a request, usually by way of `next`.
    async fn handle(&self, request: ApiRequest, next: Next<'_>) -> Response;
}

/// The stages that remain.
pub(crate) struct Next<'s> {
    pub(crate) server: &'s Arc<ApiServer>,
    rest: &'static [&'static dyn Stage],
}

impl Next<'_> {
    /// Passes the request on.
    pub(crate) async fn run(self, request: ApiRequest) -> Response {
        match self.rest.split_first() {
            Some((stage, rest)) => {
                let next = Next {
                    server: self.server,
                    rest,
                };
                stage.handle(request, next).await
            }
            None => crate::response::from_result(crate::endpoints::dispatch(self.server, request).await),
        }
    }
}

/// Runs a request through the whole chain.
pub(crate) async fn run(server: &Arc<ApiServer>, request: ApiRequest) -> Response {
    let next = Next {
        server,
        rest: chain::CHAIN,
    };
    next.run(request).await
}
