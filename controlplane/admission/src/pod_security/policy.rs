//! What a namespace's labels ask for.
//! Source: <https://kubernetes.io/docs/concepts/security/pod-security-admission/#pod-security-admission-labels-for-namespaces>.

use std::fmt;

use minato_meta::{FieldError, FieldErrors};
use serde_json::Value;

use crate::objects::text;

/// A level of the standards, by strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// A version of the standards: a minor version of Kubernetes; `None` is the latest.
pub(super) type Version = Option<u32>;

/// A level as it was in a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            None => write!(f, "{level}:latest"),
            Some(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// What is refused, what is noted for auditors, what the client is warned of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Policy {
    /// Whether nothing is ever found.
    pub(super) fn is_privileged(&self) -> bool {
        let all = [self.enforce, self.audit, self.warn];
        all.iter().all(|one| one.level == Level::Privileged)
    }
}

fn level(text: &str) -> Result<Level, &'static str> {
    match text {
        "privileged" => Ok(Level::Privileged),
        "baseline" => Ok(Level::Baseline),
        "restricted" => Ok(Level::Restricted),
        _ => Err("must be one of privileged, baseline, restricted"),
    }
}

fn version(text: &str) -> Result<Version, &'static str> {
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").filter(|minor| {
        let digits = !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit());
        digits && (*minor == "0" || !minor.starts_with('0'))
    });
    let minor = minor.and_then(|minor| minor.parse().ok());
    minor.map(Some).ok_or("must be \"latest\" or \"v1.x\"")
}

/// The policy of a Namespace object. There always is one: levels that cannot be read are the strictest for what is
/// enforced, and none for the rest.
pub(super) fn of(namespace: &Value) -> (Policy, FieldErrors) {
    let mut errors = FieldErrors::default();
    let label = |name: &str| {
        let key = format!("pod-security.kubernetes.io/{name}");
        let pointer = format!("/metadata/labels/pod-security.kubernetes.io~1{name}");
        let present = namespace.pointer(&pointer).is_some();
        present.then(|| (key, text(namespace, &pointer).to_owned()))
    };
    let mut wrong = |key: &str, value: &str, why: &str| {
        errors.push(FieldError::invalid(format!("metadata.labels[{key}]"), value, why));
    };
    let mut policy = Policy::default();
    let mut stated = [false; 2];
    for (index, mode) in ["enforce", "audit", "warn"].into_iter().enumerate() {
        let mut asked = LevelVersion::default();
        if let Some((key, value)) = label(mode) {
            match level(&value) {
                Ok(level) => {
                    asked.level = level;
                    stated[0] |= mode == "enforce";
                }
                Err(why) => {
                    wrong(&key, &value, why);
                    asked.level = if mode == "enforce" {
                        Level::Restricted
                    } else {
                        Level::Privileged
                    };
                }
            }
            stated[1] |= mode == "warn";
        }
        let pinned = label(&format!("{mode}-version"));
        if let Some((key, value)) = &pinned {
            asked.version = version(value).unwrap_or_else(|why| {
                wrong(key, value, why);
                None
            });
        }
        match index {
            0 => policy.enforce = asked,
            1 => policy.audit = asked,
            _ => {
                // Who enforces wants to be warned, unless they say otherwise.
                let [enforces, warns] = stated;
                if enforces && !warns && policy.enforce.level > asked.level {
                    asked.level = policy.enforce.level;
                    if pinned.is_none() {
                        asked.version = policy.enforce.version;
                    }
                }
                policy.warn = asked;
            }
        }
    }
    (policy, errors)
}
