//! The Pod Security Standards: each check by its level and the version since which it is made.
//! Source: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, LevelVersion};
use super::subject::{Subject, containers_named, name, plural, quoted};
use crate::objects::{list, text};

/// The newest version of the standards that is known here.
const NEWEST: u32 = 36;

/// What a check does not like.
pub(super) struct Finding {
    reason: &'static str,
    detail: String,
}

/// All that is not liked.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `host namespaces, hostPort`.
    pub(super) fn reasons(&self) -> String {
        let all: Vec<&str> = self.0.iter().map(|finding| finding.reason).collect();
        all.join(", ")
    }

    /// `host namespaces (hostPID=true), hostPort (…)`.
    pub(super) fn details(&self) -> String {
        let one = |finding: &Finding| format!("{} ({})", finding.reason, finding.detail);
        let all: Vec<String> = self.0.iter().map(one).collect();
        all.join(", ")
    }
}

type Look = fn(&Subject<'_>, u32) -> Option<Finding>;

struct Check {
    id: &'static str,
    /// First minor version.
    since: u32,
    look: Look,
}

const fn check(id: &'static str, since: u32, look: Look) -> Check {
    Check { id, since, look }
}

/// By name, which is the order of messages.
const BASELINE: &[Check] = &[
    check("appArmorProfile", 0, app_armor),
    check("capabilities_baseline", 0, added_capabilities),
    check("hostNamespaces", 0, host_namespaces),
    check("hostPathVolumes", 0, host_paths),
    check("hostPorts", 0, host_ports),
    check("hostProbesAndHostLifecycle", 34, probed_hosts),
    check("privileged", 0, privileged),
    check("procMount", 0, proc_mount),
    check("seLinuxOptions", 0, se_linux),
    check("seccompProfile_baseline", 0, seccomp),
    check("sysctls", 0, sysctls),
    check("windowsHostProcess", 0, host_process),
];

/// With the check of the lower level that each takes the place of.
const RESTRICTED: &[(Check, &str)] = &[
    (check("allowPrivilegeEscalation", 8, privilege_escalation), ""),
    (
        check("capabilities_restricted", 22, kept_capabilities),
        "capabilities_baseline",
    ),
    (check("procMount_restricted", 35, proc_mount_always), "procMount"),
    (check("restrictedVolumes", 0, volume_types), "hostPathVolumes"),
    (check("runAsNonRoot", 0, run_as_non_root), ""),
    (check("runAsUser", 23, run_as_user), ""),
    (
        check("seccompProfile_restricted", 19, required_seccomp),
        "seccompProfile_baseline",
    ),
];

/// Holds a pod against a level.
pub(super) fn evaluate(level: LevelVersion, subject: &Subject<'_>) -> Findings {
    let version = level.version.map_or(NEWEST, |minor| minor.min(NEWEST));
    let restricted: Vec<&(Check, &str)> = match level.level {
        Level::Privileged => return Findings::default(),
        Level::Baseline => Vec::new(),
        Level::Restricted => RESTRICTED.iter().filter(|(c, _)| c.since <= version).collect(),
    };
    let replaced = |check: &Check| restricted.iter().any(|(_, other)| *other == check.id);
    let baseline = BASELINE
        .iter()
        .filter(|check| check.since <= version && !replaced(check));
    let all = baseline.chain(restricted.iter().map(|(check, _)| check));
    Findings(all.filter_map(|check| (check.look)(subject, version)).collect())
}

fn found(reason: &'static str, detail: String) -> Option<Finding> {
    Some(Finding { reason, detail })
}

/// A finding about containers, if there are any.
fn about(reason: &'static str, names: &[&str], what: &str) -> Option<Finding> {
    let detail = format!("{} {what}", containers_named(names));
    if names.is_empty() { None } else { found(reason, detail) }
}

/// A finding about the pod and containers that set something, if any do.
fn set_by(reason: &'static str, setters: &[String], what: &str) -> Option<Finding> {
    let detail = format!("{} {what}", setters.join(" and "));
    if setters.is_empty() {
        None
    } else {
        found(reason, detail)
    }
}

fn app_armor(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let bad = |kind: &Value| kind != "RuntimeDefault" && kind != "Localhost";
    let (mut setters, values) = subject.setters("/appArmorProfile/type", bad);
    let mut values: Vec<String> = values.into_iter().collect();
    let allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let about = |key: &str| key.starts_with("container.apparmor.security.beta.kubernetes.io/");
    let annotations = subject
        .annotations()
        .filter(|(key, value)| about(key) && !allowed(value));
    let annotations: BTreeSet<String> = annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    if !annotations.is_empty() {
        setters.push(plural(annotations.len(), "annotation", "annotations").to_owned());
        values.extend(annotations);
    }
    let reason = plural(
        values.len(),
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
    );
    set_by(
        reason,
        &setters,
        &format!("must not set AppArmor profile type to {}", quoted(&values)),
    )
}

/// What runtimes give by default.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Capabilities that containers add beyond those allowed, and the containers.
fn capabilities_beyond<'a>(subject: &Subject<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let (mut names, mut beyond) = (Vec::new(), BTreeSet::new());
    for container in subject.containers() {
        let added = list(container, "/securityContext/capabilities/add")
            .iter()
            .filter_map(Value::as_str);
        let bad: Vec<&str> = added.filter(|capability| !allowed.contains(capability)).collect();
        if !bad.is_empty() {
            names.push(name(container));
            beyond.extend(bad);
        }
    }
    (names, beyond)
}

fn not_included(beyond: &BTreeSet<&str>) -> String {
    format!(
        "must not include {} in securityContext.capabilities.add",
        quoted(beyond)
    )
}

fn added_capabilities(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let (names, beyond) = capabilities_beyond(subject, DEFAULT_CAPABILITIES);
    about("non-default capabilities", &names, &not_included(&beyond))
}

fn kept_capabilities(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && subject.is_windows() {
        return None;
    }
    let drops_all = |container: &Value| {
        let dropped = list(container, "/securityContext/capabilities/drop");
        dropped.iter().any(|capability| capability == "ALL")
    };
    let keeping = subject.those(|container| !drops_all(container));
    let (adding, beyond) = capabilities_beyond(subject, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let names = containers_named(&keeping);
        details.push(format!("{names} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        details.push(format!("{} {}", containers_named(&adding), not_included(&beyond)));
    }
    if details.is_empty() {
        None
    } else {
        found("unrestricted capabilities", details.join("; "))
    }
}

fn host_namespaces(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let used: Vec<String> = fields
        .filter(|field| subject.is_on(&format!("/{field}")))
        .map(|field| format!("{field}=true"))
        .collect();
    if used.is_empty() {
        None
    } else {
        found("host namespaces", used.join(", "))
    }
}

fn host_paths(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let volumes = subject.list("/volumes").iter().filter(|volume| has(volume, "hostPath"));
    let names: Vec<&str> = volumes.map(name).collect();
    let detail = format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(&names));
    if names.is_empty() {
        None
    } else {
        found("hostPath volumes", detail)
    }
}

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|value| !value.is_null())
}

fn host_ports(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let (mut names, mut ports) = (Vec::new(), BTreeSet::new());
    for container in subject.containers() {
        let used = list(container, "/ports")
            .iter()
            .filter_map(|port| port.get("hostPort")?.as_i64());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        if !used.is_empty() {
            names.push(name(container));
            ports.extend(used);
        }
    }
    let uses = plural(names.len(), "uses", "use");
    let word = plural(ports.len(), "hostPort", "hostPorts");
    let ports: Vec<String> = ports.into_iter().collect();
    about("hostPort", &names, &format!("{uses} {word} {}", ports.join(", ")))
}

fn probed_hosts(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    const ACTIONS: &[&str] = &[
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ];
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in subject.containers() {
        for action in ACTIONS {
            for kind in ["httpGet", "tcpSocket"] {
                let host = text(container, &format!("{action}/{kind}/host"));
                if !host.is_empty() {
                    names.insert(name(container));
                    hosts.insert(host);
                }
            }
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let uses = plural(names.len(), "uses", "use");
    let word = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    about(
        "probe or lifecycle host",
        &names,
        &format!("{uses} {word} {}", quoted(hosts)),
    )
}

fn privileged(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let names = subject.those(|c| c.pointer("/securityContext/privileged") == Some(&Value::Bool(true)));
    about("privileged", &names, "must not set securityContext.privileged=true")
}

fn proc_mount(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version >= 35 && subject.has_own_users() {
        return None;
    }
    proc_mount_always(subject, version)
}

fn proc_mount_always(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let of = |container: &Value| text(container, "/securityContext/procMount").to_owned();
    let is_bad = |container: &Value| !matches!(of(container).as_str(), "" | "Default");
    let names = subject.those(is_bad);
    let kinds: BTreeSet<String> = subject.containers().filter(|c| is_bad(c)).map(of).collect();
    let what = format!("must not set securityContext.procMount to {}", quoted(kinds));
    about("procMount", &names, &what)
}

fn se_linux(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    let allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || version >= 31 && kind == "container_engine_t"
    };
    let bad = |options: &Value| {
        !allowed(text(options, "/type")) || !text(options, "/user").is_empty() || !text(options, "/role").is_empty()
    };
    let (setters, _) = subject.setters("/seLinuxOptions", bad);
    let pod = subject.at("/securityContext/seLinuxOptions");
    let of_containers = subject
        .containers()
        .filter_map(|c| c.pointer("/securityContext/seLinuxOptions"));
    let all: Vec<&Value> = std::iter::once(pod).chain(of_containers).collect();
    let types = all.iter().map(|options| text(options, "/type"));
    let types: BTreeSet<&str> = types.filter(|kind| !allowed(kind)).collect();
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
    }
    for field in ["user", "role"] {
        if all
            .iter()
            .any(|options| !text(options, &format!("/{field}")).is_empty())
        {
            wrong.push(format!("{field} may not be set"));
        }
    }
    let what = format!("set forbidden securityContext.seLinuxOptions: {}", wrong.join("; "));
    set_by("seLinuxOptions", &setters, &what)
}

fn good_seccomp(kind: &Value) -> bool {
    kind == "Localhost" || kind == "RuntimeDefault"
}

fn seccomp(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version < 19 {
        return seccomp_annotations(subject);
    }
    let (setters, values) = subject.setters("/seccompProfile/type", |kind| !good_seccomp(kind));
    let what = format!("must not set securityContext.seccompProfile.type to {}", quoted(values));
    set_by("seccompProfile", &setters, &what)
}

/// As it was before there were fields.
fn seccomp_annotations(subject: &Subject<'_>) -> Option<Finding> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let names: BTreeSet<&str> = subject.containers().map(name).collect();
    let about = |key: &str| key == POD || key.strip_prefix(CONTAINER).is_some_and(|n| names.contains(n));
    let bad = subject
        .annotations()
        .filter(|(key, value)| about(key) && !allowed(value));
    let bad: BTreeSet<String> = bad.map(|(key, value)| format!("{key}={value:?}")).collect();
    let word = plural(bad.len(), "annotation", "annotations");
    let all: Vec<String> = bad.into_iter().collect();
    if all.is_empty() {
        None
    } else {
        found("seccompProfile", format!("forbidden {word} {}", all.join(", ")))
    }
}

fn required_seccomp(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && subject.is_windows() {
        return None;
    }
    let explicit = seccomp(subject, version.max(19));
    let field = "/securityContext/seccompProfile/type";
    if explicit.is_some() || good_seccomp(subject.at(field)) {
        return explicit;
    }
    let names = subject.those(|c| c.pointer(field).is_none_or(Value::is_null));
    let what = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers_named(&names)
    );
    if names.is_empty() {
        None
    } else {
        found("seccompProfile", what)
    }
}

/// Parameters of the kernel that are apart in each pod, with the version since which they may be set.
const SAFE_SYSCTLS: &[(&str, u32)] = &[
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    let safe = |name: &str| {
        SAFE_SYSCTLS
            .iter()
            .any(|(safe, since)| *safe == name && *since <= version)
    };
    let set = subject.list("/securityContext/sysctls").iter().map(name);
    let bad: Vec<&str> = set.filter(|name| !safe(name)).collect();
    if bad.is_empty() {
        None
    } else {
        found("forbidden sysctls", bad.join(", "))
    }
}

fn host_process(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let (setters, _) = subject.setters("/windowsOptions/hostProcess", |on| on == &Value::Bool(true));
    let what = "must not set securityContext.windowsOptions.hostProcess=true";
    set_by("hostProcess", &setters, what)
}

fn privilege_escalation(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && subject.is_windows() {
        return None;
    }
    let field = "/securityContext/allowPrivilegeEscalation";
    let names = subject.those(|container| container.pointer(field) != Some(&Value::Bool(false)));
    let what = "must set securityContext.allowPrivilegeEscalation=false";
    about("allowPrivilegeEscalation != false", &names, what)
}

const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volume_types(subject: &Subject<'_>, _: u32) -> Option<Finding> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in subject.list("/volumes") {
        if VOLUMES.iter().any(|kind| has(volume, kind)) {
            continue;
        }
        names.push(name(volume));
        let sources = volume.as_object().into_iter().flatten();
        let mut sources = sources.filter(|(key, value)| *key != "name" && !value.is_null());
        kinds.insert(sources.next().map_or("unknown", |(key, _)| key.as_str()));
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural(names.len(), "volume", "volumes"),
        quoted(&names),
        plural(names.len(), "uses", "use"),
        plural(kinds.len(), "restricted volume type", "restricted volume types"),
        quoted(kinds)
    );
    if names.is_empty() {
        None
    } else {
        found("restricted volume types", detail)
    }
}

fn run_as_non_root(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    const REASON: &str = "runAsNonRoot != true";
    if version >= 35 && subject.has_own_users() {
        return None;
    }
    let (setters, _) = subject.setters("/runAsNonRoot", |on| on == &Value::Bool(false));
    if !setters.is_empty() {
        return set_by(REASON, &setters, "must not set securityContext.runAsNonRoot=false");
    }
    let field = "/securityContext/runAsNonRoot";
    if subject.is_on(field) {
        return None;
    }
    let names = subject.those(|c| c.pointer(field).is_none_or(Value::is_null));
    let what = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        containers_named(&names)
    );
    if names.is_empty() { None } else { found(REASON, what) }
}

fn run_as_user(subject: &Subject<'_>, version: u32) -> Option<Finding> {
    if version >= 35 && subject.has_own_users() {
        return None;
    }
    let (setters, _) = subject.setters("/runAsUser", |user| user.as_i64() == Some(0));
    set_by("runAsUser=0", &setters, "must not set runAsUser=0")
}
