//! A request on its way through the filters.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Extensions, HeaderMap, Method, Uri};
use http_body_util::BodyExt;
use minato_auth::UserInfo;
use minato_meta::{ApiError, ErrorKind};
use parking_lot::Mutex;

use crate::request_info::{RequestInfo, is_true, percent_decode};
use crate::response::Body;

/// Decoded query parameters, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`.
    pub fn parse(query: &str) -> Self {
        Self(
            query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    let decode = |s: &str| percent_decode(s.replace('+', " "));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }
    /// First value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
    /// First non-empty value of a parameter.
    pub fn get_non_empty(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|v| !v.is_empty())
    }
    /// All values of a parameter.
    pub fn get_all<'q>(&'q self, key: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
    /// Whether a parameter is there and not spelled false.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(is_true)
    }
    /// All pairs.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

/// Texts for `Warning` headers, collected anywhere during a request.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

/// Upstream's bound on all warning texts of a response together.
const WARNINGS_TOTAL_CHARS: usize = 4 * 1024;

impl Warnings {
    /// Adds a text unless it is there already.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut all = self.0.lock();
        let used: usize = all.iter().map(String::len).sum();
        if !all.contains(&text) && used + text.len() <= WARNINGS_TOTAL_CHARS {
            all.push(text);
        }
    }
    /// Adds several.
    pub fn extend(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.add(text);
        }
    }
    /// What was collected so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A request and what the filters found out about it.
pub struct ApiRequest {
    /// HTTP method.
    pub method: Method,
    /// Request target.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Connection facts, and the upgrade handle of a network connection.
    pub extensions: Extensions,
    /// What is asked for.
    pub info: RequestInfo,
    /// Query parameters.
    pub query: Query,
    /// Who asks; empty until authentication has run.
    pub user: UserInfo,
    /// Id that ties logs, audit and response together.
    pub audit_id: String,
    /// Texts for the client.
    pub warnings: Warnings,
    /// Largest body in bytes.
    pub max_body_bytes: usize,
    /// Behind a lock only because bodies are not `Sync` and requests are looked at across awaits.
    body: Mutex<Option<Body>>,
}

impl ApiRequest {
    /// Wraps an HTTP request.
    pub fn new(request: http::Request<Body>, max_body_bytes: usize) -> Self {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        Self {
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            extensions: parts.extensions,
            info,
            query,
            user: UserInfo::default(),
            audit_id: String::new(),
            warnings: Warnings::default(),
            max_body_bytes,
            body: Mutex::new(Some(body)),
        }
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The body, for streaming; empty when already taken.
    pub fn take_body(&mut self) -> Body {
        self.body.get_mut().take().unwrap_or_else(crate::response::empty_body)
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// 413 when it is larger than the server takes, 400 when the connection breaks.
    pub async fn read_body(&mut self) -> Result<Bytes, ApiError> {
        let limit = self.max_body_bytes;
        let mut body = self.take_body();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| ApiError::bad_request(format!("cannot read the request body: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > limit {
                return Err(ApiError::new(
                    ErrorKind::RequestEntityTooLarge,
                    format!("Request entity is too large: limit is {limit}"),
                ));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    /// The field manager that a write without `fieldManager` is booked to: the user agent up to its first slash.
    pub fn field_manager(&self) -> String {
        if let Some(manager) = self.query.get_non_empty("fieldManager") {
            return manager.to_owned();
        }
        let agent = self.header("user-agent").unwrap_or_default();
        let prefix = agent.split('/').next().unwrap_or_default();
        let manager: String = prefix.chars().filter(|c| !c.is_control()).take(128).collect();
        if manager.is_empty() {
            "unknown".to_owned()
        } else {
            manager
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=app%20in+%28a%2Cb%29&watch&limit=5&x=");
        assert_eq!(query.get("labelSelector"), Some("app in (a,b)"));
        assert!(query.is_true("watch"));
        assert_eq!(query.get_non_empty("x"), None);
        assert_eq!(query.get("absent"), None);
    }

    #[test]
    fn warnings_are_kept_once_and_bounded() {
        let warnings = Warnings::default();
        warnings.add("a");
        warnings.add("a");
        warnings.add("b".repeat(5000));
        assert_eq!(warnings.take(), ["a"]);
    }
}
