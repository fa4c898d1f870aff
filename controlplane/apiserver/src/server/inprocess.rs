//! The way in for clients of the same process: the same filters and handlers, without a socket.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use minato_api::kube;
use minato_auth::UserInfo;

use super::ApiServer;
use crate::request::ApiRequest;
use crate::response::{BoxError, Response};

/// Marks requests of the components that run beside the server, which no network request can carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnComponent;

/// The server as a tower service. With an identity, every request is that user's; without, the requester is whoever
/// the request's own credentials prove.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<ApiServer>,
    identity: Option<UserInfo>,
}

impl ApiServer {
    /// The service for requests that authenticate themselves, or carry a [`UserInfo`] extension.
    pub fn service(self: &Arc<Self>) -> ApiService {
        ApiService {
            server: self.clone(),
            identity: None,
        }
    }

    /// The service for one identity.
    pub fn service_as(self: &Arc<Self>, identity: UserInfo) -> ApiService {
        ApiService {
            server: self.clone(),
            identity: Some(identity),
        }
    }

    /// A client of this server that acts as `identity`, with no socket in between. Must be called within a runtime.
    pub fn client_as(self: &Arc<Self>, identity: UserInfo) -> kube::Client {
        kube::Client::new(self.service_as(identity), "default")
    }

    /// Answers one request.
    pub(crate) async fn handle(self: &Arc<Self>, request: ApiRequest) -> Response {
        crate::filters::run(self, request).await
    }
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        if let Some(identity) = &self.identity {
            request.extensions_mut().insert(identity.clone());
            request.extensions_mut().insert(OwnComponent);
        }
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let server = self.server.clone();
        let request = ApiRequest::new(request, server.config.max_body_bytes);
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
