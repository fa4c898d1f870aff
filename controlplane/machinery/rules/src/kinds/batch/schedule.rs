//! Schedules in the notation of cron: what is wrong with one, and when it is due.
//!
//! Crates that read such schedules differ from what users of Kubernetes rely on: fields for seconds, Sunday as 7 or 1,
//! both days having to match, times that a change of the clocks skips or repeats. What validation accepts and what the
//! controller does must be one thing, so both are here.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax>.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SHORTHANDS: [(&str, &str); 7] = [
    ("yearly", "0 0 1 1 *"),
    ("annually", "0 0 1 1 *"),
    ("monthly", "0 0 1 * *"),
    ("weekly", "0 0 * * 0"),
    ("daily", "0 0 * * *"),
    ("midnight", "0 0 * * *"),
    ("hourly", "0 * * * *"),
];
/// What is not due within so many years never is.
const HORIZON: i16 = 5;

/// One of the five fields: its range, and the names of its values from the first on.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const fn field(least: u32, most: u32, names: &'static [&'static str]) -> Field {
    Field { least, most, names }
}

const FIELDS: [Field; 5] = [
    field(0, 59, &[]),
    field(0, 23, &[]),
    field(1, 31, &[]),
    field(1, 12, MONTHS),
    field(0, 6, DAYS),
];

/// Values of a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Values {
    bits: u64,
    /// Whether it is `*`: then the other of the two fields for days decides alone.
    any: bool,
}

impl Values {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits & 1_u64.checked_shl(value).unwrap_or(0) != 0)
    }

    fn each(self, most: i8) -> impl Iterator<Item = i8> {
        (0..=most).filter(move |value| self.has(*value))
    }
}

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Minutes, hours, days of the month, months, days of the week.
    Fields([Values; 5]),
    Every(Duration),
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with it, in words that users of Kubernetes know.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if let Some(shorthand) = text.strip_prefix('@') {
            return parse_shorthand(shorthand);
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(format!(
                "expected exactly 5 fields, found {}: [{}]",
                parts.len(),
                parts.join(" ")
            ));
        }
        let mut fields = [Values::default(); 5];
        for ((part, field), values) in parts.iter().zip(FIELDS).zip(&mut fields) {
            for range in part.split(',') {
                let range = parse_range(range, &field)?;
                values.bits |= range.bits;
                values.any |= range.any;
            }
        }
        Ok(Self(Kind::Fields(fields)))
    }

    /// The first time after `after` that it is due, on the clocks of `zone`. Times that the clocks skip are skipped, and
    /// those that they show twice are due twice. `None`: never, such as on 30 February.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.0 {
            Kind::Every(period) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(*period).ok()
            }
            Kind::Fields(fields) => next(fields, after, zone),
        }
    }
}

fn next(fields: &[Values; 5], after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let [minutes, hours, _, months, _] = fields;
    let mut day = zone.to_datetime(after).date();
    let end = day.year().checked_add(HORIZON)?;
    while day.year() <= end {
        if !months.has(day.month()) {
            day = day.first_of_month().checked_add(Span::new().months(1)).ok()?;
            continue;
        }
        if is_day(fields, day) {
            let hours = hours.each(23);
            let found = hours
                .into_iter()
                .find_map(|hour| within(*minutes, day, hour, after, zone));
            if found.is_some() {
                return found;
            }
        }
        day = day.tomorrow().ok()?;
    }
    None
}

/// If both fields for days are given, one of them is enough.
fn is_day([_, _, of_month, _, of_week]: &[Values; 5], day: Date) -> bool {
    let month = of_month.has(day.day());
    let week = of_week.has(day.weekday().to_sunday_zero_offset());
    if of_month.any || of_week.any {
        month && week
    } else {
        month || week
    }
}

/// The first of these minutes of an hour after `after`.
fn within(minutes: Values, day: Date, hour: i8, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let at = |minute: i8| -> DateTime { day.at(hour, minute, 0, 0) };
    // Most often the whole hour is over.
    if instants(at(59), zone)
        .into_iter()
        .flatten()
        .max()
        .is_some_and(|last| last <= after)
    {
        return None;
    }
    // An hour that is shown twice is over once before it begins again.
    (0..2).find_map(|showing: usize| {
        let mut times = minutes
            .each(59)
            .filter_map(|minute| *instants(at(minute), zone).get(showing)?);
        times.find(|time| *time > after)
    })
}

/// When clocks show this time: not at all, once or twice.
fn instants(time: DateTime, zone: &TimeZone) -> [Option<Timestamp>; 2] {
    match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => [offset.to_timestamp(time).ok(), None],
        AmbiguousOffset::Gap { .. } => [None, None],
        AmbiguousOffset::Fold { before, after } => [before.to_timestamp(time).ok(), after.to_timestamp(time).ok()],
    }
}

/// What is wrong with a schedule.
pub(super) fn wrong(schedule: &str) -> Option<String> {
    Schedule::parse(schedule).err()
}

fn parse_shorthand(shorthand: &str) -> Result<Schedule, String> {
    if let Some(duration) = shorthand.strip_prefix("every ") {
        let why = || format!("failed to parse duration @every {duration}: time: invalid duration {duration:?}");
        let period = parse_duration(duration).ok_or_else(why)?;
        let whole = Duration::from_secs(period.as_secs().max(1));
        return Ok(Schedule(Kind::Every(whole)));
    }
    let known = SHORTHANDS.iter().find(|(name, _)| *name == shorthand);
    let (_, fields) = known.ok_or_else(|| format!("unrecognized descriptor: @{shorthand}"))?;
    Schedule::parse(fields)
}

/// One or more numbers with units, as `1h30m`.
fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(number);
        let units = UNITS.iter().filter(|(unit, _)| tail.starts_with(unit));
        let (unit, size) = units.max_by_key(|(unit, _)| unit.len())?;
        seconds += digits.parse::<f64>().ok()? * size;
        rest = tail.strip_prefix(unit)?;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// `*`, `5`, `1-5`, each with a step as `*/2`.
fn parse_range(text: &str, field: &Field) -> Result<Values, String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let any = matches!(range, "*" | "?");
    let (first, last) = match range.split('-').collect::<Vec<_>>()[..] {
        ["*" | "?"] => (field.least, field.most),
        [one] => {
            let first = value(one, field)?;
            (first, if step.is_some() { field.most } else { first })
        }
        [first, last] => (value(first, field)?, value(last, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step.map_or(Ok(1), number)?;
    let (least, most) = (field.least, field.most);
    if first < least {
        return Err(format!("beginning of range ({first}) below minimum ({least}): {text}"));
    }
    if last > most {
        return Err(format!("end of range ({last}) above maximum ({most}): {text}"));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let stride = usize::try_from(step).unwrap_or(usize::MAX);
    let bits = (first..=last)
        .step_by(stride)
        .fold(0, |bits, value| bits | 1_u64 << value);
    Ok(Values {
        bits,
        any: any && step == 1,
    })
}

fn value(text: &str, field: &Field) -> Result<u32, String> {
    let named = field
        .names
        .iter()
        .zip(field.least..)
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |(_, value)| Ok(value))
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for fine in [
            "* * * * *",
            "*/5 0 1,15 * 1-5",
            "0 0 ? JAN,dec SUN",
            "5/15 * * * *",
            "@daily",
            "@every 1h30m",
        ] {
            assert_eq!(wrong(fine), None, "{fine}");
        }
        for (text, why) in [
            ("", "empty spec string"),
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@never", "unrecognized descriptor: @never"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(wrong(text).as_deref(), Some(why), "{text}");
        }
        assert!(wrong("@every soon").is_some() && wrong("@every 5").is_some());
    }

    fn due(schedule: &str, zone: &str, after: &str, times: usize) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let first = schedule.next(after.parse().unwrap(), &zone);
        let all = std::iter::successors(first, |time| schedule.next(*time, &zone));
        all.take(times).map(|time| time.to_string()).collect()
    }

    #[test]
    fn what_comes_next() {
        // 2026-12-01 is a Tuesday.
        for (schedule, after, next) in [
            ("* * * * *", "2026-12-01T12:00:00Z", "2026-12-01T12:01:00Z"),
            ("* * * * *", "2026-12-01T12:00:59.9Z", "2026-12-01T12:01:00Z"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"),
            ("*/15 * * * *", "2026-12-01T12:44:00Z", "2026-12-01T12:45:00Z"),
            ("*/15 * * * *", "2026-12-31T23:45:00Z", "2027-01-01T00:00:00Z"),
            ("20/20 8-9 * * *", "2026-12-01T09:40:00Z", "2026-12-02T08:20:00Z"),
            ("0 0 * * mon", "2026-12-01T00:00:00Z", "2026-12-07T00:00:00Z"),
            // Both days are given: one is enough.
            ("0 0 3 * mon", "2026-12-01T00:00:00Z", "2026-12-03T00:00:00Z"),
            ("0 0 13 * sun", "2026-12-01T00:00:00Z", "2026-12-06T00:00:00Z"),
            // A step makes it a choice of days, where a star would be none.
            ("0 0 */30 * sun", "2026-12-01T00:00:00Z", "2026-12-06T00:00:00Z"),
            ("0 0 ? * sun", "2026-12-01T00:00:00Z", "2026-12-06T00:00:00Z"),
            ("0 0 29 feb *", "2026-12-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 12 31 * *", "2026-12-31T12:00:00Z", "2027-01-31T12:00:00Z"),
            ("@hourly", "2026-12-01T12:00:00Z", "2026-12-01T13:00:00Z"),
            ("@weekly", "2026-12-01T12:00:00Z", "2026-12-06T00:00:00Z"),
            ("@monthly", "2026-12-01T12:00:00Z", "2027-01-01T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-12-01T12:00:00.5Z", "2026-12-01T13:30:00Z"),
            ("@every 10ms", "2026-12-01T12:00:00Z", "2026-12-01T12:00:01Z"),
        ] {
            assert_eq!(due(schedule, "UTC", after, 1), [next], "{schedule} after {after}");
        }
        assert!(due("0 0 30 2 *", "UTC", "2026-12-01T12:00:00Z", 1).is_empty());
    }

    #[test]
    fn clocks_of_a_zone_count() {
        // New York: UTC-5 in December.
        let morning = due("30 8 * * *", "America/New_York", "2026-12-01T13:30:00Z", 1);
        assert_eq!(morning, ["2026-12-02T13:30:00Z"]);
        // On 8 March 2026 clocks go from 2:00 to 3:00, so that there is no 2:30.
        let skipped = due("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 1);
        assert_eq!(skipped, ["2026-03-09T06:30:00Z"]);
        // On 1 November 2026 they show 1:00 to 2:00 twice.
        let twice = due("*/30 1 * * *", "America/New_York", "2026-11-01T05:00:00Z", 4);
        assert_eq!(
            twice,
            [
                "2026-11-01T05:30:00Z",
                "2026-11-01T06:00:00Z",
                "2026-11-01T06:30:00Z",
                "2026-11-02T06:00:00Z"
            ]
        );
    }
}
