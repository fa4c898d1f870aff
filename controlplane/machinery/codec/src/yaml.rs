//! YAML into the same tree as JSON.

use crate::json::{DecodeError, Decoded, Limits, build};

/// Decodes one YAML document; JSON is YAML too. A second document is an error.
///
/// Aliases are counted as often as they are used, so an alias bomb meets the limit on values. Duplicate keys are reported
/// as in [`crate::decode_json`]. Scalars are those of YAML 1.2: `yes` is text, `0o17` a number.
///
/// # Errors
/// On text that is not YAML or beyond the limits.
pub fn decode_yaml(bytes: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::TooLarge { limit: limits.bytes });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| DecodeError::NotUtf8 { at: e.valid_up_to() })?;
    // Most clients that say YAML send JSON, which its own parser reads many times faster.
    if text.trim_start().starts_with('{')
        && let Ok(decoded) = crate::json::decode_json(bytes, limits)
    {
        return Ok(decoded);
    }
    let mut documents = serde_yaml_ng::Deserializer::from_str(text);
    let Some(document) = documents.next() else {
        return Err(DecodeError::Syntax("the document is empty".to_owned()));
    };
    let (result, builder) = build(document, limits);
    let value = match result {
        Ok(value) => value,
        Err(_) if builder.too_complex => return Err(DecodeError::TooComplex),
        Err(error) => {
            let text = error.to_string();
            if text.contains("recursion limit") || text.contains("repetition limit") {
                return Err(DecodeError::TooComplex);
            }
            return Err(DecodeError::Syntax(format!(
                "error converting YAML to JSON: yaml: {text}"
            )));
        }
    };
    if documents.next().is_some() {
        return Err(DecodeError::Syntax("more than one YAML document".to_owned()));
    }
    Ok(Decoded {
        value,
        duplicates: builder.duplicates,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(text: &str) -> Result<Decoded, DecodeError> {
        decode_yaml(text.as_bytes(), &Limits::default())
    }

    #[test]
    fn yaml_and_json_give_one_tree() {
        let decoded = decode("a: 1\nb: [x, true, null, 1.5]\nc:\n  80: web\n  d: |\n    two\n    lines\n").unwrap();
        assert_eq!(
            decoded.value,
            json!({"a": 1, "b": ["x", true, null, 1.5], "c": {"80": "web", "d": "two\nlines\n"}})
        );
        assert_eq!(decode("{\"a\": [1]}").unwrap().value, json!({"a": [1]}));
        assert_eq!(
            decode("a: &x {b: 1}\nc: *x\n").unwrap().value,
            json!({"a": {"b": 1}, "c": {"b": 1}})
        );
    }

    #[test]
    fn duplicates_are_told() {
        assert_eq!(decode("s:\n  a: 1\n  a: 2\n").unwrap().duplicates, ["s.a"]);
    }

    #[test]
    fn bombs_and_bad_text_end_in_errors() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            let uses = format!("*a{},", i - 1).repeat(10);
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", uses.trim_end_matches(',')));
        }
        assert_eq!(decode(&bomb), Err(DecodeError::TooComplex));
        assert_eq!(
            decode(&"[".repeat(5_000)).map_err(|e| matches!(e, DecodeError::TooComplex)),
            Err(true)
        );
        for bad in ["a: [", "a: b: c", "--- 1\n--- 2\n", "\u{1}"] {
            assert!(matches!(decode(bad), Err(DecodeError::Syntax(_))), "{bad}");
        }
        assert!(matches!(decode("a: .nan"), Err(DecodeError::Syntax(_))));
    }
}
