//! One policy rule, and what it matches.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/cluster-role-v1/>.

use serde::{Deserialize, Serialize};

use crate::Attributes;

/// What may be done to what. All four lists of a resource rule must match; a path rule has verbs and URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs, or `*`.
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub api_groups: Vec<String>,
    /// Resources (`pods`, `pods/log`, `*/scale`), or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub resources: Vec<String>,
    /// Object names; none for all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a trailing `*` matches any rest.
    #[serde(
        rename = "nonResourceURLs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

const ALL: &str = "*";

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == ALL || item == wanted)
}

impl Rule {
    /// Whether the rule allows such a request.
    pub fn allows(&self, request: &Attributes) -> bool {
        if !has(&self.verbs, &request.verb) {
            return false;
        }
        if request.is_resource {
            has(&self.api_groups, &request.group)
                && self.names_resource(&request.resource, &request.subresource)
                && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
        } else {
            self.non_resource_urls.iter().any(|url| url_matches(url, &request.path))
        }
    }

    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources
            .iter()
            .any(|r| resource_matches(r, resource, subresource))
    }

    /// Whether this rule allows all that a rule of single items allows.
    pub(super) fn covers_single(&self, wanted: &Rule) -> bool {
        let [verb] = wanted.verbs.as_slice() else {
            return false;
        };
        if !has(&self.verbs, verb) {
            return false;
        }
        if let [url] = wanted.non_resource_urls.as_slice() {
            return self.non_resource_urls.iter().any(|own| url_matches(own, url));
        }
        let ([group], [resource]) = (wanted.api_groups.as_slice(), wanted.resources.as_slice()) else {
            return false;
        };
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let names = match wanted.resource_names.as_slice() {
            [] => self.resource_names.is_empty(),
            names => self.resource_names.is_empty() || names.iter().all(|n| self.resource_names.contains(n)),
        };
        has(&self.api_groups, group) && self.names_resource(resource, subresource) && names
    }

    /// The rule as rules of one verb and one resource or path each.
    pub(super) fn singles(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let mut singles = Vec::new();
        for verb in &self.verbs {
            for url in &self.non_resource_urls {
                singles.push(Rule {
                    verbs: one(verb),
                    non_resource_urls: one(url),
                    ..Rule::default()
                });
            }
            for group in &self.api_groups {
                for resource in &self.resources {
                    let base = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        singles.push(base);
                        continue;
                    }
                    for name in &self.resource_names {
                        singles.push(Rule {
                            resource_names: one(name),
                            ..base.clone()
                        });
                    }
                }
            }
        }
        singles
    }
}

/// `*` is everything, subresources too; `*/scale` is that subresource of everything.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((kind, sub)) => !subresource.is_empty() && sub == subresource && (kind == ALL || kind == resource),
    }
}

fn url_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|head| path.starts_with(head))
}

/// Which single permissions of `wanted` none of the `owned` rules gives.
pub(super) fn missing(owned: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut missing = Vec::new();
    for single in wanted.iter().flat_map(Rule::singles) {
        if !owned.iter().any(|own| own.covers_single(&single)) && !missing.contains(&single) {
            missing.push(single);
        }
    }
    missing
}

/// Single permissions as people read them: those of one group, resource and name together.
pub(super) fn describe(rules: &[Rule]) -> String {
    let mut merged: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |m: &&mut Rule| {
            m.api_groups == rule.api_groups
                && m.resources == rule.resources
                && m.resource_names == rule.resource_names
                && m.non_resource_urls == rule.non_resource_urls
        };
        match merged.iter_mut().find(same) {
            Some(found) => found.verbs.extend(rule.verbs.iter().cloned()),
            None => merged.push(rule.clone()),
        }
    }
    let quoted = |list: &[String]| list.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = merged
        .iter()
        .map(|rule| {
            let mut parts = Vec::new();
            for (name, list) in [
                ("NonResourceURLs", &rule.non_resource_urls),
                ("APIGroups", &rule.api_groups),
                ("Resources", &rule.resources),
                ("ResourceNames", &rule.resource_names),
                ("Verbs", &rule.verbs),
            ] {
                if !list.is_empty() {
                    parts.push(format!("{name}:[{}]", quoted(list)));
                }
            }
            format!("{{{}}}", parts.join(", "))
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        match text {
            "-" => Vec::new(),
            text => text.split(',').map(str::to_owned).collect(),
        }
    }

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn request(verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.into(),
            is_resource: true,
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn resource_rules() {
        // rule (verbs, groups, resources, names), request (verb, group, resource, subresource, name), allowed
        let table = [
            (["get", "", "pods", "-"], ["get", "", "pods", "", "p"], true),
            (["get", "", "pods", "-"], ["list", "", "pods", "", ""], false),
            (["get", "apps", "pods", "-"], ["get", "", "pods", "", "p"], false),
            (["get", "", "pods", "-"], ["get", "", "pods", "log", "p"], false),
            (["get", "", "pods/log", "-"], ["get", "", "pods", "log", "p"], true),
            (["get", "", "pods/log", "-"], ["get", "", "pods", "", "p"], false),
            (["*", "*", "*", "-"], ["delete", "x", "y", "z", "n"], true),
            (
                ["get", "*", "*/scale", "-"],
                ["get", "apps", "deployments", "scale", "d"],
                true,
            ),
            (
                ["get", "*", "*/scale", "-"],
                ["get", "apps", "deployments", "", "d"],
                false,
            ),
            (
                ["get", "*", "*/scale", "-"],
                ["get", "apps", "deployments", "status", "d"],
                false,
            ),
            (["get", "", "pods/*", "-"], ["get", "", "pods", "log", "p"], false),
            (["get", "", "secrets", "a,b"], ["get", "", "secrets", "", "b"], true),
            (["get", "", "secrets", "a,b"], ["get", "", "secrets", "", "c"], false),
            (["list", "", "secrets", "a"], ["list", "", "secrets", "", ""], false),
            (["create", "", "secrets", "a"], ["create", "", "secrets", "", ""], false),
        ];
        for (r, a, allowed) in table {
            let rule = rule(r[0], r[1], r[2], r[3]);
            assert_eq!(
                rule.allows(&request(a[0], a[1], a[2], a[3], a[4])),
                allowed,
                "{r:?} {a:?}"
            );
        }
    }

    #[test]
    fn path_rules() {
        for (url, path, allowed) in [
            ("/api", "/api", true),
            ("/api", "/api/", false),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("/api*", "/apis/apps", true),
            ("*", "/metrics", true),
            ("/a*b", "/axb", false),
        ] {
            let rule = Rule {
                verbs: list("get"),
                non_resource_urls: list(url),
                ..Rule::default()
            };
            let request = Attributes {
                verb: "get".into(),
                path: path.into(),
                ..Attributes::default()
            };
            assert_eq!(rule.allows(&request), allowed, "{url} {path}");
            assert!(!rule.allows(&Attributes {
                verb: "post".into(),
                ..request
            }));
        }
        // A resource rule says nothing of paths, nor the other way round.
        let all_paths = Rule {
            verbs: list("*"),
            non_resource_urls: list("*"),
            ..Rule::default()
        };
        assert!(!all_paths.allows(&request("get", "", "pods", "", "")));
        let path = Attributes {
            verb: "get".into(),
            path: "/metrics".into(),
            ..Attributes::default()
        };
        assert!(!rule("*", "*", "*", "-").allows(&path));
    }

    #[test]
    fn what_is_missing() {
        let owned = [
            rule("get,list", "", "pods", "-"),
            rule("get", "", "secrets", "a,b"),
            rule("update", "*", "*/scale", "-"),
        ];
        let owned: Vec<&Rule> = owned.iter().collect();
        let none: Vec<Rule> = Vec::new();
        assert_eq!(missing(&owned, &[rule("get", "", "pods", "-")]), none);
        assert_eq!(missing(&owned, &[rule("get", "", "pods", "x")]), none);
        assert_eq!(missing(&owned, &[rule("get", "", "secrets", "a")]), none);
        assert_eq!(
            missing(&owned, &[rule("update", "apps", "deployments/scale", "-")]),
            none
        );
        assert_eq!(
            missing(&owned, &[rule("get,watch", "", "pods,secrets", "-")]),
            [
                rule("get", "", "secrets", "-"),
                rule("watch", "", "pods", "-"),
                rule("watch", "", "secrets", "-")
            ]
        );
        assert_eq!(
            missing(&owned, &[rule("*", "", "pods", "-")]),
            [rule("*", "", "pods", "-")]
        );
        assert_eq!(
            missing(&owned, &[rule("get", "", "*", "-")]),
            [rule("get", "", "*", "-")]
        );
        assert_eq!(
            missing(&owned, &[rule("get", "", "secrets", "a,c")]),
            [rule("get", "", "secrets", "c")]
        );
        assert_eq!(
            describe(&missing(&owned, &[rule("watch,delete", "", "pods", "-")])),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#
        );
    }
}
