//! One line of a log. Pure.

use jiff::Timestamp;

/// A line as the runtime wrote it, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// As written.
    pub(super) time: &'a str,
    pub(super) stream: &'a str,
    /// The end of the container's own line was not reached.
    pub(super) partial: bool,
    /// Bytes of the container, without an end of line.
    pub(super) text: &'a [u8],
}

/// Takes a line apart; `None` for what is none.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = std::str::from_utf8(parts.next()?).ok()?;
    let tags = std::str::from_utf8(parts.next()?).ok()?;
    let text = parts.next().unwrap_or_default();
    if !matches!(stream, "stdout" | "stderr") {
        return None;
    }
    Some(Line {
        time,
        stream,
        partial: tags.split(':').next() == Some("P"),
        text,
    })
}

impl Line<'_> {
    /// Whether it was written at or after `since`.
    pub(super) fn is_since(&self, since: Timestamp) -> bool {
        self.time.parse::<Timestamp>().is_ok_and(|time| time >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = parse(b"2016-10-06T00:17:09.669794202Z stdout F a  log line ").unwrap();
        assert_eq!(
            (line.stream, line.partial, line.text),
            ("stdout", false, &b"a  log line "[..])
        );
        assert!(line.is_since("2016-10-06T00:17:09Z".parse().unwrap()));
        assert!(!line.is_since("2016-10-06T00:17:10Z".parse().unwrap()));
        assert!(parse(b"2016-10-06T00:17:09Z stderr P x").unwrap().partial);
        assert_eq!(parse(b"2016-10-06T00:17:09Z stdout F").unwrap().text, b"");
        assert_eq!(parse(b"garbage"), None);
        assert_eq!(parse(b"t other F x"), None);
    }
}
