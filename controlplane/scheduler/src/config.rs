//! `KubeSchedulerConfiguration`: scheduler profiles by name, with their plug-ins and their arguments.
//!
//! What is not supported is refused, never ignored. Source: <https://kubernetes.io/docs/reference/scheduling/config/>,
//! <https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/>.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The name of the profile of pods that name no scheduler.
pub(crate) const DEFAULT_NAME: &str = "default-scheduler";
pub(crate) const PREEMPTION: &str = "DefaultPreemption";

/// The plug-ins of a profile that says nothing, in order, with the weights of their scores: upstream's.
const DEFAULTS: [(&str, i64); 12] = [
    ("SchedulingGates", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    (PREEMPTION, 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
];
/// Plug-ins that are always there in the only way that there is.
const FIXED: [&str; 2] = ["PrioritySort", "DefaultBinder"];
/// Extension points at which nothing but [`FIXED`] takes part.
const FIXED_POINTS: [&str; 6] = ["queueSort", "reserve", "permit", "preBind", "bind", "postBind"];

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no `KubeSchedulerConfiguration` of version v1, or a field has the wrong type or an unknown name.
    #[error("the configuration cannot be read: {0}")]
    Form(String),
    /// A field has a value that means nothing.
    #[error("{field}: {why}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// It means something that this scheduler cannot do.
    #[error("{0}: not supported by this scheduler")]
    Unsupported(String),
}

fn invalid(field: impl Into<String>, why: impl Into<String>) -> ConfigurationError {
    ConfigurationError::Invalid {
        field: field.into(),
        why: why.into(),
    }
}

/// Where a plug-in takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    PreEnqueue,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
}

const POINTS: [(Point, &str); 6] = [
    (Point::PreEnqueue, "preEnqueue"),
    (Point::PreFilter, "preFilter"),
    (Point::Filter, "filter"),
    (Point::PostFilter, "postFilter"),
    (Point::PreScore, "preScore"),
    (Point::Score, "score"),
];

/// Plug-ins and the weights of their scores, in order.
pub(crate) type PluginList = Vec<(&'static str, i64)>;

/// Arguments of plug-ins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Weight of required affinity of pods that are there, when others are scored.
    pub(crate) hard_affinity_weight: i64,
    /// Whether the preferences of pods that are there do not count, when an incoming pod has none itself.
    pub(crate) ignore_preferences_of_others: bool,
    /// Whether fuller nodes are better.
    pub(crate) most_allocated: bool,
    /// Weights of CPU and memory in the score of what fits.
    pub(crate) fit_weights: (i64, i64),
    /// Whether pods without spread constraints are spread with those that their owners select.
    pub(crate) default_spread: bool,
    /// The share of nodes, in percent, and the number that preemption looks at at least.
    pub(crate) preemption: (usize, usize),
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            hard_affinity_weight: 1,
            ignore_preferences_of_others: false,
            most_allocated: false,
            fit_weights: (1, 1),
            default_spread: true,
            preemption: (10, 100),
        }
    }
}

/// One profile, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileSpec {
    pub(crate) name: String,
    /// Share of nodes that are scored, in percent; 0 to choose by their number.
    pub(crate) percentage: usize,
    pub(crate) plugins: BTreeMap<Point, PluginList>,
    pub(crate) arguments: Arguments,
}

/// What a scheduler does for which pods. The default serves `default-scheduler` with upstream's plug-ins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    pub(crate) profiles: Vec<ProfileSpec>,
}

impl Default for Configuration {
    fn default() -> Self {
        let lists = POINTS.iter().map(|(point, _)| (*point, DEFAULTS.to_vec()));
        Self {
            profiles: vec![ProfileSpec {
                name: DEFAULT_NAME.to_owned(),
                percentage: 0,
                plugins: lists.collect(),
                arguments: Arguments::default(),
            }],
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    profiles: Vec<FileProfile>,
    #[serde(default)]
    extenders: Vec<Value>,
    percentage_of_nodes_to_score: Option<i32>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    /// Decisions are made one after the other here: how many threads look at nodes is no matter of users.
    #[serde(rename = "parallelism")]
    _parallelism: Option<i32>,
    /// Who leads and how the API server is reached is the matter of whoever starts this scheduler.
    #[serde(rename = "leaderElection")]
    _leader_election: Option<Value>,
    #[serde(rename = "clientConnection")]
    _client_connection: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i32>,
    #[serde(default)]
    plugins: BTreeMap<String, PluginSet>,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PluginSet {
    #[serde(default)]
    enabled: Vec<Named>,
    #[serde(default)]
    disabled: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    weight: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: serde_json::Map<String, Value>,
}

impl Configuration {
    /// Reads a `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`.
    ///
    /// # Errors
    /// What it says is malformed, or is nothing that this scheduler can do.
    pub fn parse(value: &Value) -> Result<Self, ConfigurationError> {
        let file = File::deserialize(value).map_err(|error| ConfigurationError::Form(error.to_string()))?;
        if file.api_version != "kubescheduler.config.k8s.io/v1" || file.kind != "KubeSchedulerConfiguration" {
            let what = format!(
                "{} {} is no kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration",
                file.api_version, file.kind
            );
            return Err(ConfigurationError::Form(what));
        }
        if !file.extenders.is_empty() {
            return Err(ConfigurationError::Unsupported("extenders".to_owned()));
        }
        if file.pod_initial_backoff_seconds.is_some_and(|seconds| seconds != 1) {
            return Err(ConfigurationError::Unsupported(
                "podInitialBackoffSeconds other than 1".to_owned(),
            ));
        }
        if file.pod_max_backoff_seconds.is_some_and(|seconds| seconds != 10) {
            return Err(ConfigurationError::Unsupported(
                "podMaxBackoffSeconds other than 10".to_owned(),
            ));
        }
        let overall = percentage("percentageOfNodesToScore", file.percentage_of_nodes_to_score)?;
        if file.profiles.is_empty() {
            let mut this = Self::default();
            for profile in &mut this.profiles {
                profile.percentage = overall.unwrap_or(0);
            }
            return Ok(this);
        }
        let mut profiles: Vec<ProfileSpec> = Vec::new();
        for (at, profile) in file.profiles.iter().enumerate() {
            let at = format!("profiles[{at}]");
            let profile = read_profile(&at, profile, overall)?;
            if profiles.iter().any(|other| other.name == profile.name) {
                return Err(invalid(format!("{at}.schedulerName"), "another profile has this name"));
            }
            profiles.push(profile);
        }
        Ok(Self { profiles })
    }
}

fn percentage(field: &str, value: Option<i32>) -> Result<Option<usize>, ConfigurationError> {
    match value {
        None => Ok(None),
        Some(value) => match usize::try_from(value) {
            Ok(value) if value <= 100 => Ok(Some(value)),
            _ => Err(invalid(field, "must be between 0 and 100")),
        },
    }
}

fn read_profile(at: &str, profile: &FileProfile, overall: Option<usize>) -> Result<ProfileSpec, ConfigurationError> {
    let name = profile
        .scheduler_name
        .clone()
        .unwrap_or_else(|| DEFAULT_NAME.to_owned());
    if name.is_empty() {
        return Err(invalid(format!("{at}.schedulerName"), "must not be empty"));
    }
    let own = percentage(
        &format!("{at}.percentageOfNodesToScore"),
        profile.percentage_of_nodes_to_score,
    )?;
    let known = |point: &str| point == "multiPoint" || POINTS.iter().any(|(_, name)| *name == point);
    for (point, set) in &profile.plugins {
        let field = format!("{at}.plugins.{point}");
        if FIXED_POINTS.contains(&point.as_str()) {
            check_fixed(&field, set)?;
        } else if !known(point) {
            return Err(invalid(field, "no such extension point"));
        }
    }
    let mut all = DEFAULTS.to_vec();
    if let Some(set) = profile.plugins.get("multiPoint") {
        merge(&format!("{at}.plugins.multiPoint"), &mut all, set)?;
    }
    let mut plugins = BTreeMap::new();
    for (point, name) in POINTS {
        let mut list = all.clone();
        if let Some(set) = profile.plugins.get(name) {
            merge(&format!("{at}.plugins.{name}"), &mut list, set)?;
        }
        plugins.insert(point, list);
    }
    let mut arguments = Arguments::default();
    for (number, config) in profile.plugin_config.iter().enumerate() {
        read_arguments(&format!("{at}.pluginConfig[{number}]"), config, &mut arguments)?;
    }
    Ok(ProfileSpec {
        name,
        percentage: own.or(overall).unwrap_or(0),
        plugins,
        arguments,
    })
}

/// What is always there can be named, and cannot be taken away.
fn check_fixed(field: &str, set: &PluginSet) -> Result<(), ConfigurationError> {
    let fixed = |name: &str| FIXED.contains(&name);
    if let Some(other) = set.enabled.iter().find(|plugin| !fixed(&plugin.name)) {
        return Err(ConfigurationError::Unsupported(format!(
            "{field}: plug-in {}",
            other.name
        )));
    }
    let back = |name: &str| set.enabled.iter().any(|plugin| plugin.name == name);
    if let Some(other) = set
        .disabled
        .iter()
        .find(|plugin| fixed(&plugin.name) && !back(&plugin.name))
    {
        return Err(ConfigurationError::Unsupported(format!(
            "{field}: without {}",
            other.name
        )));
    }
    Ok(())
}

/// Takes away what is disabled, `*` being all, and adds what is enabled, or gives it its weight.
fn merge(field: &str, list: &mut PluginList, set: &PluginSet) -> Result<(), ConfigurationError> {
    if set.disabled.iter().any(|plugin| plugin.name == "*") {
        list.clear();
    }
    list.retain(|(name, _)| set.disabled.iter().all(|plugin| plugin.name != *name));
    for plugin in &set.enabled {
        if FIXED.contains(&plugin.name.as_str()) {
            continue;
        }
        let Some((name, _)) = DEFAULTS.iter().find(|(name, _)| *name == plugin.name) else {
            return Err(ConfigurationError::Unsupported(format!(
                "{field}: plug-in {}",
                plugin.name
            )));
        };
        let weight = i64::from(plugin.weight.unwrap_or(0));
        if !(0..=100).contains(&weight) {
            return Err(invalid(
                field,
                format!("the weight of {name} must be between 0 and 100"),
            ));
        }
        // Zero means that none was said.
        let weight = weight.max(1);
        match list.iter_mut().find(|(other, _)| other == name) {
            Some(entry) => entry.1 = weight,
            None => list.push((name, weight)),
        }
    }
    Ok(())
}

fn read_arguments(field: &str, config: &PluginConfig, into: &mut Arguments) -> Result<(), ConfigurationError> {
    for (name, value) in &config.args {
        let at = format!("{field}.args.{name}");
        let number = |most: i64| {
            let number = value.as_i64().filter(|number| (0..=most).contains(number));
            number.ok_or_else(|| invalid(&at, format!("must be between 0 and {most}")))
        };
        match (config.name.as_str(), name.as_str()) {
            (_, "apiVersion" | "kind") => {}
            ("InterPodAffinity", "hardPodAffinityWeight") => into.hard_affinity_weight = number(100)?,
            ("InterPodAffinity", "ignorePreferredTermsOfExistingPods") => {
                into.ignore_preferences_of_others = value.as_bool().ok_or_else(|| invalid(&at, "must be a boolean"))?;
            }
            (PREEMPTION, "minCandidateNodesPercentage") => {
                into.preemption.0 = usize::try_from(number(100)?).unwrap_or_default();
            }
            (PREEMPTION, "minCandidateNodesAbsolute") => {
                into.preemption.1 = usize::try_from(number(i64::from(i32::MAX))?).unwrap_or_default();
            }
            ("NodeResourcesFit", "scoringStrategy") => read_strategy(&at, value, into)?,
            ("PodTopologySpread", "defaultingType") if value == "List" => into.default_spread = false,
            ("PodTopologySpread", "defaultingType") if value == "System" => into.default_spread = true,
            ("PodTopologySpread", "defaultConstraints") if value.as_array().is_some_and(Vec::is_empty) => {}
            _ => return Err(ConfigurationError::Unsupported(format!("{at} of {}", config.name))),
        }
    }
    if into.preemption == (0, 0) {
        return Err(invalid(
            field,
            "minCandidateNodesPercentage and minCandidateNodesAbsolute must not both be 0",
        ));
    }
    Ok(())
}

fn read_strategy(at: &str, value: &Value, into: &mut Arguments) -> Result<(), ConfigurationError> {
    into.most_allocated = match value.get("type").and_then(Value::as_str) {
        None | Some("LeastAllocated") => false,
        Some("MostAllocated") => true,
        Some(other) => return Err(ConfigurationError::Unsupported(format!("{at}.type {other}"))),
    };
    let Some(resources) = value.get("resources").and_then(Value::as_array) else {
        return Ok(());
    };
    into.fit_weights = (0, 0);
    for resource in resources {
        let name = resource.get("name").and_then(Value::as_str).unwrap_or_default();
        let weight = resource.get("weight").and_then(Value::as_i64).unwrap_or(1);
        if !(1..=100).contains(&weight) {
            return Err(invalid(
                format!("{at}.resources"),
                format!("the weight of {name} must be between 1 and 100"),
            ));
        }
        match name {
            "cpu" => into.fit_weights.0 = weight,
            "memory" => into.fit_weights.1 = weight,
            other => return Err(ConfigurationError::Unsupported(format!("{at}.resources: {other}"))),
        }
    }
    if into.fit_weights == (0, 0) {
        into.fit_weights = (1, 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(extra: Value) -> Result<Configuration, ConfigurationError> {
        let mut value = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
        if let (Some(fields), Value::Object(extra)) = (value.as_object_mut(), extra) {
            fields.extend(extra);
        }
        Configuration::parse(&value)
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(parse(json!({})), Ok(Configuration::default()));
        assert_eq!(
            parse(json!({"profiles": [{}], "parallelism": 16})),
            Ok(Configuration::default())
        );
    }

    #[test]
    fn profiles_differ_in_plugins_weights_and_arguments() {
        let parsed = parse(json!({"percentageOfNodesToScore": 50, "profiles": [
            {"schedulerName": "packed", "percentageOfNodesToScore": 20,
             "plugins": {
                "multiPoint": {"disabled": [{"name": "ImageLocality"}]},
                "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]},
                "postFilter": {"disabled": [{"name": "*"}]},
                "bind": {"enabled": [{"name": "DefaultBinder"}]},
             },
             "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy":
                {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}}}]},
            {},
        ]}))
        .unwrap();
        let packed = &parsed.profiles[0];
        assert_eq!((packed.name.as_str(), packed.percentage), ("packed", 20));
        assert_eq!(packed.plugins[&Point::Score], [("NodeResourcesFit", 5)]);
        assert!(packed.plugins[&Point::PostFilter].is_empty());
        let filters = &packed.plugins[&Point::Filter];
        assert!(filters.contains(&("TaintToleration", 3)) && !filters.iter().any(|(name, _)| *name == "ImageLocality"));
        assert!(packed.arguments.most_allocated);
        assert_eq!(packed.arguments.fit_weights, (3, 0));
        assert_eq!(
            (parsed.profiles[1].name.as_str(), parsed.profiles[1].percentage),
            (DEFAULT_NAME, 50)
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let refused = |extra: Value| parse(extra).map(|_| ()).map_err(|error| error.to_string());
        let said = |text: &str| Err(text.to_owned());
        let extender = json!({"extenders": [{"urlPrefix": "http://x"}]});
        assert_eq!(refused(extender), said("extenders: not supported by this scheduler"));
        assert_eq!(
            refused(json!({"percentageOfNodesToScore": 101})),
            said("percentageOfNodesToScore: must be between 0 and 100")
        );
        assert_eq!(
            refused(json!({"profiles": [{}, {}]})),
            said("profiles[1].schedulerName: another profile has this name")
        );
        let custom = json!({"profiles": [{"plugins": {"filter": {"enabled": [{"name": "Mine"}]}}}]});
        assert_eq!(
            refused(custom),
            said("profiles[0].plugins.filter: plug-in Mine: not supported by this scheduler")
        );
        assert!(refused(json!({"profile": []})).is_err());
        assert!(refused(json!({"kind": "Pod"})).is_err());
        let without = json!({"profiles": [{"plugins": {"bind": {"disabled": [{"name": "DefaultBinder"}]}}}]});
        assert!(refused(without).is_err());
    }
}
