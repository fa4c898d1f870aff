//! Exec and attach: a WebSocket client on one side, a kubelet that speaks SPDY on the other.
//!
//! The kubelet's side is SPDY because its version of the protocol can close stdin alone, which WebSockets before v5 cannot,
//! and container runtimes do not speak v5.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes as MessageBytes, Message};

use crate::Stream;
use crate::channels::{Channel, ChannelProtocol, Incoming};
use crate::spdy::{ReadHalf, Session, SessionError, WriteHalf};

/// How often a quiet WebSocket is pinged, lest somebody in between forget it.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a client may take to answer the close of its WebSocket.
pub(crate) const LINGER: Duration = Duration::from_secs(5);
/// Messages on their way to the client.
const OUTBOX: usize = 8;
/// Largest text of the error stream, in bytes.
const MAX_STATUS: usize = 64 * 1024;

/// Streams that a command has. `stderr` and `tty` exclude each other, since a terminal has one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the streams by name")]
pub struct CommandStreams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

struct Opened {
    error: ReadHalf,
    stdin: Option<WriteHalf>,
    stdout: Option<ReadHalf>,
    stderr: Option<ReadHalf>,
    resize: Option<WriteHalf>,
    /// Kept open, since closing one would tell the runtime something.
    _idle: Vec<WriteHalf>,
}

/// Opens the streams in the order of other clients. Each is waited for: runtimes drop bytes that come before their reply.
async fn open(session: &Session, streams: CommandStreams) -> Result<Opened, SessionError> {
    let stream = async |kind: &'static str| session.open(&[("streamtype", kind)]).await;
    let (error_writer, error) = stream("error").await?.split();
    let mut opened = Opened {
        error,
        stdin: None,
        stdout: None,
        stderr: None,
        resize: None,
        _idle: vec![error_writer],
    };
    if streams.stdin {
        opened.stdin = Some(stream("stdin").await?.split().0);
    }
    if streams.stdout {
        let (writer, reader) = stream("stdout").await?.split();
        opened._idle.push(writer);
        opened.stdout = Some(reader);
    }
    if streams.stderr {
        let (writer, reader) = stream("stderr").await?.split();
        opened._idle.push(writer);
        opened.stderr = Some(reader);
    }
    if streams.tty {
        opened.resize = Some(stream("resize").await?.split().0);
    }
    Ok(opened)
}

/// Carries a command's streams until it ends or the client goes.
pub async fn serve_command<S: Stream>(
    socket: WebSocketStream<S>,
    protocol: ChannelProtocol,
    session: Session,
    streams: CommandStreams,
) {
    let (mut sink, source) = socket.split();
    let (outbox, mut queue) = mpsc::channel::<Message>(OUTBOX);
    let send_queued = async {
        let mut ping = tokio::time::interval(PING_EVERY);
        ping.reset();
        loop {
            let message = tokio::select! {
                message = queue.recv() => match message {
                    Some(message) => message,
                    None => break,
                },
                _ = ping.tick() => Message::Ping(MessageBytes::new()),
            };
            if sink.send(message).await.is_err() {
                // Whoever still has something to send must not wait for room.
                queue.close();
                break;
            }
        }
    };
    let (input_for, input_of) = tokio::sync::oneshot::channel();
    let mut input = std::pin::pin!(carry_input(source, protocol, input_of));
    let conversation = async move {
        let greeting = if streams.stdout {
            Channel::Stdout
        } else if streams.stderr {
            Channel::Stderr
        } else {
            Channel::Error
        };
        // Clients take the first message, however empty, as the sign that the connection stands.
        let _ = outbox.send(protocol.encode(greeting, b"")).await;
        let status = match open(&session, streams).await {
            Ok(mut opened) => {
                let _ = input_for.send((opened.stdin.take(), opened.resize.take()));
                carry_output(opened, protocol, &outbox).await
            }
            Err(error) => failure(&format!("cannot open the streams of the command: {error}")),
        };
        let text = if protocol.has_status() {
            status.to_string()
        } else {
            plain_text(&status)
        };
        if !text.is_empty() {
            let _ = outbox.send(protocol.encode(Channel::Error, text.as_bytes())).await;
        }
        let close = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = outbox.send(Message::Close(Some(close))).await;
    };
    tokio::select! {
        () = &mut input => return,
        ((), ()) = async { tokio::join!(conversation, send_queued) } => {}
    }
    // The client answers the close; until then it may still be reading.
    let _ = tokio::time::timeout(LINGER, input).await;
}

type InputHalves = (Option<WriteHalf>, Option<WriteHalf>);

/// Carries what the client sends; ends when the client is gone. Before the streams are open, messages wait.
async fn carry_input<S: Stream>(
    mut source: futures::stream::SplitStream<WebSocketStream<S>>,
    protocol: ChannelProtocol,
    halves: tokio::sync::oneshot::Receiver<InputHalves>,
) {
    let (mut stdin, resize) = halves.await.unwrap_or_default();
    while let Some(Ok(message)) = source.next().await {
        if message.is_close() {
            break;
        }
        match protocol.decode(message) {
            Incoming::Data(Channel::Stdin, data) => {
                if let Some(writer) = &stdin
                    && writer.write(data).await.is_err()
                {
                    // The command reads no more. Its output still matters.
                    stdin = None;
                }
            }
            Incoming::Data(Channel::Resize, data) => {
                if let Some(writer) = &resize {
                    let _ = writer.write(data).await;
                }
            }
            Incoming::Close(Channel::Stdin) => {
                if let Some(writer) = stdin.take() {
                    let _ = writer.finish().await;
                }
            }
            _ => {}
        }
    }
}

/// Carries what the command writes, and returns how it ended.
async fn carry_output(opened: Opened, protocol: ChannelProtocol, outbox: &mpsc::Sender<Message>) -> Value {
    let carry = |channel: Channel, reader: Option<ReadHalf>| async move {
        let Some(mut reader) = reader else { return };
        while let Some(Ok(data)) = reader.next().await {
            if !data.is_empty() && outbox.send(protocol.encode(channel, &data)).await.is_err() {
                return;
            }
        }
    };
    let ((), (), text) = tokio::join!(
        carry(Channel::Stdout, opened.stdout),
        carry(Channel::Stderr, opened.stderr),
        collect(opened.error),
    );
    match serde_json::from_slice::<Value>(&text) {
        Ok(status) if status.is_object() => status,
        _ if text.is_empty() => failure("the connection to the node ended before the command did"),
        _ => failure(&String::from_utf8_lossy(&text)),
    }
}

async fn collect(mut reader: ReadHalf) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some(Ok(data)) = reader.next().await {
        let room = MAX_STATUS.saturating_sub(text.len());
        let data: Bytes = data;
        text.extend_from_slice(&data[..data.len().min(room)]);
    }
    text
}

fn failure(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

/// How protocols before v4 tell the end: nothing for success, else the message.
fn plain_text(status: &Value) -> String {
    if status["status"] == "Success" {
        return String::new();
    }
    status["message"].as_str().unwrap_or("unknown error").to_owned()
}
