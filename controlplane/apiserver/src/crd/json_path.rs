//! The JSONPath of printer columns: `.spec.size`, `.status.conditions[?(@.type=="Ready")].status`, `.a['b.c'][0]`.
//!
//! Source: <https://kubernetes.io/docs/reference/kubectl/jsonpath/>; without functions, unions and recursion by `..` inside
//! of filters.

use std::cmp::Ordering;

use serde_json::Value;

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Name(String),
    /// Counted from the end when negative.
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// Everything below, however deep.
    Below,
    Filter(Box<Filter>),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: JsonPath,
    /// What is compared with; `None` asks only whether there is something.
    test: Option<(&'static str, Value)>,
}

const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

impl JsonPath {
    /// Reads a path; `None` for one that makes no sense.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = step(rest, &mut steps)?;
        }
        Some(Self(steps))
    }

    /// What the path leads to, in order.
    pub(super) fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.of(value)).collect();
        }
        found
    }

    /// The first of them.
    pub(super) fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value).into_iter().next()
    }
}

/// Reads one step, and returns what is left.
fn step<'t>(text: &'t str, steps: &mut Vec<Step>) -> Option<&'t str> {
    if let Some(rest) = text.strip_prefix("..") {
        steps.push(Step::Below);
        return if rest.starts_with('[') {
            Some(rest)
        } else {
            name(rest, steps)
        };
    }
    if let Some(rest) = text.strip_prefix('.') {
        return if rest.is_empty() || rest.starts_with('[') {
            Some(rest)
        } else {
            name(rest, steps)
        };
    }
    let (inside, rest) = bracket(text.strip_prefix('[')?)?;
    let inside = inside.trim();
    let unquoted = ['\'', '"']
        .iter()
        .find_map(|quote| inside.strip_prefix(*quote)?.strip_suffix(*quote));
    let step = if let Some(name) = unquoted {
        Step::Name(name.replace("\\", ""))
    } else if inside == "*" {
        Step::All
    } else if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        Step::Filter(Box::new(filter_of(filter)?))
    } else if let Some((from, to)) = inside.split_once(':') {
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Step::Slice(bound(from)?, bound(to)?)
    } else {
        Step::Index(inside.parse().ok()?)
    };
    steps.push(step);
    Some(rest)
}

/// Reads a name up to the next dot or bracket; a backslash takes the next letter as it is.
fn name<'t>(text: &'t str, steps: &mut Vec<Step>) -> Option<&'t str> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            letter => name.push(letter),
        }
    }
    match name.as_str() {
        "" => return None,
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Name(name)),
    }
    Some(&text[end..])
}

/// What is inside of brackets, and what follows; brackets inside of quotes and of other brackets do not count.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth > 0 => depth -= 1,
            (None, ']') => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn filter_of(text: &str) -> Option<Filter> {
    let text = text.trim().strip_prefix('@')?;
    // The operator outside of quotes that comes first; of two at one place the longer.
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => continue,
            (None, '\'' | '"') => quote = Some(letter),
            _ => {}
        }
        if quote.is_some() {
            continue;
        }
        if let Some(operator) = OPERATORS.into_iter().find(|operator| text[at..].starts_with(operator)) {
            let path = JsonPath::parse(text[..at].trim())?;
            let value = literal(text[at + operator.len()..].trim())?;
            return Some(Filter {
                path,
                test: Some((operator, value)),
            });
        }
    }
    Some(Filter {
        path: JsonPath::parse(text.trim())?,
        test: None,
    })
}

fn literal(text: &str) -> Option<Value> {
    let unquoted = ['\'', '"']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    match unquoted {
        Some(text) => Some(Value::from(text)),
        None => serde_json::from_str(text).ok(),
    }
}

impl Filter {
    fn holds(&self, value: &Value) -> bool {
        let Some(found) = self.path.first(value) else {
            return false;
        };
        let Some((operator, wanted)) = &self.test else {
            return true;
        };
        let order = match (found, wanted) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (a, b) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
        };
        match (*operator, order) {
            ("==", order) => order == Some(Ordering::Equal),
            ("!=", order) => order != Some(Ordering::Equal),
            ("<", Some(order)) => order.is_lt(),
            (">", Some(order)) => order.is_gt(),
            ("<=", Some(order)) => order.is_le(),
            (">=", Some(order)) => order.is_ge(),
            _ => false,
        }
    }
}

impl Step {
    fn of<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let items = || value.as_array().map_or(&[][..], Vec::as_slice);
        let place = |at: i64| {
            let length = i64::try_from(items().len()).unwrap_or(i64::MAX);
            let at = if at < 0 { at + length } else { at };
            usize::try_from(at.clamp(0, length)).unwrap_or(0)
        };
        match self {
            Self::Name(name) => value.get(name).into_iter().collect(),
            Self::Index(at) => {
                let is_there = -i64::try_from(items().len()).unwrap_or(i64::MAX) <= *at;
                items().get(place(*at)).filter(|_| is_there).into_iter().collect()
            }
            Self::Slice(from, to) => {
                let (from, to) = (place(from.unwrap_or(0)), to.map_or(items().len(), place));
                items().get(from..to.max(from)).unwrap_or_default().iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Below => {
                let mut all = vec![value];
                let mut at = 0;
                while let Some(value) = all.get(at).copied() {
                    all.extend(Self::All.of(value));
                    at += 1;
                }
                all
            }
            Self::Filter(filter) => items().iter().filter(|item| filter.holds(item)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "metadata": {"labels": {"example.com/a": "x"}},
            "spec": {"sizes": [1, 2, 3], "name": "n"},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True", "n": 4}]},
        });
        let found = |path: &str| {
            let path = JsonPath::parse(path).unwrap();
            json!(path.find(&object))
        };
        assert_eq!(found(".spec.name"), json!(["n"]));
        assert_eq!(found(".metadata.labels.example\\.com/a"), json!(["x"]));
        assert_eq!(found(".metadata.labels['example.com/a']"), json!(["x"]));
        assert_eq!(
            found(".status.conditions[?(@.type==\"Ready\")].status"),
            json!(["True"])
        );
        assert_eq!(found(".status.conditions[?(@.type!='Ready')].status"), json!(["False"]));
        assert_eq!(found(".status.conditions[?(@.n>=4)].type"), json!(["Ready"]));
        assert_eq!(found(".status.conditions[?(@.n)].type"), json!(["Ready"]));
        assert_eq!(found(".spec.sizes[*]"), json!([1, 2, 3]));
        assert_eq!(
            (found(".spec.sizes[-1]"), found(".spec.sizes[0:2]")),
            (json!([3]), json!([1, 2]))
        );
        assert_eq!(
            (found(".spec.sizes[7]"), found(".spec.sizes[-7]")),
            (json!([]), json!([]))
        );
        assert_eq!(found("..type"), json!(["A", "Ready"]));
        assert_eq!(found(".spec.none.deeper"), json!([]));
        assert_eq!(found("."), json!([object]));
    }

    #[test]
    fn nonsense_is_no_path() {
        for path in [".a[", ".a[x]", "a", ".a..", ".a[?(b)]", ".[?(@.a==)]", ".a\\", "[']"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
