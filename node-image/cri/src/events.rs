//! containerd's own event stream, used only to wake whoever watches containers: what happened is then read through CRI.
//!
//! CRI has such a stream since containerd 1.7; this one is there in all versions. Source of the messages:
//! `api/services/events/v1/events.proto` of containerd.

use std::path::Path;

use futures::{Stream, StreamExt};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::CriError;
use crate::client::channel;

#[derive(Clone, PartialEq, prost::Message)]
struct SubscribeRequest {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

/// The content is not read; unknown fields are skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(string, tag = "3")]
    topic: String,
}

/// A stream with one item whenever a process of a pod started or ended. It ends with the runtime.
///
/// # Errors
/// [`CriError`]; among it that the runtime is not containerd ([`CriError::is_unimplemented`]).
pub async fn watch_exits(socket: &Path) -> Result<impl Stream<Item = ()> + Send + Unpin + use<>, CriError> {
    const CALL: &str = "Subscribe";
    let mut client = Grpc::new(channel(socket));
    let unavailable = |error: tonic::transport::Error| CriError {
        call: CALL,
        message: error.to_string(),
        code: tonic::Code::Unavailable,
    };
    client.ready().await.map_err(unavailable)?;
    let filters = ["/tasks/exit", "/tasks/oom", "/tasks/start"];
    let message = SubscribeRequest {
        filters: filters
            .iter()
            .map(|topic| format!(r#"namespace==k8s.io,topic=="{topic}""#))
            .collect(),
    };
    let path = PathAndQuery::from_static("/containerd.services.events.v1.Events/Subscribe");
    let codec = ProstCodec::<SubscribeRequest, Envelope>::default();
    let answer = client
        .server_streaming(tonic::Request::new(message), path, codec)
        .await
        .map_err(|status| CriError::new(CALL, &status))?;
    let events = answer.into_inner();
    Ok(events
        .take_while(|event| std::future::ready(event.is_ok()))
        .map(drop)
        .boxed())
}
