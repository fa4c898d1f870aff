//! Durations for people: two units at most, the second only while it tells something.

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Up to (not including) so many seconds, a duration shows this unit, and this smaller one if any.
type Step = (i64, (i64, char), Option<(i64, char)>);

const STEPS: &[Step] = &[
    (2 * MINUTE, (1, 's'), None),
    (10 * MINUTE, (MINUTE, 'm'), Some((1, 's'))),
    (3 * HOUR, (MINUTE, 'm'), None),
    (8 * HOUR, (HOUR, 'h'), Some((MINUTE, 'm'))),
    (2 * DAY, (HOUR, 'h'), None),
    (8 * DAY, (DAY, 'd'), Some((HOUR, 'h'))),
    (2 * YEAR, (DAY, 'd'), None),
    (8 * YEAR, (YEAR, 'y'), Some((DAY, 'd'))),
    (i64::MAX, (YEAR, 'y'), None),
];

/// Seconds as `42s`, `5m10s`, `5d3h`, `2y30d`. A clock may be a second off; anything before that is not valid.
pub(crate) fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    for (limit, (unit, letter), smaller) in STEPS {
        if seconds >= *limit {
            continue;
        }
        let rest = smaller.map(|(small, small_letter)| (seconds % unit / small, small_letter));
        return match rest {
            Some((rest, small_letter)) if rest > 0 => format!("{}{letter}{rest}{small_letter}", seconds / unit),
            _ => format!("{}{letter}", seconds / unit),
        };
    }
    format!("{}y", seconds / YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_users_know_them() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (2 * DAY, "2d"),
            (5 * DAY + 3 * HOUR + 59, "5d3h"),
            (8 * DAY + HOUR, "8d"),
            (400 * DAY, "400d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 30 * DAY, "2y30d"),
            (9 * YEAR + 30 * DAY, "9y"),
            (i64::MAX, "292471208677y"),
        ] {
            assert_eq!(human_duration(seconds), text);
        }
    }
}
