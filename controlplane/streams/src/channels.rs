//! The channel protocols of exec and attach over WebSocket: the first byte of each message names the stream.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/websockets/> and KEP-4006.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use tokio_tungstenite::tungstenite::Message;

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the streams by name")]
pub enum Channel {
    Stdin,
    Stdout,
    Stderr,
    /// How it ended.
    Error,
    /// Sizes of the client's terminal.
    Resize,
}

impl Channel {
    /// Number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Error => 3,
            Self::Resize => 4,
        }
    }
    fn of(number: u8) -> Option<Self> {
        [Self::Stdin, Self::Stdout, Self::Stderr, Self::Error, Self::Resize]
            .into_iter()
            .find(|c| c.number() == number)
    }
}

/// Number of the pseudo-channel whose messages close another (version 5).
const CLOSE: u8 = 255;

/// A sub-protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelProtocol {
    name: &'static str,
    version: u8,
    base64: bool,
}

const fn protocol(name: &'static str, version: u8, base64: bool) -> ChannelProtocol {
    ChannelProtocol { name, version, base64 }
}

/// All of them; the nameless one is for clients that ask for none.
const PROTOCOLS: &[ChannelProtocol] = &[
    protocol("v5.channel.k8s.io", 5, false),
    protocol("v4.channel.k8s.io", 4, false),
    protocol("v4.base64.channel.k8s.io", 4, true),
    protocol("channel.k8s.io", 1, false),
    protocol("base64.channel.k8s.io", 1, true),
    protocol("", 1, false),
];

/// The first of the offered sub-protocols (of `Sec-WebSocket-Protocol`) that is known; `None` when none is.
pub fn negotiate<'o>(offered: impl IntoIterator<Item = &'o str>) -> Option<ChannelProtocol> {
    let mut asked = false;
    for name in offered {
        asked = true;
        if let Some(known) = PROTOCOLS.iter().find(|p| !p.name.is_empty() && p.name == name) {
            return Some(*known);
        }
    }
    if asked { None } else { PROTOCOLS.last().copied() }
}

/// What a client's message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// Bytes for a stream.
    Data(Channel, Bytes),
    /// No more bytes will come for a stream.
    Close(Channel),
    /// Nothing to act on.
    Nothing,
}

impl ChannelProtocol {
    /// Name as negotiated; empty for the nameless one.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the error channel carries a `Status` (and not a plain text).
    pub(crate) fn has_status(&self) -> bool {
        self.version >= 4
    }

    /// Reads a message. Unknown channels, and what does not decode, mean nothing: upstream ignores them too.
    pub(crate) fn decode(&self, message: Message) -> Incoming {
        let bytes: Bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            _ => return Incoming::Nothing,
        };
        let Some((&first, rest)) = bytes.split_first() else {
            return Incoming::Nothing;
        };
        if self.base64 {
            let channel = first.checked_sub(b'0').and_then(Channel::of);
            return match (channel, STANDARD.decode(rest)) {
                (Some(channel), Ok(data)) => Incoming::Data(channel, data.into()),
                _ => Incoming::Nothing,
            };
        }
        if first == CLOSE && self.version >= 5 {
            let closed = rest.first().copied().and_then(Channel::of);
            return closed.map_or(Incoming::Nothing, Incoming::Close);
        }
        match Channel::of(first) {
            Some(channel) => Incoming::Data(channel, bytes.slice(1..)),
            None => Incoming::Nothing,
        }
    }

    /// Makes a message.
    pub(crate) fn encode(&self, channel: Channel, data: &[u8]) -> Message {
        if self.base64 {
            let mut text = String::with_capacity(1 + data.len().div_ceil(3) * 4);
            text.push(char::from(b'0' + channel.number()));
            STANDARD.encode_string(data, &mut text);
            return Message::Text(text.into());
        }
        let mut bytes = BytesMut::with_capacity(1 + data.len());
        bytes.put_u8(channel.number());
        bytes.put_slice(data);
        Message::Binary(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_protocol_wins() {
        let name = |offered: &[&str]| negotiate(offered.iter().copied()).map(|p| p.name());
        assert_eq!(
            name(&["v5.channel.k8s.io", "v4.channel.k8s.io"]),
            Some("v5.channel.k8s.io")
        );
        assert_eq!(
            name(&["x", "v4.base64.channel.k8s.io"]),
            Some("v4.base64.channel.k8s.io")
        );
        assert_eq!(name(&[]), Some(""));
        assert_eq!(name(&["x"]), None);
    }

    #[test]
    fn messages_name_their_channel() {
        let v5 = negotiate(["v5.channel.k8s.io"]).unwrap();
        assert_eq!(
            v5.decode(Message::Binary(Bytes::from_static(b"\x00hi"))),
            Incoming::Data(Channel::Stdin, Bytes::from_static(b"hi"))
        );
        assert_eq!(
            v5.decode(Message::Binary(Bytes::from_static(b"\xff\x00"))),
            Incoming::Close(Channel::Stdin)
        );
        for nothing in [&b""[..], b"\xff", b"\xff\x09", b"\x09x"] {
            assert_eq!(
                v5.decode(Message::Binary(Bytes::copy_from_slice(nothing))),
                Incoming::Nothing
            );
        }
        assert_eq!(
            v5.encode(Channel::Stderr, b"e"),
            Message::Binary(Bytes::from_static(b"\x02e"))
        );
    }

    #[test]
    fn only_version_five_closes_a_channel() {
        let v4 = negotiate(["v4.channel.k8s.io"]).unwrap();
        assert_eq!(
            v4.decode(Message::Binary(Bytes::from_static(b"\xff\x00"))),
            Incoming::Nothing
        );
    }

    #[test]
    fn base64_is_text_with_a_digit_in_front() {
        let protocol = negotiate(["v4.base64.channel.k8s.io"]).unwrap();
        assert_eq!(protocol.encode(Channel::Stdout, b"hi"), Message::Text("1aGk=".into()));
        assert_eq!(
            protocol.decode(Message::Text("0aGk=".into())),
            Incoming::Data(Channel::Stdin, Bytes::from_static(b"hi"))
        );
        assert_eq!(protocol.decode(Message::Text("0!".into())), Incoming::Nothing);
    }
}
