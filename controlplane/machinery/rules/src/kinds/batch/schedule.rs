//! Schedules in the notation of cron.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax>.

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SHORTHANDS: [&str; 7] = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];

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

/// What is wrong with a schedule.
pub(super) fn wrong(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    if let Some(shorthand) = schedule.strip_prefix('@') {
        return wrong_shorthand(shorthand);
    }
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        ));
    }
    let mut fields = parts.iter().zip(FIELDS);
    fields.find_map(|(text, field)| text.split(',').find_map(|range| wrong_range(range, &field)))
}

fn wrong_shorthand(shorthand: &str) -> Option<String> {
    if let Some(duration) = shorthand.strip_prefix("every ") {
        let fine = is_duration(duration);
        return (!fine)
            .then(|| format!("failed to parse duration @every {duration}: time: invalid duration {duration:?}"));
    }
    (!SHORTHANDS.contains(&shorthand)).then(|| format!("unrecognized descriptor: @{shorthand}"))
}

/// Whether a text is one or more numbers with units, as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(number);
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .iter()
            .filter(|u| tail.starts_with(**u));
        let Some(unit) = unit.max_by_key(|u| u.len()) else {
            return false;
        };
        if digits.parse::<f64>().is_err() {
            return false;
        }
        rest = tail.strip_prefix(*unit).unwrap_or_default();
    }
    !text.is_empty()
}

/// `*`, `5`, `1-5`, each with a step as `*/2`.
fn wrong_range(text: &str, field: &Field) -> Option<String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        _ => return Some(format!("too many slashes: {text}")),
    };
    let bounds = match range.split('-').collect::<Vec<_>>()[..] {
        ["*" | "?"] => Ok((field.least, field.most)),
        [one] => value(one, field).map(|v| (v, if step.is_some() { field.most } else { v })),
        [first, last] => value(first, field).and_then(|f| value(last, field).map(|l| (f, l))),
        _ => return Some(format!("too many hyphens: {text}")),
    };
    let (first, last) = match bounds {
        Ok(bounds) => bounds,
        Err(why) => return Some(why),
    };
    let step = match step.map_or(Ok(1), number) {
        Ok(step) => step,
        Err(why) => return Some(why),
    };
    let (least, most) = (field.least, field.most);
    let why = if first < least {
        format!("beginning of range ({first}) below minimum ({least}): {text}")
    } else if last > most {
        format!("end of range ({last}) above maximum ({most}): {text}")
    } else if first > last {
        format!("beginning of range ({first}) beyond end of range ({last}): {text}")
    } else if step == 0 {
        format!("step of range should be a positive number: {text}")
    } else {
        return None;
    };
    Some(why)
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
}
