//! Times and durations on the wire.
//!
//! `metav1.Time` is RFC 3339 in UTC with whole seconds, `metav1.MicroTime` with six decimals, `metav1.Duration` is Go's
//! text form such as `1h30m`. Sources: <https://www.rfc-editor.org/rfc/rfc3339>, <https://pkg.go.dev/time#ParseDuration>.

use jiff::Timestamp;
use jiff::tz::Offset;

/// Why text is not a time; worded as clients know it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")]
pub struct TimeError {
    text: String,
    layout: &'static str,
}

/// Why text is not a duration; worded as Go words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("time: {what} {text:?}")]
pub struct DurationError {
    what: String,
    text: String,
}

/// Parses RFC 3339, strictly: `T` and an offset are needed, decimals are allowed.
///
/// # Errors
/// When the text is not of that form, or names no existing instant.
pub fn parse_time(text: &str) -> Result<Timestamp, TimeError> {
    let error = || TimeError {
        text: text.to_owned(),
        layout: "2006-01-02T15:04:05Z07:00",
    };
    if !has_rfc3339_shape(text.as_bytes()) {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

/// `dddd-dd-ddTdd:dd:dd[.d+](Z|±dd:dd)`; jiff alone takes more than that.
fn has_rfc3339_shape(text: &[u8]) -> bool {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let matches = |part: &[u8], shape: &[u8]| {
        part.len() == shape.len()
            && part.iter().zip(shape).all(|(c, s)| match s {
                b'd' => c.is_ascii_digit(),
                s => c == s,
            })
    };
    let Some((head, mut rest)) = text.split_at_checked(SHAPE.len()) else {
        return false;
    };
    if let Some(decimals) = rest.strip_prefix(b".") {
        let count = decimals.iter().take_while(|c| c.is_ascii_digit()).count();
        if count == 0 {
            return false;
        }
        rest = &decimals[count..];
    }
    matches(head, SHAPE) && (rest == b"Z" || matches(rest, b"+dd:dd") || matches(rest, b"-dd:dd"))
}

/// `2006-01-02T15:04:05Z`: seconds, cut.
pub fn format_time(time: Timestamp) -> String {
    let t = Offset::UTC.to_datetime(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        t.year(),
        t.month(),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    )
}

/// `2006-01-02T15:04:05.000000Z`: microseconds, cut.
pub fn format_micro_time(time: Timestamp) -> String {
    let micros = Offset::UTC.to_datetime(time).subsec_nanosecond() / 1000;
    let mut text = format_time(time);
    text.pop();
    text.push_str(&format!(".{micros:06}Z"));
    text
}

/// Parses Go's durations: `300ms`, `-1.5h`, `2h45m`, `0`. The result is in nanoseconds.
///
/// # Errors
/// When the text is not of that form or the value exceeds 64 bits.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let error = |what: &str| DurationError {
        what: what.to_owned(),
        text: text.to_owned(),
    };
    let invalid = || error("invalid duration");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(|| error("missing unit in duration"))?;
        let (number, tail) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => return Err(error(&format!("unknown unit {other:?} in duration"))),
        };
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        // Digits beyond the eighteenth are far below a nanosecond of an hour.
        let fraction = &fraction[..fraction.len().min(18)];
        let part: i128 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().map_err(|_| invalid())?
        };
        let scale = 10i128.pow(u32::try_from(fraction.len()).unwrap_or(18));
        total = whole
            .checked_mul(nanos)
            .and_then(|w| w.checked_add(part * nanos / scale))
            .and_then(|w| w.checked_add(total))
            .ok_or_else(invalid)?;
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// Prints nanoseconds as Go does: `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    if total == 0 {
        return "0s".to_owned();
    }
    let decimal = |value: u64, scale: u64| {
        let (whole, fraction) = (value / scale, value % scale);
        if fraction == 0 {
            return whole.to_string();
        }
        let width = scale.ilog10() as usize;
        format!("{whole}.{}", format!("{fraction:0width$}").trim_end_matches('0'))
    };
    if total < 1_000 {
        return format!("{sign}{total}ns");
    }
    if total < 1_000_000 {
        return format!("{sign}{}µs", decimal(total, 1_000));
    }
    if total < 1_000_000_000 {
        return format!("{sign}{}ms", decimal(total, 1_000_000));
    }
    let (hours, rest) = (total / 3_600_000_000_000, total % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let seconds = decimal(rest, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_strict_and_printed_in_utc() {
        let time = parse_time("2024-02-29T23:30:00.123456789+02:00").unwrap();
        assert_eq!(format_time(time), "2024-02-29T21:30:00Z");
        assert_eq!(format_micro_time(time), "2024-02-29T21:30:00.123456Z");
        for bad in [
            "",
            "2024-02-30T00:00:00Z",
            "2024-02-29 00:00:00Z",
            "2024-02-29T00:00Z",
            "2024-02-29T00:00:00",
            "2024-02-29T00:00:00.Z",
            "2024-02-29T00:00:00Z[UTC]",
            "20240229T000000Z",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_as_go_reads_them() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
            ("300ms", 300_000_000, "300ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("2us", 2_000, "2µs"),
            ("7ns", 7, "7ns"),
            (".5m", 30_000_000_000, "30s"),
        ] {
            assert_eq!(parse_duration(text).unwrap(), nanos, "{text}");
            assert_eq!(format_duration(nanos), printed);
        }
        for (bad, message) in [
            ("", "time: invalid duration \"\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("9999999999h", "time: invalid duration \"9999999999h\""),
        ] {
            assert_eq!(parse_duration(bad).unwrap_err().to_string(), message);
        }
    }
}
