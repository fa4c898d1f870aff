//! The wire form of protobuf. Source: <https://protobuf.dev/programming-guides/encoding/>.

use super::ProtobufError;

/// A value as the wire has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// Of no use to any of our types, but skipped where unknown.
    Fixed32,
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_tag(out: &mut Vec<u8>, number: u16, wire_type: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

pub(super) fn put_int(out: &mut Vec<u8>, number: u16, value: i64) {
    put_tag(out, number, 0);
    // Negative numbers take the full ten bytes, 32-bit ones too.
    put_varint(out, value.cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    put_tag(out, number, 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_double(out: &mut Vec<u8>, number: u16, value: f64) {
    put_tag(out, number, 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Malformed("a text is not UTF-8"))
}

/// The fields of a message, in the order of the wire.
pub(super) fn fields(bytes: &[u8]) -> Fields<'_> {
    Fields { rest: bytes }
}

pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

const CUT: ProtobufError = ProtobufError::Malformed("it ends within a value");

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        take_varint(&mut self.rest)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(CUT)?;
        self.rest = rest;
        Ok(head)
    }

    fn field(&mut self) -> Result<(u16, Wire<'a>), ProtobufError> {
        let tag = self.varint()?;
        let number = u16::try_from(tag >> 3).map_err(|_| ProtobufError::Malformed("a field number is too large"))?;
        if number == 0 {
            return Err(ProtobufError::Malformed("a field number is zero"));
        }
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let mut bits = [0; 8];
                bits.copy_from_slice(self.take(8)?);
                Wire::Fixed64(u64::from_le_bytes(bits))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| CUT)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(ProtobufError::Malformed("a wire type is not known")),
        };
        Ok((number, value))
    }
}

pub(super) fn take_varint(rest: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(CUT)?;
        *rest = tail;
        if shift == 63 && *byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Malformed("a number is too long"))
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u16, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = b"";
        }
        Some(field)
    }
}
