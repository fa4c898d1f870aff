//! Carrying bytes from one connection to another without looking at them.

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes as MessageBytes, Message};

use crate::Stream;
use crate::remote_command::{LINGER, PING_EVERY};

/// Bytes that are carried at once.
const CHUNK: usize = 32 * 1024;

/// Carries both directions until both have ended. When one side takes no more, what it has said still arrives.
pub async fn relay(a: impl Stream, b: impl Stream) {
    let (from_a, to_a) = tokio::io::split(a);
    let (from_b, to_b) = tokio::io::split(b);
    tokio::join!(one_way(from_a, to_b), one_way(from_b, to_a));
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    while let Ok(1..) = from.read_buf(&mut buffer).await {
        let written = async { to.write_all(&buffer).await.is_ok() && to.flush().await.is_ok() };
        if !written.await {
            return;
        }
        buffer.clear();
    }
    let _ = to.shutdown().await;
}

/// Carries the bytes of a connection inside the binary messages of a WebSocket, whose boundaries mean nothing: the
/// tunnelled SPDY of port-forwarding. Source:
/// <https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets>.
pub async fn relay_websocket<S: Stream>(socket: WebSocketStream<S>, backend: impl Stream) {
    let (mut sink, mut source) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(backend);
    let inbound = async {
        while let Some(Ok(message)) = source.next().await {
            let bytes: Bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Close(_) => break,
                _ => continue,
            };
            // Without the flush, TLS may keep the last bytes.
            let written = async { writer.write_all(&bytes).await.is_ok() && writer.flush().await.is_ok() };
            if !written.await {
                // The backend takes no more and will end by itself; what it still says is for the client.
                std::future::pending::<()>().await;
            }
        }
        // The client is gone: so is the backend's reason to go on.
        let _ = writer.shutdown().await;
    };
    let outbound = async {
        let mut ping = tokio::time::interval(PING_EVERY);
        ping.reset();
        let mut buffer = BytesMut::with_capacity(CHUNK);
        loop {
            buffer.reserve(CHUNK);
            let message = tokio::select! {
                read = reader.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(_) => Message::Binary(buffer.split().freeze()),
                },
                _ = ping.tick() => Message::Ping(MessageBytes::new()),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        let close = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = sink.send(Message::Close(Some(close))).await;
    };
    let mut inbound = std::pin::pin!(inbound);
    tokio::select! {
        () = &mut inbound => return,
        () = outbound => {}
    }
    // So that what was sent arrives before the connection closes.
    let _ = tokio::time::timeout(LINGER, inbound).await;
}
