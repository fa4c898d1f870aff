//! Streams over one connection.
//!
//! **Flow control.** The implementation that all container runtimes share counts no windows: it never gives any back, so a
//! sender that kept to them would stop for ever after 64 KiB; and what it is sent after it has closed makes the kernel take
//! back the last bytes that it sent. So window is given back, for stream and session, only to a peer that has shown that it
//! counts (by SETTINGS or WINDOW_UPDATE), and our own sending is not held to windows. Back-pressure is the connection's
//! own: a stream that is not read stops the whole session once its small queue is full.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::{Decoder, Encoder, Frame, FrameError};
use super::headers::Headers;
use crate::Stream;
use crate::remote_command::LINGER;

/// Frames of one stream that wait to be read.
const UNREAD: usize = 16;
/// Frames that wait to be sent.
const UNSENT: usize = 16;
/// Streams that a peer may have open.
const MAX_STREAMS: usize = 256;
/// Streams of the peer that wait to be accepted.
const UNACCEPTED: usize = 16;
/// Largest piece that is sent at once.
const CHUNK: usize = 32 * 1024;
/// Bytes read after which window is given back; half of the window that peers start with.
const GIVE_BACK: u32 = 32 * 1024;
/// RST_STREAM: the stream is not wanted.
const REFUSED_STREAM: u32 = 3;
/// RST_STREAM: nobody reads it any more.
const CANCEL: u32 = 5;

/// Why a stream cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The connection is closed or broken.
    #[error("the connection is closed")]
    Closed,
    /// The peer reset the stream.
    #[error("the stream was reset (status {0})")]
    Reset(u32),
}

enum Unread {
    Data(Bytes),
    Fin,
    Reset(u32),
}

struct Entry {
    /// Gone when the peer has finished its side.
    unread: Option<mpsc::Sender<Unread>>,
    reply: Option<oneshot::Sender<Result<(), SessionError>>>,
    /// Cancelled when the peer resets the stream.
    reset: CancellationToken,
    /// Bytes read that are not given back yet.
    received: u32,
    /// Our side will send no more.
    written: bool,
}

struct Inner {
    streams: Mutex<HashMap<u32, Entry>>,
    frames: mpsc::Sender<Frame>,
    next_id: AtomicU32,
    closed: CancellationToken,
    /// Ends both tasks when the last handle is gone.
    _guard: DropGuard,
}

/// One end of a connection. Dropping it and all its streams closes the connection.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// One stream.
pub struct SpdyStream {
    /// Headers that it was opened with.
    pub headers: Headers,
    writer: WriteHalf,
    reader: ReadHalf,
}

/// The side of a stream that is written.
pub struct WriteHalf {
    id: u32,
    reset: CancellationToken,
    inner: Arc<Inner>,
}

/// The side of a stream that is read.
pub struct ReadHalf {
    id: u32,
    unread: mpsc::Receiver<Unread>,
    finished: bool,
    inner: Arc<Inner>,
}

impl Session {
    /// The end that opened the connection.
    ///
    /// # Errors
    /// See [`Encoder::new`].
    pub fn client(connection: impl Stream) -> Result<Self, FrameError> {
        // Nobody listens: what the peer opens is refused.
        Ok(Self::start(connection, 1)?.0)
    }

    /// The end that accepted the connection, and the streams that the peer opens.
    ///
    /// # Errors
    /// See [`Encoder::new`].
    pub fn server(connection: impl Stream) -> Result<(Self, mpsc::Receiver<SpdyStream>), FrameError> {
        Self::start(connection, 2)
    }

    fn start(connection: impl Stream, first_id: u32) -> Result<(Self, mpsc::Receiver<SpdyStream>), FrameError> {
        let (reader, writer) = tokio::io::split(connection);
        let encoder = Encoder::new()?;
        let (frames, queue) = mpsc::channel(UNSENT);
        let (accepted, accept) = mpsc::channel(UNACCEPTED);
        let closed = CancellationToken::new();
        let inner = Arc::new(Inner {
            streams: Mutex::default(),
            frames: frames.clone(),
            next_id: AtomicU32::new(first_id),
            closed: closed.clone(),
            _guard: closed.clone().drop_guard(),
        });
        let receiver = Receiver {
            inner: Arc::downgrade(&inner),
            frames,
            accepted,
            owed: 0,
            counts_windows: false,
        };
        let decoder = Decoder::new(BufReader::with_capacity(CHUNK, reader));
        tokio::spawn(receive(receiver, decoder, closed.clone()));
        tokio::spawn(write(writer, encoder, queue, closed));
        Ok((Self { inner }, accept))
    }

    /// Opens a stream and waits until the peer has agreed.
    ///
    /// # Errors
    /// The peer refuses, or the connection ends.
    pub async fn open(&self, headers: &[(&str, &str)]) -> Result<SpdyStream, SessionError> {
        let id = self.inner.next_id.fetch_add(2, Ordering::Relaxed);
        let headers: Headers = headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        let (reply, replied) = oneshot::channel();
        let stream = self.inner.add(id, headers.clone(), Some(reply));
        let syn = Frame::SynStream {
            stream: id,
            fin: false,
            priority: 0,
            headers,
        };
        self.inner.send(syn).await?;
        tokio::select! {
            biased;
            // A short command may be over, and the connection with it, before its streams' last reply is looked at.
            answer = replied => answer.unwrap_or(Err(SessionError::Closed)).map(|()| stream),
            () = self.inner.closed.cancelled() => Err(SessionError::Closed),
        }
    }

    /// Resolves when the connection has ended.
    pub async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }
}

impl Inner {
    fn add(
        self: &Arc<Self>,
        id: u32,
        headers: Headers,
        reply: Option<oneshot::Sender<Result<(), SessionError>>>,
    ) -> SpdyStream {
        let (sender, unread) = mpsc::channel(UNREAD);
        let reset = CancellationToken::new();
        let entry = Entry {
            unread: Some(sender),
            reply,
            reset: reset.clone(),
            received: 0,
            written: false,
        };
        self.streams.lock().insert(id, entry);
        SpdyStream {
            headers,
            writer: WriteHalf {
                id,
                reset,
                inner: self.clone(),
            },
            reader: ReadHalf {
                id,
                unread,
                finished: false,
                inner: self.clone(),
            },
        }
    }

    /// Changes a stream's entry, and forgets the stream when neither side has use for it.
    fn settle<T>(&self, id: u32, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut streams = self.streams.lock();
        let entry = streams.get_mut(&id)?;
        let result = change(entry);
        if entry.written && entry.unread.is_none() {
            streams.remove(&id);
        }
        Some(result)
    }

    async fn send(&self, frame: Frame) -> Result<(), SessionError> {
        tokio::select! {
            sent = self.frames.send(frame) => sent.map_err(|_| SessionError::Closed),
            () = self.closed.cancelled() => Err(SessionError::Closed),
        }
    }
}

impl SpdyStream {
    /// First value of a header that it was opened with; names are lower-case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Both sides.
    pub fn split(self) -> (WriteHalf, ReadHalf) {
        (self.writer, self.reader)
    }
}

impl WriteHalf {
    /// Sends bytes; waits while the connection is slow.
    ///
    /// # Errors
    /// The stream is reset, or the connection has ended.
    pub async fn write(&self, mut data: Bytes) -> Result<(), SessionError> {
        while !data.is_empty() {
            if self.reset.is_cancelled() {
                return Err(SessionError::Reset(CANCEL));
            }
            let piece = data.split_to(data.len().min(CHUNK));
            let frame = Frame::Data {
                stream: self.id,
                fin: false,
                data: piece,
            };
            self.inner.send(frame).await?;
        }
        Ok(())
    }

    /// Tells the peer that no more bytes will come.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn finish(self) -> Result<(), SessionError> {
        let frame = Frame::Data {
            stream: self.id,
            fin: true,
            data: Bytes::new(),
        };
        self.inner.send(frame).await
    }
}

impl ReadHalf {
    /// The next bytes; `None` when the peer has finished. A reset after everything was read is no finish.
    pub async fn next(&mut self) -> Option<Result<Bytes, SessionError>> {
        if self.finished {
            return None;
        }
        let unread = self.unread.recv().await;
        if let Some(Unread::Data(data)) = unread {
            return Some(Ok(data));
        }
        self.finished = true;
        match unread {
            Some(Unread::Reset(status)) => Some(Err(SessionError::Reset(status))),
            Some(_) => None,
            None => Some(Err(SessionError::Closed)),
        }
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        // What still comes for it is thrown away.
        self.inner.settle(self.id, |entry| entry.unread = None);
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.inner.settle(self.id, |entry| entry.written = true);
    }
}

/// Sends what is queued until the queue is gone or the session closed. A write is never given up half-way, or the peer
/// would see half a frame.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut encoder: Encoder,
    mut queue: mpsc::Receiver<Frame>,
    closed: CancellationToken,
) {
    let mut buffer = BytesMut::new();
    loop {
        // What was handed over before the end, such as the last bytes of a stream, still goes out.
        let mut next = tokio::select! {
            biased;
            frame = queue.recv() => frame,
            () = closed.cancelled() => None,
        };
        while let Some(frame) = next {
            if let Err(error) = encoder.encode(&frame, &mut buffer) {
                tracing::debug!(%error, "a SPDY frame cannot be made");
                break;
            }
            next = if buffer.len() < 2 * CHUNK {
                queue.try_recv().ok()
            } else {
                None
            };
        }
        if buffer.is_empty() {
            break;
        }
        let sent = async { writer.write_all(&buffer).await.is_ok() && writer.flush().await.is_ok() };
        if !within_linger(&closed, sent).await.unwrap_or(false) {
            // The peer takes no more. What it has said already is still to be read, so this is not yet the end.
            return;
        }
        buffer.clear();
    }
    let _ = tokio::time::timeout(LINGER, writer.shutdown()).await;
}

/// Lets `work` go on for only a little longer than the session.
async fn within_linger<T>(closed: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let over = async {
        closed.cancelled().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        done = work => Some(done),
        () = over => None,
    }
}

/// Reads until the connection ends or the session is closed.
async fn receive<R: AsyncRead + Unpin>(mut receiver: Receiver, mut decoder: Decoder<R>, closed: CancellationToken) {
    let ended = closed.run_until_cancelled(receiver.run(&mut decoder)).await.is_some();
    if let Some(inner) = receiver.inner.upgrade() {
        // Without their senders the readers end, once they have read what is queued.
        inner.streams.lock().clear();
    }
    closed.cancel();
    if !ended {
        // Closing a socket on unread bytes would take back what was sent last.
        let _ = tokio::time::timeout(LINGER, decoder.discard()).await;
    }
}

/// Hands what comes to the streams.
struct Receiver {
    inner: std::sync::Weak<Inner>,
    frames: mpsc::Sender<Frame>,
    accepted: mpsc::Sender<SpdyStream>,
    /// Bytes read on all streams that are not given back yet.
    owed: u32,
    /// Whether the peer waits for window.
    counts_windows: bool,
}

impl Receiver {
    async fn run<R: AsyncRead + Unpin>(&mut self, decoder: &mut Decoder<R>) {
        loop {
            match decoder.next().await {
                Ok(Some(frame)) => self.handle(frame).await,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "a SPDY connection broke");
                    return;
                }
            }
        }
    }

    async fn handle(&mut self, frame: Frame) {
        match frame {
            Frame::Data { stream, fin, data } => self.data(stream, fin, data).await,
            Frame::SynStream {
                stream, fin, headers, ..
            } => self.opened(stream, fin, headers).await,
            Frame::SynReply { stream, fin, .. } => {
                self.with(stream, |entry| {
                    if let Some(reply) = entry.reply.take() {
                        let _ = reply.send(Ok(()));
                    }
                });
                if fin {
                    self.end(stream, Unread::Fin).await;
                }
            }
            Frame::RstStream { stream, status } => {
                self.with(stream, |entry| {
                    entry.reset.cancel();
                    if let Some(reply) = entry.reply.take() {
                        let _ = reply.send(Err(SessionError::Reset(status)));
                    }
                });
                self.end(stream, Unread::Reset(status)).await;
                if let Some(inner) = self.inner.upgrade() {
                    inner.streams.lock().remove(&stream);
                }
            }
            Frame::Headers { stream, fin: true, .. } => self.end(stream, Unread::Fin).await,
            // Answered as it came; when the queue is full the peer has other signs of life.
            Frame::Ping { id } => {
                let _ = self.frames.try_send(Frame::Ping { id });
            }
            // The peer opens no more streams and closes the connection when those that are open have ended.
            Frame::GoAway { .. } => {}
            Frame::Settings { .. } | Frame::WindowUpdate { .. } => self.counts_windows = true,
            Frame::Headers { .. } | Frame::Unknown { .. } => {}
        }
    }

    fn with<T>(&self, stream: u32, action: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.inner.upgrade()?.settle(stream, action)
    }

    async fn data(&mut self, stream: u32, fin: bool, data: Bytes) {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if !data.is_empty() {
            let unread = self.with(stream, |entry| entry.unread.clone()).flatten();
            if let Some(unread) = unread {
                let _ = unread.send(Unread::Data(data)).await;
            }
        }
        if fin {
            self.end(stream, Unread::Fin).await;
        }
        self.give_back(stream, length);
    }

    /// Window that the queue has no room for is given back with the next frame: the reader must never wait for the writer.
    fn give_back(&mut self, stream: u32, length: u32) {
        if !self.counts_windows {
            return;
        }
        self.owed = self.owed.saturating_add(length);
        if self.owed >= GIVE_BACK
            && self
                .frames
                .try_send(Frame::WindowUpdate {
                    stream: 0,
                    delta: self.owed,
                })
                .is_ok()
        {
            self.owed = 0;
        }
        let frames = self.frames.clone();
        self.with(stream, |entry| {
            entry.received = entry.received.saturating_add(length);
            if entry.received >= GIVE_BACK
                && frames
                    .try_send(Frame::WindowUpdate {
                        stream,
                        delta: entry.received,
                    })
                    .is_ok()
            {
                entry.received = 0;
            }
        });
    }

    /// The peer has ended its side.
    async fn end(&self, stream: u32, how: Unread) {
        let unread = self.with(stream, |entry| entry.unread.take()).flatten();
        if let Some(unread) = unread {
            let _ = unread.send(how).await;
        }
    }

    async fn opened(&self, stream: u32, fin: bool, headers: Headers) {
        let Some(inner) = self.inner.upgrade() else { return };
        let refused = {
            let streams = inner.streams.lock();
            streams.contains_key(&stream) || streams.len() >= MAX_STREAMS
        };
        let accepted = if refused {
            None
        } else {
            self.accepted.try_reserve().ok()
        };
        let answer = match accepted {
            None => Frame::RstStream {
                stream,
                status: REFUSED_STREAM,
            },
            Some(slot) => {
                slot.send(inner.add(stream, headers, None));
                Frame::SynReply {
                    stream,
                    fin: false,
                    headers: Headers::new(),
                }
            }
        };
        let _ = inner.send(answer).await;
        if fin {
            self.end(stream, Unread::Fin).await;
        }
    }
}
