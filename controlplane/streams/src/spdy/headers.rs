//! Header blocks: name-value pairs, compressed by one zlib stream for the whole life of a connection.
//!
//! Source: SPDY Protocol draft 3.1 §2.6.10.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::FrameError;
use super::dictionary::dictionary;

/// Names and values; a name may come several times.
pub type Headers = Vec<(String, String)>;

/// Largest header block, decompressed, in bytes.
const MAX_BLOCK: usize = 64 * 1024;
/// Most pairs of a block.
const MAX_PAIRS: usize = 256;

/// Compresses header blocks, in the order in which they are sent.
pub(super) struct HeaderEncoder {
    zlib: Compress,
}

impl HeaderEncoder {
    pub(super) fn new() -> Result<Self, FrameError> {
        let mut zlib = Compress::new(Compression::fast(), true);
        zlib.set_dictionary(&dictionary())
            .map_err(|_| FrameError::Malformed("the header dictionary does not load"))?;
        Ok(Self { zlib })
    }

    pub(super) fn encode(&mut self, headers: &[(String, String)]) -> Result<Vec<u8>, FrameError> {
        let mut plain = BytesMut::new();
        // Values of one name travel together, separated by NUL.
        let mut merged: Vec<(String, String)> = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            match merged.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => {
                    values.push('\0');
                    values.push_str(value);
                }
                None => merged.push((name, value.clone())),
            }
        }
        let length = |n: usize| u32::try_from(n).map_err(|_| FrameError::Malformed("headers are too long"));
        plain.put_u32(length(merged.len())?);
        for (name, value) in &merged {
            for text in [name, value] {
                plain.put_u32(length(text.len())?);
                plain.put_slice(text.as_bytes());
            }
        }
        self.compress(&plain)
    }

    fn compress(&mut self, plain: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::with_capacity(plain.len() + 64);
        let mut at = 0;
        loop {
            let before = (self.zlib.total_in(), out.len());
            self.zlib
                .compress_vec(&plain[at..], &mut out, FlushCompress::Sync)
                .map_err(|_| FrameError::Malformed("headers do not compress"))?;
            at += usize::try_from(self.zlib.total_in() - before.0).unwrap_or(plain.len());
            // With room left over, everything is out, the flush marker included.
            if at >= plain.len() && out.len() < out.capacity() {
                return Ok(out);
            }
            out.reserve(plain.len().max(256));
        }
    }
}

/// Decompresses header blocks, in the order in which they came.
pub(super) struct HeaderDecoder {
    zlib: Decompress,
}

impl HeaderDecoder {
    pub(super) fn new() -> Self {
        Self {
            zlib: Decompress::new(true),
        }
    }

    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Headers, FrameError> {
        parse(self.decompress(block)?.into())
    }

    fn decompress(&mut self, block: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut out = Vec::with_capacity(1024);
        let mut at = 0;
        loop {
            let before = (self.zlib.total_in(), out.len());
            let result = self.zlib.decompress_vec(&block[at..], &mut out, FlushDecompress::Sync);
            at += usize::try_from(self.zlib.total_in() - before.0).unwrap_or(block.len());
            match result {
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.zlib
                        .set_dictionary(&dictionary())
                        .map_err(|_| FrameError::Malformed("headers of an unknown dictionary"))?;
                    continue;
                }
                Err(_) => return Err(FrameError::Malformed("headers do not decompress")),
            }
            if out.len() > MAX_BLOCK {
                return Err(FrameError::TooLarge(out.len()));
            }
            if at >= block.len() && out.len() < out.capacity() {
                return Ok(out);
            }
            if at == before_input(before.0, &self.zlib, at) && out.len() == before.1 && out.len() < out.capacity() {
                return Err(FrameError::Malformed("headers do not decompress"));
            }
            out.reserve(1024);
        }
    }
}

/// Where decompression stood before the last step: equal to `at` when it did not advance.
fn before_input(total_before: u64, zlib: &Decompress, at: usize) -> usize {
    at - usize::try_from(zlib.total_in() - total_before).unwrap_or(0)
}

fn parse(mut plain: Bytes) -> Result<Headers, FrameError> {
    let mut headers = Headers::new();
    let pairs = number(&mut plain)?;
    if pairs > MAX_PAIRS {
        return Err(FrameError::TooLarge(pairs));
    }
    for _ in 0..pairs {
        let name = text(&mut plain)?;
        let values = text(&mut plain)?;
        headers.extend(values.split('\0').map(|value| (name.clone(), value.to_owned())));
    }
    Ok(headers)
}

fn number(plain: &mut Bytes) -> Result<usize, FrameError> {
    let number = plain
        .try_get_u32()
        .map_err(|_| FrameError::Malformed("a header block is cut short"))?;
    usize::try_from(number).map_err(|_| FrameError::Malformed("a header block is cut short"))
}

fn text(plain: &mut Bytes) -> Result<String, FrameError> {
    let length = number(plain)?;
    if length > plain.len() {
        return Err(FrameError::Malformed("a header block is cut short"));
    }
    Ok(String::from_utf8_lossy(&plain.split_to(length)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn blocks_of_a_connection_share_one_zlib_stream() {
        let mut encoder = HeaderEncoder::new().unwrap();
        let mut decoder = HeaderDecoder::new();
        let first = pairs(&[("streamtype", "error")]);
        let block = encoder.encode(&first).unwrap();
        // zlib header with the preset-dictionary flag, then the dictionary's Adler-32.
        assert_eq!(block[1] & 0x20, 0x20);
        assert_eq!(&block[2..6], [0xe3, 0xc6, 0xa7, 0xc2]);
        assert_eq!(decoder.decode(&block).unwrap(), first);
        let second = pairs(&[("streamtype", "data"), ("port", "8080"), ("requestid", "0")]);
        let block = encoder.encode(&second).unwrap();
        assert_eq!(decoder.decode(&block).unwrap(), second);
    }

    #[test]
    fn names_are_lower_case_and_values_of_one_name_stay_apart() {
        let mut encoder = HeaderEncoder::new().unwrap();
        let block = encoder.encode(&pairs(&[("A", "1"), ("b", "2"), ("a", "3")])).unwrap();
        let decoded = HeaderDecoder::new().decode(&block).unwrap();
        assert_eq!(decoded, pairs(&[("a", "1"), ("a", "3"), ("b", "2")]));
    }

    #[test]
    fn a_block_larger_than_its_buffers_survives() {
        let long: String = (0..20_000_u32).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect();
        let headers = pairs(&[("x", &long)]);
        let block = HeaderEncoder::new().unwrap().encode(&headers).unwrap();
        assert_eq!(HeaderDecoder::new().decode(&block).unwrap(), headers);
    }

    #[test]
    fn a_small_block_must_not_become_a_large_one() {
        let block = HeaderEncoder::new()
            .unwrap()
            .encode(&pairs(&[("x", &"a".repeat(1 << 20))]))
            .unwrap();
        assert!(block.len() < 32 * 1024);
        assert!(matches!(
            HeaderDecoder::new().decode(&block),
            Err(FrameError::TooLarge(_))
        ));
    }

    #[test]
    fn rubbish_is_an_error() {
        for block in [&b""[..], b"\x78", b"\x78\xbb\x00\x00\x00\x00", b"rubbish"] {
            assert!(HeaderDecoder::new().decode(block).is_err(), "{block:?}");
        }
        for plain in [&b"\0\0\0\x01"[..], b"\0\0\0\x01\0\0\0\x05ab", b"\xff\xff\xff\xff"] {
            assert!(parse(Bytes::copy_from_slice(plain)).is_err(), "{plain:?}");
        }
    }
}
