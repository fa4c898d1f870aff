//! Faults that can be found without asking anybody.

use std::time::Duration;

use ipnet::Ipv4Net;
use minato_meta::names;
use minato_terraform_protocol::{Attribute, Diagnostic, Diagnostics, Object, Path, Step, Type, Value};

/// A text attribute, if it is set and known, must pass.
pub(crate) fn text(
    config: &Object,
    name: &str,
    diagnostics: &mut Diagnostics,
    check: impl FnOnce(&str) -> Vec<String>,
) {
    if let Some(value) = config.str(name) {
        for why in check(value) {
            diagnostics.refuse(Path::attribute(name), "Invalid value", format!("{value:?}: {why}."));
        }
    }
}

/// The name of a resource, and of its namespace.
pub(crate) fn name_and_namespace(config: &Object, diagnostics: &mut Diagnostics) {
    text(config, "name", diagnostics, names::dns1123_label);
    text(config, "namespace", diagnostics, names::dns1123_label);
}

/// The keys and values of labels.
pub(crate) fn labels(config: &Object, diagnostics: &mut Diagnostics) {
    for (key, value) in config.get("labels").as_map().into_iter().flatten() {
        let path = Path::attribute("labels").then(Step::Key(key.clone()));
        let mut refuse = |why: String| diagnostics.refuse(path.clone(), "Invalid label", format!("{key:?}: {why}."));
        names::qualified_name(key).into_iter().for_each(&mut refuse);
        if value.is_null() {
            refuse("a label needs a value, which may be empty".to_owned());
        }
        let value = value.as_str().unwrap_or_default();
        names::label_value(value).into_iter().for_each(&mut refuse);
    }
}

/// An IPv4 range.
pub(crate) fn range(value: &str) -> Vec<String> {
    match value.parse::<Ipv4Net>() {
        Ok(range) if range.trunc() == range => Vec::new(),
        Ok(range) => vec![format!("must be the first address of its range, {}", range.trunc())],
        Err(_) => vec!["must be an IPv4 range such as 10.244.0.0/16".to_owned()],
    }
}

/// Name and namespace in an id: `namespace/name`, or the name alone.
pub(crate) fn parse_id<'a>(id: &'a str, namespace: &'a str) -> Result<(&'a str, &'a str), Diagnostic> {
    let (namespace, name) = id.split_once('/').unwrap_or((namespace, id));
    let wrong = [namespace, name].into_iter().flat_map(names::dns1123_label).next();
    match wrong {
        None => Ok((namespace, name)),
        Some(why) => Err(Diagnostic::error(
            "Invalid id",
            format!("{id:?} is neither a name nor namespace/name: {why}."),
        )),
    }
}

/// The attribute by which a resource's patience is set.
pub(crate) fn timeouts() -> Attribute {
    let attributes = vec![
        Attribute::optional("create", Type::String, "Until it is ready, such as 90s, 15m or 1h."),
        Attribute::optional("update", Type::String, "Until a change has come true."),
        Attribute::optional("delete", Type::String, "Until it is gone."),
    ];
    Attribute::single("timeouts", attributes, "How long to wait.")
}

/// The timeouts that are set must be durations.
pub(crate) fn check_timeouts(config: &Object, diagnostics: &mut Diagnostics) {
    for (name, value) in config.get("timeouts").as_map().into_iter().flatten() {
        if let Some(text) = value.as_str()
            && duration(text).is_none()
        {
            let path = Path::attribute("timeouts").then(Step::Attribute(name.clone()));
            let text = format!("{text:?} is not a duration such as 90s, 15m, 1h or 1h30m.");
            diagnostics.refuse(path, "Invalid duration", text);
        }
    }
}

/// One of the timeouts.
pub(crate) fn timeout(planned: &Object, name: &str, default: Duration) -> Duration {
    let set = planned.get("timeouts").as_map().and_then(|timeouts| timeouts.get(name));
    set.and_then(Value::as_str).and_then(duration).unwrap_or(default)
}

/// Whole hours, minutes and seconds, such as `1h30m`.
fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut number = None;
    for character in text.chars() {
        if let Some(digit) = character.to_digit(10) {
            let before: u64 = number.unwrap_or(0);
            number = Some(before.checked_mul(10)?.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match character {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    // A year: later points in time may be out of the clock's range.
    let sensible = number.is_none() && (1..=365 * 24 * 3600).contains(&seconds);
    sensible.then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        for bad in [
            "",
            "5",
            "m",
            "5x",
            "-1m",
            "0s",
            "1.5h",
            "99999999999999999999s",
            "9999999h",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_may_leave_out_the_namespace() {
        assert_eq!(parse_id("a", "default"), Ok(("default", "a")));
        assert_eq!(parse_id("ns/a", "default"), Ok(("ns", "a")));
        for bad in ["", "/", "a/", "/a", "a/b/c", "A"] {
            assert!(parse_id(bad, "default").is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_begin_where_they_begin() {
        assert!(range("10.244.0.0/16").is_empty());
        for bad in ["10.244.0.1/16", "10.244.0.0", "fd00::/64", ""] {
            assert_eq!(range(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn faults_are_told_with_their_place() {
        let labels = Value::from(Object::from([
            ("a b", "x".into()),
            ("c", Value::Unknown),
            ("d", Value::Null),
        ]));
        let timeouts = Value::from(Object::from([("create", "soon".into()), ("delete", Value::Null)]));
        let config = Object::from([("name", "A".into()), ("labels", labels), ("timeouts", timeouts)]);
        let mut diagnostics = Diagnostics::default();
        name_and_namespace(&config, &mut diagnostics);
        super::labels(&config, &mut diagnostics);
        check_timeouts(&config, &mut diagnostics);
        let paths: Vec<String> = diagnostics.0.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(paths, ["name", "labels[\"a b\"]", "labels[\"d\"]", "timeouts.create"]);
    }
}
