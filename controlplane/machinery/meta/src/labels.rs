//! Label selectors: text form, object form, matching.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::names::{label_value, qualified_name};

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the operators of the API, by name")]
pub enum Operator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Comparison.
    pub operator: Operator,
    /// What it is compared with, sorted.
    pub values: Vec<String>,
}

/// All conditions must hold. Without conditions everything matches, unless it was made as [`LabelSelector::nothing`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// Why a selector is not one. 400 for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

fn error<T>(text: impl Into<String>) -> Result<T, SelectorError> {
    Err(SelectorError(text.into()))
}

impl Requirement {
    /// A checked condition.
    ///
    /// # Errors
    /// On a key or value that no label can have, or a number of values that the operator does not take.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        if let Some(wrong) = qualified_name(key).first() {
            return error(format!("key: Invalid value: {key:?}: {wrong}"));
        }
        let shown = || Value::from(values.clone());
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return error(format!(
                    "values: Invalid value: {}: for 'in', 'notin' operators, values set can't be empty",
                    shown()
                ));
            }
            Operator::Equals | Operator::NotEquals if values.len() != 1 => {
                return error(format!(
                    "values: Invalid value: {}: exact-match compatibility requires one single value",
                    shown()
                ));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return error(format!(
                    "values: Invalid value: {}: values set must be empty for exists and does not exist",
                    shown()
                ));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    return error(format!(
                        "values: Invalid value: {}: for 'Gt', 'Lt' operators, exactly one value is required",
                        shown()
                    ));
                }
                if let Some(bad) = values.iter().find(|v| v.parse::<i64>().is_err()) {
                    return error(format!(
                        "values[0]: Invalid value: {bad:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            }
            _ => {}
        }
        for (at, value) in values.iter().enumerate() {
            if let Some(wrong) = label_value(value).first() {
                return error(format!("values[{at}][{key}]: Invalid value: {value:?}: {wrong}"));
            }
        }
        values.sort();
        values.dedup();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// Whether a label of this value (`None` when absent) satisfies the condition.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        let compare = |v: &str| Some((v.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            Operator::Equals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(compare).is_some_and(|(a, b)| a > b),
            Operator::LessThan => value.and_then(compare).is_some_and(|(a, b)| a < b),
        }
    }
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches no object.
    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// From conditions.
    pub fn from_requirements(requirements: Vec<Requirement>) -> Self {
        Self {
            requirements,
            nothing: false,
        }
    }

    /// Every pair must be there. The pairs are taken as they are, as services and replication controllers do.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::from_requirements(
            pairs
                .into_iter()
                .map(|(key, value)| Requirement {
                    key: key.to_owned(),
                    operator: Operator::Equals,
                    values: vec![value.to_owned()],
                })
                .collect(),
        )
    }

    /// From the text form of queries: `app=web,tier in (a, b),!canary,size>3`. Empty text matches everything.
    ///
    /// # Errors
    /// On bad syntax, keys or values.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser {
            tokens: tokenize(text),
            at: 0,
        };
        let requirements = parser.selector()?;
        Ok(Self::from_requirements(requirements))
    }

    /// From the object form (`matchLabels`, `matchExpressions`). `null` matches nothing, `{}` everything.
    ///
    /// # Errors
    /// On unknown operators, bad keys or values, or another shape than a label selector has.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        let map = match object {
            Value::Null => return Ok(Self::nothing()),
            Value::Object(map) => map,
            _ => return error("a label selector must be an object"),
        };
        let mut requirements = Vec::new();
        if let Some(Value::Object(labels)) = map.get("matchLabels") {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
            }
        }
        if let Some(Value::Array(expressions)) = map.get("matchExpressions") {
            for expression in expressions {
                requirements.push(expression_requirement(expression)?);
            }
        }
        Ok(Self::from_requirements(requirements))
    }

    /// From the typed form.
    ///
    /// # Errors
    /// As [`LabelSelector::from_object`].
    pub fn from_typed(selector: Option<&minato_api::meta_v1::LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let object = serde_json::to_value(selector).map_err(|e| SelectorError(e.to_string()))?;
        Self::from_object(&object)
    }

    /// Whether an object with these labels is selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Whether these labels are selected.
    pub fn matches_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|key| labels.get(key).map(String::as_str))
    }

    /// Whether the object's `metadata.labels` are selected.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        self.matches(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }

    /// Whether every object is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether no object can be selected.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The conditions.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

fn expression_requirement(expression: &Value) -> Result<Requirement, SelectorError> {
    let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return error(format!("{other:?} is not a valid label selector operator")),
    };
    let values = match expression.get("values") {
        Some(Value::Array(values)) => values
            .iter()
            .map(|v| v.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| SelectorError("values of a label selector must be strings".to_owned()))?,
        _ => Vec::new(),
    };
    Requirement::new(text("key"), operator, values)
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// The text form; parses back to an equal selector.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// Symbols are `!`, `!=`, `=`, `==`, `>`, `<`, `(`, `)` and `,`; all else up to white space is a word.
fn tokenize(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_symbol(first) {
            let two = rest.get(..2);
            if matches!(two, Some("!=" | "==")) { 2 } else { 1 }
        } else {
            rest.find(|c: char| c.is_whitespace() || is_symbol(c))
                .unwrap_or(rest.len())
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

fn is_symbol(c: char) -> bool {
    matches!(c, '!' | '=' | '>' | '<' | '(' | ')' | ',')
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(is_symbol)
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token; empty at the end.
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(requirements);
        }
        loop {
            let token = self.peek();
            if !(is_word(token) || token == "!") {
                return error(format!("found '{token}', expected: !, identifier, or 'end of string'"));
            }
            requirements.push(
                self.requirement()
                    .map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?,
            );
            match self.next() {
                "" => return Ok(requirements),
                "," => {
                    let token = self.peek();
                    if !(is_word(token) || token == "!") {
                        return error(format!("found '{token}', expected: identifier after ','"));
                    }
                }
                other => return error(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.peek() == "!" {
            self.next();
            return Requirement::new(self.word()?, Operator::DoesNotExist, Vec::new());
        }
        let key = self.word()?;
        if matches!(self.peek(), "" | ",") {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            ">" | "gt" => Operator::GreaterThan,
            "<" | "lt" => Operator::LessThan,
            other => return error(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn word(&mut self) -> Result<&'a str, SelectorError> {
        let token = self.next();
        if is_word(token) {
            Ok(token)
        } else {
            error(format!("found '{token}', expected: identifier"))
        }
    }

    /// A single value, which may be empty: `a=,b`.
    fn value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek(), "" | ",") {
            return Ok(String::new());
        }
        self.word().map(str::to_owned)
    }

    /// `(a, b)`; an empty place is the empty value.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if open != "(" {
            return error(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            let value = if is_word(self.peek()) { self.next() } else { "" };
            values.push(value.to_owned());
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other => return error(format!("found '{other}', expected: ',' or ')'")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        LabelSelector::parse(selector).unwrap().matches_map(&labels)
    }

    #[test]
    fn conditions() {
        let labels: &[(&str, &str)] = &[("app", "web"), ("size", "5"), ("empty", "")];
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            " app = web ",
            "app!=db",
            "other!=x",
            "app in (db,web)",
            "app notin (db)",
            "other notin (x)",
            "!other",
            "size>4",
            "size<6",
            "size gt 4",
            "empty=",
            "empty in ()",
            "app=web,size>4,!other",
            "in in (a),notin notin (b)",
        ] {
            let wanted = !yes.starts_with("in in");
            assert_eq!(selects(yes, labels), wanted, "{yes}");
        }
        for no in [
            "other",
            "app=db",
            "app!=web",
            "!app",
            "app in (db)",
            "app notin (web)",
            "other in (x)",
            "size>5",
            "app>1",
            "other<1",
            "app=web,other",
        ] {
            assert!(!selects(no, labels), "{no}");
        }
    }

    #[test]
    fn bad_text_is_told() {
        for (text, message) in [
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text}");
        }
        for text in ["a/b/c=d", "-a", "a=-", "a>x", "ä=b", "a=b=c", "!", "a,,b", "(", ")"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn object_form() {
        let selector = |v: Value| LabelSelector::from_object(&v);
        assert!(selector(Value::Null).unwrap().is_nothing());
        assert!(!selector(Value::Null).unwrap().matches(|_| None));
        assert!(selector(json!({})).unwrap().is_everything());
        let s = selector(json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["x", "w"]}, {"key": "d", "operator": "Exists"}]}))
        .unwrap();
        assert_eq!(s.to_string(), "a=b,c notin (w,x),d");
        assert!(s.matches_object(&json!({"metadata": {"labels": {"a": "b", "d": ""}}})));
        assert!(!s.matches_object(&json!({"metadata": {}})));
        assert_eq!(
            selector(json!({"matchExpressions": [{"key": "c", "operator": "Like"}]}))
                .unwrap_err()
                .to_string(),
            "\"Like\" is not a valid label selector operator"
        );
        assert!(selector(json!({"matchExpressions": [{"key": "c", "operator": "In"}]})).is_err());
    }

    #[test]
    fn text_form_round_trips() {
        for text in ["a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2", "a=", "a in (,b)"] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
