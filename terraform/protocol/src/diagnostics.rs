//! What is told to people: errors and warnings, each about one place in the configuration.

use std::fmt;

use crate::wire::provider as wire;

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An object's attribute.
    Attribute(String),
    /// A map's key.
    Key(String),
    /// A list's index.
    Index(usize),
}

/// A place in a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The path of an attribute of the top level.
    pub fn attribute(name: &str) -> Self {
        Self(vec![Step::Attribute(name.to_owned())])
    }

    /// One step further.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    pub(crate) fn to_wire(&self) -> wire::AttributePath {
        use wire::attribute_path::step::Selector;
        let step = |step: &Step| wire::attribute_path::Step {
            selector: Some(match step {
                Step::Attribute(name) => Selector::AttributeName(name.clone()),
                Step::Key(key) => Selector::ElementKeyString(key.clone()),
                Step::Index(index) => Selector::ElementKeyInt(i64::try_from(*index).unwrap_or(i64::MAX)),
            }),
        };
        wire::AttributePath {
            steps: self.0.iter().map(step).collect(),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Attribute(name) if position == 0 => write!(f, "{name}")?,
                Step::Attribute(name) => write!(f, ".{name}")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether what was asked for failed, or only deserves attention.
    pub is_error: bool,
    /// One line.
    pub summary: String,
    /// All of it, with what can be done.
    pub detail: String,
    /// Which part of the configuration it is about.
    pub path: Path,
}

impl Diagnostic {
    /// An error.
    pub fn error(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            is_error: true,
            summary: summary.into(),
            detail: detail.into(),
            path: Path::default(),
        }
    }

    /// A warning.
    pub fn warning(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            is_error: false,
            ..Self::error(summary, detail)
        }
    }

    /// The same about a part of the configuration.
    #[must_use]
    pub fn at(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    fn to_wire(&self) -> wire::Diagnostic {
        use wire::diagnostic::Severity;
        wire::Diagnostic {
            severity: if self.is_error {
                Severity::Error
            } else {
                Severity::Warning
            }
            .into(),
            summary: self.summary.clone(),
            detail: self.detail.clone(),
            attribute: (!self.path.0.is_empty()).then(|| self.path.to_wire()),
        }
    }
}

/// All that is told about one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds an error about one place.
    pub fn refuse(&mut self, path: Path, summary: impl Into<String>, detail: impl Into<String>) {
        self.push(Diagnostic::error(summary, detail).at(path));
    }

    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.is_error)
    }

    pub(crate) fn to_wire(&self) -> Vec<wire::Diagnostic> {
        self.0.iter().map(Diagnostic::to_wire).collect()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}
