//! Carrying bytes from one connection to another without looking at them.

use std::pin::pin;

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

/// Carries both directions until both have ended.
///
/// When one side takes no more, what it has said still arrives: the other side's bytes are then read and thrown away,
/// because closing a TCP connection on unread bytes resets it and takes back what was sent last.
pub async fn relay(a: impl Stream, b: impl Stream) {
    let (from_a, to_a) = tokio::io::split(a);
    let (from_b, to_b) = tokio::io::split(b);
    let (mut there, mut back) = (pin!(one_way(from_a, to_b)), pin!(one_way(from_b, to_a)));
    tokio::select! {
        rest = &mut there => {
            if let Some(mut from) = rest {
                tokio::select! {
                    () = discard(&mut from) => {}
                    _ = &mut back => return linger(from).await,
                }
            }
            if let Some(from) = back.await {
                linger(from).await;
            }
        }
        rest = &mut back => {
            if let Some(mut from) = rest {
                tokio::select! {
                    () = discard(&mut from) => {}
                    _ = &mut there => return linger(from).await,
                }
            }
            if let Some(from) = there.await {
                linger(from).await;
            }
        }
    }
}

/// Carries one direction to its end. When the receiver takes no more, gives back the sender.
async fn one_way<R: AsyncRead + Unpin>(mut from: R, mut to: impl AsyncWrite + Unpin) -> Option<R> {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    while let Ok(1..) = from.read_buf(&mut buffer).await {
        // Without the flush, TLS may keep the last bytes.
        let written = async { to.write_all(&buffer).await.is_ok() && to.flush().await.is_ok() };
        if !written.await {
            return Some(from);
        }
        buffer.clear();
    }
    let _ = to.shutdown().await;
    None
}

async fn discard(from: &mut (impl AsyncRead + Unpin)) {
    let _ = tokio::io::copy(from, &mut tokio::io::sink()).await;
}

/// Reads what nobody wants until its sender has seen the end, which it has been told.
async fn linger(mut from: impl AsyncRead + Unpin) {
    let _ = tokio::time::timeout(LINGER, discard(&mut from)).await;
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
    let mut inbound = pin!(inbound);
    tokio::select! {
        () = &mut inbound => return,
        () = outbound => {}
    }
    // So that what was sent arrives before the connection closes.
    let _ = tokio::time::timeout(LINGER, inbound).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap());
        let (dialled, accepted) = tokio::join!(dialled, listener.accept());
        (dialled.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (mut client, near) = pair().await;
        let (far, mut server) = pair().await;
        let relaying = tokio::spawn(relay(near, far));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        got.clear();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"answer");
        relaying.await.unwrap();
    }

    #[tokio::test]
    async fn the_last_words_of_a_side_that_hears_no_more_arrive() {
        let (client, near) = pair().await;
        let (far, mut server) = tokio::io::duplex(256 * 1024);
        let mut relaying = tokio::spawn(relay(near, far));
        let words = vec![7; 200_000];
        server.write_all(&words).await.unwrap();
        drop(server);
        // Talks without listening yet: its bytes find nobody.
        let (mut reader, mut writer) = client.into_split();
        let talker = tokio::spawn(async move { while writer.write_all(&[0; 4096]).await.is_ok() {} });
        let ended = tokio::time::timeout(Duration::from_millis(200), &mut relaying).await;
        assert!(ended.is_err(), "whoever still talks is still listened to");
        let mut heard = vec![0; words.len()];
        reader.read_exact(&mut heard).await.unwrap();
        assert!(heard == words);
        // Its end ends the relay.
        talker.abort();
        assert_eq!(reader.read(&mut heard).await.unwrap(), 0);
        drop(reader);
        relaying.await.unwrap();
    }
}
