//! The body of a list: shared bytes put in a row as the client takes them, compressed if it asks.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Frame, SizeHint};
use minato_codec::proto;

use crate::response::BoxError;

/// Small pieces are gathered into frames of this size; larger ones go as they are.
const FRAME: usize = 64 * 1024;

#[derive(Clone, Copy)]
enum Separator {
    Comma,
    Length,
}

/// See the module documentation. The encodings' own parts come from the caller.
pub(crate) struct ListBody {
    head: Bytes,
    items: std::vec::IntoIter<Bytes>,
    first: bool,
    separator: Separator,
    tail: Bytes,
    left: u64,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
    /// An item too large to be gathered.
    large: Option<Bytes>,
}

impl ListBody {
    fn new(head: Bytes, items: Vec<Bytes>, separator: Separator, tail: Bytes) -> Self {
        let content: usize = match separator {
            Separator::Comma => items.iter().map(|i| i.len() + 1).sum::<usize>() - usize::from(!items.is_empty()),
            Separator::Length => items.iter().map(|i| proto::item_length(i.len())).sum(),
        };
        Self {
            left: (head.len() + content + tail.len()) as u64,
            head,
            items: items.into_iter(),
            first: true,
            separator,
            tail,
            gzip: None,
            done: false,
            large: None,
        }
    }

    /// Items in a JSON array.
    pub(crate) fn json(head: impl Into<Bytes>, items: Vec<Bytes>, tail: &'static str) -> Self {
        Self::new(
            head.into(),
            items,
            Separator::Comma,
            Bytes::from_static(tail.as_bytes()),
        )
    }

    /// Items of a protobuf list.
    pub(crate) fn protobuf(frame: proto::ListFrame, items: Vec<Bytes>) -> Self {
        Self::new(frame.head.into(), items, Separator::Length, frame.tail.into())
    }

    /// A list that is encoded already.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::new(bytes, Vec::new(), Separator::Comma, Bytes::new())
    }

    /// Bytes of the body, uncompressed.
    pub(crate) fn length(&self) -> u64 {
        self.left
    }

    /// The same, compressed. Fast rather than small: the network is near.
    pub(crate) fn compressed(mut self) -> Self {
        self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self
    }

    /// The next bytes, uncompressed.
    fn plain(&mut self) -> Option<Bytes> {
        if let Some(large) = self.large.take() {
            return Some(large);
        }
        if self.done {
            return None;
        }
        let mut frame = BytesMut::with_capacity(FRAME + 4096);
        frame.extend_from_slice(&std::mem::take(&mut self.head));
        while frame.len() < FRAME {
            let Some(item) = self.items.next() else {
                frame.extend_from_slice(&std::mem::take(&mut self.tail));
                self.done = true;
                break;
            };
            match self.separator {
                Separator::Comma if std::mem::take(&mut self.first) => {}
                Separator::Comma => frame.extend_from_slice(b","),
                Separator::Length => {
                    let mut head = Vec::with_capacity(8);
                    proto::put_item_head(&mut head, item.len());
                    frame.extend_from_slice(&head);
                }
            }
            if item.len() >= FRAME / 2 {
                self.large = Some(item);
                break;
            }
            frame.extend_from_slice(&item);
        }
        Some(frame.freeze())
    }

    fn next(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let Some(mut gzip) = self.gzip.take() else {
            return Ok(self.plain());
        };
        while let Some(plain) = self.plain() {
            gzip.write_all(&plain)?;
            if gzip.get_ref().len() >= FRAME / 4 {
                let ready = std::mem::take(gzip.get_mut());
                self.gzip = Some(gzip);
                return Ok(Some(ready.into()));
            }
        }
        let rest = gzip.finish()?;
        Ok((!rest.is_empty()).then(|| rest.into()))
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match self.next() {
            Ok(None) => None,
            Ok(Some(bytes)) => {
                if self.gzip.is_none() {
                    self.left = self.left.saturating_sub(bytes.len() as u64);
                }
                Some(Ok(Frame::data(bytes)))
            }
            Err(error) => Some(Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.large.is_none() && self.gzip.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.gzip {
            None => SizeHint::with_exact(self.left),
            Some(_) => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body::Body;
    use http_body_util::BodyExt;

    use super::*;

    fn items() -> Vec<Bytes> {
        let item = |n: usize| Bytes::from(format!("\"{}\"", "x".repeat(n)));
        // Small ones, one that is larger than a frame, and one that just is.
        let sizes = (0..2000).map(|n| n % 90).chain([200_000, FRAME / 2 - 2, 0]);
        sizes.map(item).collect()
    }

    #[tokio::test]
    async fn the_parts_add_up_to_the_announced_length() {
        for count in [0, 1, 2, 2003] {
            let items: Vec<Bytes> = items().into_iter().take(count).collect();
            let joined = items
                .iter()
                .map(|i| String::from_utf8_lossy(i))
                .collect::<Vec<_>>()
                .join(",");
            let expected = format!("[{joined}]");
            let body = ListBody::json("[", items.clone(), "]");
            assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
            assert_eq!(body.length(), expected.len() as u64);
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
            let packed = ListBody::json("[", items, "]")
                .compressed()
                .collect()
                .await
                .unwrap()
                .to_bytes();
            let mut unpacked = String::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_string(&mut unpacked)
                .unwrap();
            assert_eq!(unpacked, expected);
        }
        assert_eq!(ListBody::whole("abc".into()).collect().await.unwrap().to_bytes(), "abc");
    }
}
