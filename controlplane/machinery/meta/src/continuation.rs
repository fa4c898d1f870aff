//! Continue tokens of chunked lists.
//!
//! Opaque to clients; the form is upstream's, URL-safe base64 of `{"v":"meta.k8s.io/v1","rv":REVISION,"start":KEY}`.
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks>.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::Revision;

const VERSION: &str = "meta.k8s.io/v1";
/// Keys are names and namespaces; longer tokens are not ours.
const MAX_LENGTH: usize = 4096;

/// Where a chunked list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// Revision of the whole list; `None` when the list goes on at the newest one, because the old one is compacted.
    pub revision: Option<Revision>,
    /// First key of the next chunk, relative to the resource, such as `namespace/name`.
    pub start: String,
}

/// Why a token is not ours. 400 for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContinueError {
    /// Not base64 of the right JSON.
    #[error("continue key is not valid: illegal encoding")]
    Encoding,
    /// Of another version.
    #[error("continue key is not valid: server does not recognize this encoded version")]
    Version,
    /// Without a revision.
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    Revision,
    /// Without a key, or with one that leaves the resource.
    #[error("continue key is not valid: encoded start key empty or out of the resource (version meta.k8s.io/v1)")]
    Start,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    /// The text form.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: VERSION.to_owned(),
            rv: self.revision.map_or(-1, |r| i64::try_from(r.0).unwrap_or(i64::MAX)),
            start: self.start.clone(),
        };
        // A struct of an integer and two strings always serialises; an empty token would merely end the list.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Reads the text form; what it says is the client's word and safe to use as a key below the resource's own prefix.
    ///
    /// # Errors
    /// When the text is no token of this version.
    pub fn decode(text: &str) -> Result<Self, ContinueError> {
        if text.len() > MAX_LENGTH {
            return Err(ContinueError::Encoding);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| ContinueError::Encoding)?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|_| ContinueError::Encoding)?;
        if wire.v != VERSION {
            return Err(ContinueError::Version);
        }
        let revision = match wire.rv {
            -1 => None,
            rv if rv > 0 => Some(Revision(rv.unsigned_abs())),
            _ => return Err(ContinueError::Revision),
        };
        let climbs = wire.start.split('/').any(|segment| segment == ".." || segment == ".");
        if wire.start.is_empty() || wire.start.starts_with('/') || climbs {
            return Err(ContinueError::Start);
        }
        Ok(Self {
            revision,
            start: wire.start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for revision in [None, Some(Revision(1)), Some(Revision(u64::from(u32::MAX) + 7))] {
            let token = ContinueToken {
                revision,
                start: "default/web\0".to_owned(),
            };
            let text = token.encode();
            assert!(
                text.bytes()
                    .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
            );
            assert_eq!(ContinueToken::decode(&text).unwrap(), token);
        }
    }

    #[test]
    fn hostile_tokens_are_refused() {
        let token = |json: &str| ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap_err();
        assert_eq!(ContinueToken::decode("%%%"), Err(ContinueError::Encoding));
        assert_eq!(
            ContinueToken::decode(&"A".repeat(100_000)),
            Err(ContinueError::Encoding)
        );
        assert_eq!(token("{}"), ContinueError::Encoding);
        assert_eq!(token(r#"{"v":"x","rv":1,"start":"a"}"#), ContinueError::Version);
        assert_eq!(
            token(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            ContinueError::Revision
        );
        for start in ["", "/a", "../secrets/a", "a/../../b", "a/./b"] {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
            assert_eq!(token(&json), ContinueError::Start, "{start}");
        }
    }
}
