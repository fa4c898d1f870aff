//! As much of DER as certificates need. Source: ITU-T X.690, RFC 5280.

use jiff::Timestamp;
use jiff::tz::Offset;

/// One element.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let skip = bytes.iter().take_while(|b| **b == 0).count();
        out.push(0x80 | (bytes.len() - skip) as u8);
        out.extend_from_slice(&bytes[skip..]);
    }
    out.extend_from_slice(content);
    out
}

pub(crate) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &parts.concat())
}

pub(crate) fn set(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x31, &parts.concat())
}

/// Context-specific, constructed.
pub(crate) fn explicit(number: u8, content: &[u8]) -> Vec<u8> {
    element(0xa0 | number, content)
}

/// Context-specific, primitive.
pub(crate) fn implicit(number: u8, content: &[u8]) -> Vec<u8> {
    element(0x80 | number, content)
}

pub(crate) fn boolean(value: bool) -> Vec<u8> {
    element(0x01, &[if value { 0xff } else { 0 }])
}

/// A non-negative integer of big-endian bytes.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let significant = bytes.iter().position(|b| *b != 0).map_or(&[][..], |at| &bytes[at..]);
    match significant.first() {
        None => element(0x02, &[0]),
        Some(first) if first & 0x80 != 0 => element(0x02, &[&[0], significant].concat()),
        Some(_) => element(0x02, significant),
    }
}

pub(crate) fn octets(content: &[u8]) -> Vec<u8> {
    element(0x04, content)
}

/// A bit string of whole bytes.
pub(crate) fn bits(content: &[u8]) -> Vec<u8> {
    element(0x03, &[&[0], content].concat())
}

/// A bit string of named bits, bit 0 first, trailing zeros left off.
pub(crate) fn named_bits(numbers: &[u8]) -> Vec<u8> {
    let Some(last) = numbers.iter().max() else {
        return element(0x03, &[0]);
    };
    let mut bytes = vec![0_u8; usize::from(last / 8) + 1];
    for number in numbers {
        bytes[usize::from(number / 8)] |= 0x80 >> (number % 8);
    }
    element(0x03, &[&[7 - last % 8], bytes.as_slice()].concat())
}

pub(crate) fn utf8(text: &str) -> Vec<u8> {
    element(0x0c, text.as_bytes())
}

/// An object identifier; the first two arcs share a number.
pub(crate) fn oid(arcs: &[u64]) -> Vec<u8> {
    let mut content = Vec::new();
    let head = match arcs {
        [first, second, ..] => first * 40 + second,
        _ => 0,
    };
    for arc in std::iter::once(head).chain(arcs.iter().skip(2).copied()) {
        let mut groups = [0_u8; 10];
        let mut at = groups.len();
        let mut rest = arc;
        loop {
            at -= 1;
            groups[at] = (rest & 0x7f) as u8 | if at == groups.len() - 1 { 0 } else { 0x80 };
            rest >>= 7;
            if rest == 0 {
                break;
            }
        }
        content.extend_from_slice(&groups[at..]);
    }
    element(0x06, &content)
}

/// `UTCTime` up to 2049, `GeneralizedTime` after, as RFC 5280 wants it.
pub(crate) fn time(at: Timestamp) -> Vec<u8> {
    let t = Offset::UTC.to_datetime(at);
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    );
    if t.year() < 2050 {
        element(0x17, format!("{:02}{rest}", t.year() % 100).as_bytes())
    } else {
        element(0x18, format!("{:04}{rest}", t.year()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_as_the_standards_print_them() {
        assert_eq!(
            oid(&[1, 2, 840, 10045, 4, 3, 2]),
            [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]
        );
        assert_eq!(oid(&[2, 5, 29, 15]), [6, 3, 0x55, 0x1d, 0x0f]);
        assert_eq!(integer(&[0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
        assert_eq!(integer(&[0x7f]), [2, 1, 0x7f]);
        // digitalSignature and keyEncipherment: 101, five bits unused.
        assert_eq!(named_bits(&[0, 2]), [3, 2, 5, 0xa0]);
        assert_eq!(named_bits(&[8]), [3, 3, 7, 0, 0x80]);
        assert_eq!(element(4, &[7; 200])[..3], [4, 0x81, 200]);
        assert_eq!(element(4, &[7; 300])[..4], [4, 0x82, 1, 44]);
        let t = |text: &str| time(text.parse().unwrap());
        assert_eq!(t("2049-12-31T23:59:59Z"), element(0x17, b"491231235959Z"));
        assert_eq!(t("2050-01-01T00:00:00Z"), element(0x18, b"20500101000000Z"));
    }
}
