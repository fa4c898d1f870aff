//! SPDY/3.1 as far as Kubernetes streams need it: framing, header compression, streams multiplexed over one connection.
//!
//! Source: <https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/>.

mod dictionary;
mod frame;
mod headers;
mod session;
#[cfg(test)]
mod tests;

pub use frame::{Decoder, Encoder, Frame, FrameError};
pub use headers::Headers;
pub use session::{ReadHalf, Session, SessionError, SpdyStream, WriteHalf};
