//! What the host of a plug-in may ask of its process.

use std::pin::Pin;

use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::wire::host as wire;

/// Streams of which nothing comes: they last as long as the process.
type Silence<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Clone)]
pub(super) struct Host {
    pub(super) end: CancellationToken,
}

impl Host {
    fn silence<T: Send + 'static>(&self) -> Silence<T> {
        let end = self.end.clone();
        Box::pin(until(end))
    }
}

/// A stream without items that ends with the process.
fn until<T: Send + 'static>(end: CancellationToken) -> impl Stream<Item = Result<T, Status>> + Send {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = sender.closed() => {}
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

#[tonic::async_trait]
impl wire::grpc_controller_server::GrpcController for Host {
    async fn shutdown(&self, _: Request<wire::Nothing>) -> Result<Response<wire::Nothing>, Status> {
        self.end.cancel();
        Ok(Response::new(wire::Nothing {}))
    }
}

#[tonic::async_trait]
impl wire::grpc_stdio_server::GrpcStdio for Host {
    type StreamStdioStream = Silence<wire::Output>;

    async fn stream_stdio(&self, _: Request<wire::Nothing>) -> Result<Response<Self::StreamStdioStream>, Status> {
        Ok(Response::new(self.silence()))
    }
}

#[tonic::async_trait]
impl wire::grpc_broker_server::GrpcBroker for Host {
    type StartStreamStream = Silence<wire::Connection>;

    async fn start_stream(
        &self,
        _: Request<Streaming<wire::Connection>>,
    ) -> Result<Response<Self::StartStreamStream>, Status> {
        Ok(Response::new(self.silence()))
    }
}
