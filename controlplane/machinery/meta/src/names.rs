//! Which names, labels and keys are allowed, and what is said about those that are not.
//!
//! Every function returns what is wrong, empty when all is well; the texts are those that clients of Kubernetes know.
//! Sources: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>,
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>.

const LABEL: Form = Form {
    what: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
           with an alphanumeric character",
    regex: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "123-abc"],
};
const SUBDOMAIN: Form = Form {
    what: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
           and end with an alphanumeric character",
    regex: "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: &["example.com"],
};
const WILDCARD: Form = Form {
    what: "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
           lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    regex: "\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: &["*.example.com"],
};
const LABEL_1035: Form = Form {
    what: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
           character, and end with an alphanumeric character",
    regex: "[a-z]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "abc-123"],
};
const LABEL_KEY: Form = Form {
    what: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    regex: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    examples: &["MyName", "my.name", "123-abc"],
};
const LABEL_VALUE: Form = Form {
    what: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
           and end with an alphanumeric character",
    regex: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    examples: &["MyValue", "my_value", "12345"],
};
const CONFIG_KEY: Form = Form {
    what: "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    regex: "[-._a-zA-Z0-9]+",
    examples: &["key.name", "KEY_NAME", "key-name"],
};
const ENV_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

struct Form {
    what: &'static str,
    regex: &'static str,
    examples: &'static [&'static str],
}

impl Form {
    fn told(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|e| format!("'{e}', ")).collect();
        format!(
            "{} (e.g. {}regex used for validation is '{}')",
            self.what,
            examples.join("or "),
            self.regex
        )
    }
}

fn too_long(most: usize, unit: &str) -> String {
    format!("must be no more than {most} {unit}")
}

fn lower(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn matches_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|c| lower(*c))
        && bytes.last().is_some_and(|c| lower(*c))
        && bytes.iter().all(|c| lower(*c) || *c == b'-')
}

fn matches_subdomain(name: &str) -> bool {
    name.split('.').all(matches_label)
}

/// Letters, digits and `-_.`, beginning and ending with a letter or digit.
fn matches_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// A DNS label of RFC 1123: namespaces, container and port names.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 63 {
        wrong.push(too_long(63, "characters"));
    }
    if !matches_label(name) {
        // Upstream names the form that was missed by little: dots make it a subdomain.
        let form = if matches_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            LABEL.told()
        };
        wrong.push(form);
    }
    wrong
}

/// A DNS subdomain of RFC 1123: most object names.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 253 {
        wrong.push(too_long(253, "characters"));
    }
    if !matches_subdomain(name) {
        wrong.push(SUBDOMAIN.told());
    }
    wrong
}

/// A DNS subdomain whose first label is `*`: hosts of ingresses.
pub fn wildcard_dns1123_subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 253 {
        wrong.push(too_long(253, "characters"));
    }
    if !name.strip_prefix("*.").is_some_and(matches_subdomain) {
        wrong.push(WILDCARD.told());
    }
    wrong
}

/// A DNS label of RFC 1035, which begins with a letter: services.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 63 {
        wrong.push(too_long(63, "characters"));
    }
    if !(matches_label(name) && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)) {
        wrong.push(LABEL_1035.told());
    }
    wrong
}

/// A label or annotation key, finalizer or resource name: `[prefix/]name`.
pub fn qualified_name(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(
                    dns1123_subdomain(prefix)
                        .into_iter()
                        .map(|e| format!("prefix part {e}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                LABEL_KEY.told()
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !matches_word(name) {
        wrong.push(format!("name part {}", LABEL_KEY.told()));
    }
    wrong
}

/// A label value; may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push(too_long(63, "bytes"));
    }
    if !(value.is_empty() || matches_word(value)) {
        wrong.push(LABEL_VALUE.told());
    }
    wrong
}

/// A name that is safe as one segment of a path: RBAC objects.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| name.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if key.len() > 253 {
        wrong.push(too_long(253, "characters"));
    }
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(allowed) {
        wrong.push(CONFIG_KEY.told());
    }
    // The volume that shows the keys as files must not leave its folder.
    if key == "." {
        wrong.push("must not be '.'".to_owned());
    } else if key == ".." {
        wrong.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        wrong.push("must not start with '..'".to_owned());
    }
    wrong
}

/// Name of an environment variable.
pub fn env_var_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["must be non-empty".to_owned()];
    }
    if name.bytes().all(|c| (0x20..=0x7e).contains(&c) && c != b'=') {
        return Vec::new();
    }
    vec![ENV_NAME.to_owned()]
}

/// Name of a port in a pod: letters, digits and single hyphens, at least one letter, at most 15.
pub fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push(too_long(15, "characters"));
    }
    if !name.bytes().all(|c| lower(c) || c == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|c| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(check(name), Vec::<String>::new(), "{name}");
        }
        for name in bad {
            assert!(!check(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn forms() {
        let (long63, long64) = ("a".repeat(63), "a".repeat(64));
        table(
            dns1123_label,
            &["a", "0", "a-b", &long63],
            &["", "-a", "a-", "A", "a.b", "a_b", "ä", &long64],
        );
        table(
            dns1123_subdomain,
            &["a", "a.b-c.0"],
            &["", ".", "a..b", "a.", ".a", "a.-b", "A"],
        );
        table(dns1035_label, &["a", "a0-b"], &["0a", "", "a."]);
        table(
            wildcard_dns1123_subdomain,
            &["*.a", "*.a.b"],
            &["*", "*a", "a.b", "*.*.a"],
        );
        table(
            qualified_name,
            &["a", "A_b.c-D", "example.com/a", "1"],
            &["", "/a", "a/", "a/b/c", "-a", "A.com/a", &long64],
        );
        table(label_value, &["", "a", "A_b.c", &long63], &["-", "a-", "a b", &long64]);
        table(path_segment, &["a:b", "system:node", "*"], &[".", "..", "a/b", "a%b"]);
        table(config_map_key, &["a", ".a", "A_b-c.d"], &["", ".", "..", "..a", "a/b"]);
        table(env_var_name, &["A", "a.b-c", "1"], &["", "A=B", "é"]);
        table(
            port_name,
            &["http", "a-1"],
            &["", "80", "a--b", "-a", "HTTP", "aaaaaaaaaaaaaaaa"],
        );
    }

    #[test]
    fn texts() {
        assert_eq!(
            dns1123_subdomain("Web_1"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert!(label_value("a b")[0].contains("(e.g. 'MyValue', or 'my_value', or '12345', regex used"));
    }
}
