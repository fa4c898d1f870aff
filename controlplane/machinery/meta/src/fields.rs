//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>. Which labels a kind
//! takes is the kind's business; this only reads and compares.

use std::fmt;

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// Field label, such as `spec.nodeName`.
    pub field: String,
    /// Value to compare with; empty for unset.
    pub value: String,
    /// Whether the values must be equal or must differ.
    pub equal: bool,
}

/// All comparisons must hold; none is everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// Why text is no field selector. 400 for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSelectorError(String);

impl FieldSelector {
    /// From comparisons.
    pub fn from_terms(terms: Vec<FieldTerm>) -> Self {
        Self { terms }
    }

    /// Reads the text form. `\`, `,` and `=` in values are escaped by `\`.
    ///
    /// # Errors
    /// On a term without an operator or with a bad escape.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let wrong = || FieldSelectorError(format!("invalid selector: '{text}'; can't understand '{part}'"));
            let (field, equal, value) = split_operator(part).ok_or_else(wrong)?;
            terms.push(FieldTerm {
                field: field.to_owned(),
                value: unescape(value).ok_or_else(|| {
                    FieldSelectorError(format!(
                        "invalid field selector: invalid escape sequence in value: {value}"
                    ))
                })?,
                equal,
            });
        }
        Ok(Self { terms })
    }

    /// The comparisons.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that this field must have, when the selector says so.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.equal && t.field == field)
            .map(|t| t.value.as_str())
    }

    /// Whether an object with these field values is selected; unset fields are the empty text.
    pub fn matches(&self, value: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|t| (value(&t.field) == t.value) == t.equal)
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The first operator decides: `a==b` is not `a` equals `=b`.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = term[at..].strip_prefix(operator) {
                return Some((&term[..at], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            // Unescaped, these two cannot be part of a value.
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

/// The text form, escaped; parses back to an equal selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_and_matching() {
        let selector = FieldSelector::parse("metadata.name==a,status.phase!=Running,spec.nodeName=").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("a"));
        assert_eq!(selector.required_value("spec.nodeName"), Some(""));
        assert_eq!(selector.required_value("status.phase"), None);
        let fields = |field: &str| match field {
            "metadata.name" => "a".to_owned(),
            "status.phase" => "Pending".to_owned(),
            _ => String::new(),
        };
        assert!(selector.matches(fields));
        assert!(!FieldSelector::parse("status.phase!=Pending").unwrap().matches(fields));
        assert!(FieldSelector::parse("").unwrap().is_everything());
    }

    #[test]
    fn escapes_round_trip() {
        let selector = FieldSelector::parse(r"a=b\,c\=d\\,e!=f").unwrap();
        assert_eq!(selector.terms()[0].value, r"b,c=d\");
        assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn bad_text_is_told() {
        assert_eq!(
            FieldSelector::parse("metadata.name").unwrap_err().to_string(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
        for bad in ["a=b=c", r"a=\x", r"a=b\", "é"] {
            assert!(FieldSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
