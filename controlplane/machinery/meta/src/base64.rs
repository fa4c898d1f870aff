//! Checks base64 text without decoding it.

/// Offset at which standard, padded base64 goes wrong; Go skips line breaks.
pub fn first_bad_base64(text: &[u8]) -> Option<usize> {
    let mut count = 0usize;
    let mut padding = 0usize;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\r' | b'\n' => continue,
            b'=' if count % 4 >= 2 && padding < 2 => padding += 1,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {}
            _ => return Some(at),
        }
        count += 1;
    }
    (!count.is_multiple_of(4)).then_some(text.len())
}

/// Whether text is standard, padded base64.
pub fn is_base64(text: &str) -> bool {
    first_bad_base64(text.as_bytes()).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_standard_and_padded() {
        for good in ["", "YQ==", "YWI=", "YWJj", "YWJj\nYQ=="] {
            assert_eq!(first_bad_base64(good.as_bytes()), None, "{good}");
        }
        for (bad, at) in [("YQ", 2), ("YQ=", 3), ("Y===", 1), ("YQ==YQ==", 4), ("a-bc", 1)] {
            assert_eq!(first_bad_base64(bad.as_bytes()), Some(at), "{bad}");
        }
    }
}
