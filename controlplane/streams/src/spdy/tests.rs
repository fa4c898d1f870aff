//! Frames against bytes written down by hand, and two sessions against each other.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;

/// Frames without header blocks, which are the same for every peer.
fn plain() -> Vec<(Frame, Vec<u8>)> {
    vec![
        (
            Frame::Data {
                stream: 5,
                fin: true,
                data: Bytes::from_static(b"hi"),
            },
            vec![0, 0, 0, 5, 1, 0, 0, 2, b'h', b'i'],
        ),
        (
            Frame::RstStream { stream: 3, status: 5 },
            vec![0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 5],
        ),
        (
            Frame::Settings {
                entries: vec![(7, 65536)],
            },
            vec![0x80, 3, 0, 4, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 7, 0, 1, 0, 0],
        ),
        (Frame::Ping { id: 9 }, vec![0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9]),
        (
            Frame::GoAway {
                last_good: 7,
                status: 0,
            },
            vec![0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0],
        ),
        (
            Frame::WindowUpdate {
                stream: 1,
                delta: 0x0102_0304,
            },
            vec![0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4],
        ),
    ]
}

#[tokio::test]
async fn frames_are_the_bytes_of_the_draft() {
    for (frame, bytes) in plain() {
        let mut out = BytesMut::new();
        Encoder::new().unwrap().encode(&frame, &mut out).unwrap();
        assert_eq!(out, bytes, "{frame:?}");
        assert_eq!(Decoder::new(&bytes[..]).next().await.unwrap(), Some(frame));
    }
}

/// A SYN_STREAM whose block is stored, not deflated, so that it can be written by hand.
fn syn_stream_by_hand() -> Vec<u8> {
    let mut pairs = vec![0, 0, 0, 1, 0, 0, 0, 10];
    pairs.extend_from_slice(b"streamtype");
    pairs.extend_from_slice(&[0, 0, 0, 5]);
    pairs.extend_from_slice(b"error");
    let length = u16::try_from(pairs.len()).unwrap();
    // zlib header with a dictionary, the dictionary's checksum, one stored block that is not the last.
    let mut block = vec![0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2, 0];
    block.extend_from_slice(&length.to_le_bytes());
    block.extend_from_slice(&(!length).to_le_bytes());
    block.extend_from_slice(&pairs);
    // The empty stored block of a flush.
    block.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    let mut frame = vec![0x80, 3, 0, 1, 0, 0, 0, u8::try_from(10 + block.len()).unwrap()];
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&block);
    frame
}

#[tokio::test]
async fn a_foreign_syn_stream_is_read() {
    let bytes = syn_stream_by_hand();
    let frame = Decoder::new(&bytes[..]).next().await.unwrap();
    let headers = vec![("streamtype".to_owned(), "error".to_owned())];
    assert_eq!(
        frame,
        Some(Frame::SynStream {
            stream: 1,
            fin: false,
            priority: 0,
            headers
        })
    );
}

#[tokio::test]
async fn malformed_frames_are_errors() {
    let huge_control = [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff];
    let other_version = [0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
    let short_ping = [0x80, 3, 0, 6, 0, 0, 0, 2, 0, 0];
    let cut = [0, 0, 0, 5, 0, 0, 0, 9, b'x'];
    let settings_that_lie = [0x80, 3, 0, 4, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff];
    for bytes in [&huge_control[..], &other_version, &short_ping, &cut, &settings_that_lie] {
        assert!(Decoder::new(bytes).next().await.is_err(), "{bytes:?}");
    }
    assert!(Decoder::new(&[][..]).next().await.unwrap().is_none());
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_and_close_one_way() {
    let (a, b) = tokio::io::duplex(1024);
    let client = Session::client(a).unwrap();
    let (server, mut accepted) = Session::server(b).unwrap();
    let opened = client.open(&[("StreamType", "stdin")]).await.unwrap();
    let stream = accepted.recv().await.unwrap();
    assert_eq!(stream.header("streamtype"), Some("stdin"));
    let (client_writer, mut client_reader) = opened.split();
    let (server_writer, mut server_reader) = stream.split();
    let sent = Bytes::from(vec![7; 300_000]);
    let upload = async {
        client_writer.write(sent.clone()).await.unwrap();
        client_writer.finish().await.unwrap();
    };
    let download = async {
        let mut total = 0;
        while let Some(data) = server_reader.next().await {
            total += data.unwrap().len();
        }
        total
    };
    let ((), total) = tokio::join!(upload, download);
    assert_eq!(total, 300_000);
    // The other direction is still open.
    server_writer.write(Bytes::from_static(b"done")).await.unwrap();
    assert_eq!(client_reader.next().await, Some(Ok(Bytes::from_static(b"done"))));
    server_writer.finish().await.unwrap();
    assert_eq!(client_reader.next().await, None);
    drop((server, server_reader, accepted));
}

#[tokio::test]
async fn the_end_of_a_connection_ends_its_streams() {
    let (a, b) = tokio::io::duplex(1024);
    let client = Session::client(a).unwrap();
    let (server, mut accepted) = Session::server(b).unwrap();
    let (writer, mut reader) = client.open(&[]).await.unwrap().split();
    drop((server, accepted.recv().await, accepted));
    assert_eq!(reader.next().await, Some(Err(SessionError::Closed)));
    client.closed().await;
    assert_eq!(writer.write(Bytes::from_static(b"x")).await, Err(SessionError::Closed));
    assert!(client.open(&[]).await.is_err());
}

#[tokio::test]
async fn a_reset_stream_says_so_after_its_last_bytes() {
    let (a, mut b) = tokio::io::duplex(4096);
    let client = Session::client(a).unwrap();
    let mut encoder = Encoder::new().unwrap();
    let mut out = BytesMut::new();
    for frame in [
        Frame::SynReply {
            stream: 1,
            fin: false,
            headers: Headers::new(),
        },
        Frame::Data {
            stream: 1,
            fin: false,
            data: Bytes::from_static(b"last"),
        },
        Frame::RstStream { stream: 1, status: 5 },
    ] {
        encoder.encode(&frame, &mut out).unwrap();
    }
    let open = client.open(&[("streamtype", "error")]);
    let (opened, written) = tokio::join!(open, b.write_all(&out));
    written.unwrap();
    let (_writer, mut reader) = opened.unwrap().split();
    assert_eq!(reader.next().await, Some(Ok(Bytes::from_static(b"last"))));
    assert_eq!(reader.next().await, Some(Err(SessionError::Reset(5))));
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn windows_are_given_back_to_peers_that_count_them() {
    let (a, b) = tokio::io::duplex(1 << 20);
    let client = Session::client(a).unwrap();
    let (mut peer_reader, mut peer_writer) = tokio::io::split(b);
    let mut encoder = Encoder::new().unwrap();
    let mut out = BytesMut::new();
    let data = Bytes::from(vec![0; 32 * 1024]);
    for frame in [
        Frame::Settings {
            entries: vec![(7, 64 * 1024)],
        },
        Frame::SynReply {
            stream: 1,
            fin: false,
            headers: Headers::new(),
        },
        Frame::Data {
            stream: 1,
            fin: true,
            data,
        },
    ] {
        encoder.encode(&frame, &mut out).unwrap();
    }
    let (opened, written) = tokio::join!(client.open(&[]), peer_writer.write_all(&out));
    written.unwrap();
    let _stream = opened.unwrap();
    let mut decoder = Decoder::new(&mut peer_reader);
    assert!(matches!(
        decoder.next().await.unwrap(),
        Some(Frame::SynStream { stream: 1, .. })
    ));
    let delta = 32 * 1024;
    assert_eq!(
        decoder.next().await.unwrap(),
        Some(Frame::WindowUpdate { stream: 0, delta })
    );
    assert_eq!(
        decoder.next().await.unwrap(),
        Some(Frame::WindowUpdate { stream: 1, delta })
    );
}

proptest! {
    #[test]
    fn any_bytes_are_frames_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for start in [&[][..], &[0x80, 3, 0, 1, 0, 0, 2]] {
                let whole = [start, &bytes].concat();
                let mut decoder = Decoder::new(&whole[..]);
                while let Ok(Some(_)) = decoder.next().await {}
            }
        });
    }
}
