//! Frames and their bytes. Source: SPDY Protocol draft 3.1 §2.2, §2.6.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::headers::{HeaderDecoder, HeaderEncoder, Headers};

/// Version in control frames.
const VERSION: u16 = 3;
/// The first bit of a control frame.
const CONTROL: u32 = 1 << 31;
/// Stream ids and other numbers of 31 bits.
const LOW_31: u32 = CONTROL - 1;
/// The last frame that its sender sends on the stream.
const FLAG_FIN: u8 = 1;
/// Largest data frame taken, in bytes.
const MAX_DATA: usize = 4 << 20;
/// Largest control frame taken, in bytes.
const MAX_CONTROL: usize = 64 * 1024;
/// Largest data frame that fits the length field.
pub(super) const MAX_LENGTH: usize = (1 << 24) - 1;

/// Why bytes are not SPDY.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Not as the draft says.
    #[error("{0}")]
    Malformed(&'static str),
    /// Longer than anybody needs.
    #[error("a frame or header block is too large ({0})")]
    TooLarge(usize),
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields named as in the draft")]
pub enum Frame {
    Data {
        stream: u32,
        fin: bool,
        data: Bytes,
    },
    SynStream {
        stream: u32,
        fin: bool,
        priority: u8,
        headers: Headers,
    },
    SynReply {
        stream: u32,
        fin: bool,
        headers: Headers,
    },
    RstStream {
        stream: u32,
        status: u32,
    },
    Settings {
        entries: Vec<(u32, u32)>,
    },
    Ping {
        id: u32,
    },
    GoAway {
        last_good: u32,
        status: u32,
    },
    Headers {
        stream: u32,
        fin: bool,
        headers: Headers,
    },
    WindowUpdate {
        stream: u32,
        delta: u32,
    },
    /// A control frame of a type that the draft says to ignore.
    Unknown {
        kind: u16,
    },
}

/// Makes bytes of frames. Header blocks depend on those before them, so frames must be sent in the order of encoding.
pub struct Encoder {
    headers: HeaderEncoder,
}

impl Encoder {
    /// An encoder for one connection.
    ///
    /// # Errors
    /// The compressor does not take the dictionary.
    pub fn new() -> Result<Self, FrameError> {
        Ok(Self {
            headers: HeaderEncoder::new()?,
        })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// The frame is longer than its length field can say.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), FrameError> {
        let mut body = BytesMut::new();
        let (kind, fin) = match frame {
            Frame::Data { stream, fin, data } => {
                if data.len() > MAX_LENGTH {
                    return Err(FrameError::TooLarge(data.len()));
                }
                out.put_u32(stream & LOW_31);
                put_flags_and_length(out, *fin, data.len());
                out.put_slice(data);
                return Ok(());
            }
            Frame::SynStream {
                stream,
                fin,
                priority,
                headers,
            } => {
                body.put_u32(stream & LOW_31);
                body.put_u32(0);
                body.put_u8(priority << 5);
                body.put_u8(0);
                body.put_slice(&self.headers.encode(headers)?);
                (1, *fin)
            }
            Frame::SynReply { stream, fin, headers } => {
                body.put_u32(stream & LOW_31);
                body.put_slice(&self.headers.encode(headers)?);
                (2, *fin)
            }
            Frame::RstStream { stream, status } => {
                body.put_u32(stream & LOW_31);
                body.put_u32(*status);
                (3, false)
            }
            Frame::Settings { entries } => {
                body.put_u32(u32::try_from(entries.len()).map_err(|_| FrameError::TooLarge(entries.len()))?);
                for (id, value) in entries {
                    body.put_u32(id & 0x00ff_ffff);
                    body.put_u32(*value);
                }
                (4, false)
            }
            Frame::Ping { id } => {
                body.put_u32(*id);
                (6, false)
            }
            Frame::GoAway { last_good, status } => {
                body.put_u32(last_good & LOW_31);
                body.put_u32(*status);
                (7, false)
            }
            Frame::Headers { stream, fin, headers } => {
                body.put_u32(stream & LOW_31);
                body.put_slice(&self.headers.encode(headers)?);
                (8, *fin)
            }
            Frame::WindowUpdate { stream, delta } => {
                body.put_u32(stream & LOW_31);
                body.put_u32(delta & LOW_31);
                (9, false)
            }
            Frame::Unknown { kind } => (*kind, false),
        };
        if body.len() > MAX_LENGTH {
            return Err(FrameError::TooLarge(body.len()));
        }
        out.put_u16(0x8000 | VERSION);
        out.put_u16(kind);
        put_flags_and_length(out, fin, body.len());
        out.put_slice(&body);
        Ok(())
    }
}

/// Flags (8 bits) and length (24 bits, checked by the caller).
fn put_flags_and_length(out: &mut BytesMut, fin: bool, length: usize) {
    out.put_u8(if fin { FLAG_FIN } else { 0 });
    out.put_uint(length as u64, 3);
}

/// Makes frames of bytes.
pub struct Decoder<R> {
    reader: R,
    headers: HeaderDecoder,
}

impl<R: AsyncRead + Unpin> Decoder<R> {
    /// A decoder for one connection.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            headers: HeaderDecoder::new(),
        }
    }

    /// The next frame; `None` when the connection ended between two frames.
    ///
    /// # Errors
    /// See [`FrameError`]; the connection is of no use afterwards.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let mut head = [0; 8];
        if self.reader.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut head[1..]).await?;
        let mut fields = &head[..];
        let first = fields.get_u32();
        let fin = fields.get_u8() & FLAG_FIN != 0;
        let length = usize::try_from(fields.get_uint(3)).unwrap_or(usize::MAX);
        let is_control = first & CONTROL != 0;
        if length > if is_control { MAX_CONTROL } else { MAX_DATA } {
            return Err(FrameError::TooLarge(length));
        }
        let mut body = BytesMut::zeroed(length);
        self.reader.read_exact(&mut body).await?;
        let body = body.freeze();
        if !is_control {
            return Ok(Some(Frame::Data {
                stream: first,
                fin,
                data: body,
            }));
        }
        if (first & LOW_31) >> 16 != u32::from(VERSION) {
            return Err(FrameError::Malformed("a frame of another version"));
        }
        self.control((first & 0xffff) as u16, fin, body).map(Some)
    }

    /// Reads to the end of the connection and looks at nothing.
    pub(super) async fn discard(&mut self) {
        let _ = tokio::io::copy(&mut self.reader, &mut tokio::io::sink()).await;
    }

    fn control(&mut self, kind: u16, fin: bool, mut body: Bytes) -> Result<Frame, FrameError> {
        let mut number = || {
            body.try_get_u32()
                .map_err(|_| FrameError::Malformed("a control frame is cut short"))
        };
        Ok(match kind {
            1 => {
                let stream = number()? & LOW_31;
                number()?;
                let priority = body
                    .try_get_u16()
                    .map_err(|_| FrameError::Malformed("a control frame is cut short"))?;
                let headers = self.headers.decode(&body)?;
                Frame::SynStream {
                    stream,
                    fin,
                    priority: (priority >> 13) as u8,
                    headers,
                }
            }
            2 => {
                let stream = number()? & LOW_31;
                Frame::SynReply {
                    stream,
                    fin,
                    headers: self.headers.decode(&body)?,
                }
            }
            3 => Frame::RstStream {
                stream: number()? & LOW_31,
                status: number()?,
            },
            4 => {
                let count = number()?;
                let mut entries = Vec::new();
                for _ in 0..count {
                    entries.push((number()? & 0x00ff_ffff, number()?));
                }
                Frame::Settings { entries }
            }
            6 => Frame::Ping { id: number()? },
            7 => Frame::GoAway {
                last_good: number()? & LOW_31,
                status: number()?,
            },
            8 => {
                let stream = number()? & LOW_31;
                Frame::Headers {
                    stream,
                    fin,
                    headers: self.headers.decode(&body)?,
                }
            }
            9 => Frame::WindowUpdate {
                stream: number()? & LOW_31,
                delta: number()? & LOW_31,
            },
            kind => Frame::Unknown { kind },
        })
    }
}
