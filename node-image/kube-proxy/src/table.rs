//! The rules of a Service as data, and the text that turns one state into another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Name of our table, of family `ip`. Everything in it is ours, nothing outside of it is touched.
pub(crate) const TABLE: &str = "minato-proxy";

/// What one Service has in the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Chains and their rules.
    pub(crate) chains: BTreeMap<String, Vec<String>>,
    /// Sets that rules fill by themselves, by name, with their declaration.
    pub(crate) sets: BTreeMap<String, String>,
    /// Elements: map or set, key, and the verdict of a map's.
    pub(crate) elements: BTreeMap<(String, String), Option<String>>,
}

impl Rules {
    pub(crate) fn element(&mut self, map: &str, key: String, verdict: Option<String>) {
        self.elements.insert((map.to_owned(), key), verdict);
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
    out.push('\n');
}

/// The commands that turn `old` into `new`, in an order in which nothing refers to what is not there. Empty for no change.
pub(crate) fn difference(old: &Rules, new: &Rules) -> String {
    let mut out = String::new();
    for (name, declaration) in &new.sets {
        if !old.sets.contains_key(name) {
            line(&mut out, format_args!("add set ip {TABLE} {name} {declaration}"));
        }
    }
    for name in new.chains.keys().filter(|name| !old.chains.contains_key(*name)) {
        line(&mut out, format_args!("add chain ip {TABLE} {name}"));
    }
    for (name, rules) in &new.chains {
        if old.chains.get(name) == Some(rules) {
            continue;
        }
        if old.chains.contains_key(name) {
            line(&mut out, format_args!("flush chain ip {TABLE} {name}"));
        }
        for rule in rules {
            line(&mut out, format_args!("add rule ip {TABLE} {name} {rule}"));
        }
    }
    for ((map, key), verdict) in &old.elements {
        if new.elements.get(&(map.clone(), key.clone())) != Some(verdict) {
            line(&mut out, format_args!("delete element ip {TABLE} {map} {{ {key} }}"));
        }
    }
    for ((map, key), verdict) in &new.elements {
        if old.elements.get(&(map.clone(), key.clone())) == Some(verdict) {
            continue;
        }
        match verdict {
            Some(verdict) => line(
                &mut out,
                format_args!("add element ip {TABLE} {map} {{ {key} : {verdict} }}"),
            ),
            None => line(&mut out, format_args!("add element ip {TABLE} {map} {{ {key} }}")),
        }
    }
    let gone: BTreeSet<&String> = old
        .chains
        .keys()
        .filter(|name| !new.chains.contains_key(*name))
        .collect();
    // Emptied before any is deleted: they refer to one another.
    for name in &gone {
        line(&mut out, format_args!("flush chain ip {TABLE} {name}"));
    }
    for name in &gone {
        line(&mut out, format_args!("delete chain ip {TABLE} {name}"));
    }
    for name in old.sets.keys().filter(|name| !new.sets.contains_key(*name)) {
        line(&mut out, format_args!("delete set ip {TABLE} {name}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(chains: &[(&str, &[&str])], elements: &[(&str, &str)]) -> Rules {
        let mut rules = Rules::default();
        for (name, list) in chains {
            rules
                .chains
                .insert((*name).to_owned(), list.iter().map(|r| (*r).to_owned()).collect());
        }
        for (key, verdict) in elements {
            rules.element("m", (*key).to_owned(), Some((*verdict).to_owned()));
        }
        rules
    }

    #[test]
    fn only_what_differs_is_sent_and_in_order() {
        let old = rules(&[("a", &["x"]), ("b", &["y"])], &[("1", "goto a"), ("2", "goto b")]);
        let new = rules(&[("a", &["x"]), ("c", &["z"])], &[("1", "goto a"), ("2", "goto c")]);
        let expected = [
            "add chain ip minato-proxy c",
            "add rule ip minato-proxy c z",
            "delete element ip minato-proxy m { 2 }",
            "add element ip minato-proxy m { 2 : goto c }",
            "flush chain ip minato-proxy b",
            "delete chain ip minato-proxy b",
        ];
        assert_eq!(difference(&old, &new).lines().collect::<Vec<_>>(), expected);
        assert_eq!(difference(&new, &new), "");
        assert_eq!(difference(&Rules::default(), &Rules::default()), "");
    }
}
