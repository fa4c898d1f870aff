//! Containers of the three sorts.

use minato_meta::{FieldErrors, names};
use serde_json::Value;

use super::environment::{variable_sources, variables};
use super::mounts::{Volumes, devices, mounts};
use super::{probes, resources, security};
use crate::check::{Path, Report as _, Seen};
use crate::tree::Tree as _;

/// What sort of container it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Main,
    /// Goes first; stays beside the others when `stays`.
    First {
        stays: bool,
    },
    /// Put into a running pod.
    Ephemeral,
}

/// Checks all containers of a pod spec.
pub(super) fn all(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, volumes: &Volumes<'_>) {
    let mut names = Seen::default();
    let list = at.field("containers");
    let containers = spec.list("containers");
    if containers.is_empty() {
        errors.required(&list, "");
    }
    let mut ports = HostPorts::default();
    for (index, container) in containers.iter().enumerate() {
        let at = list.index(index);
        one(errors, &at, container, Sort::Main, volumes);
        ports.note(errors, &at, container);
        name_is_new(errors, &at, container, &mut names);
    }
    let list = at.field("initContainers");
    for (index, container) in spec.list("initContainers").iter().enumerate() {
        let at = list.index(index);
        let stays = container.text("restartPolicy") == "Always";
        one(errors, &at, container, Sort::First { stays }, volumes);
        if stays {
            ports.note(errors, &at, container);
        }
        name_is_new(errors, &at, container, &mut names);
    }
    ephemeral(errors, at, spec, volumes, &mut names);
}

fn name_is_new(errors: &mut FieldErrors, at: &Path<'_>, container: &Value, names: &mut Seen) {
    let name = container.text("name");
    if !name.is_empty() {
        names.note(errors, &at.field("name"), name);
    }
}

/// Checks containers that are put into a running pod.
fn ephemeral(errors: &mut FieldErrors, at: &Path<'_>, spec: &Value, volumes: &Volumes<'_>, names: &mut Seen) {
    let list = at.field("ephemeralContainers");
    let regular = |name: &str| {
        let all = ["containers", "initContainers"].into_iter().flat_map(|l| spec.list(l));
        all.map(|c| c.text("name")).any(|n| n == name)
    };
    for (index, container) in spec.list("ephemeralContainers").iter().enumerate() {
        let at = list.index(index);
        one(errors, &at, container, Sort::Ephemeral, volumes);
        name_is_new(errors, &at, container, names);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !regular(target) {
            errors.not_found(&at.field("targetContainerName"), target);
        }
        for field in [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resources",
            "resizePolicy",
        ] {
            if !container.sub(field).is_blank() {
                errors.forbidden(&at.field(field), "cannot be set for an Ephemeral Container");
            }
        }
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    let list = at.field("volumeMounts");
                    errors.forbidden(
                        &list.index(index).field(field),
                        "cannot be set for an Ephemeral Container",
                    );
                }
            }
        }
    }
}

fn one(errors: &mut FieldErrors, at: &Path<'_>, container: &Value, sort: Sort, volumes: &Volumes<'_>) {
    errors.named_required(&at.field("name"), container.text("name"), names::dns1123_label);
    image(errors, &at.field("image"), container.text("image"));
    errors.one_of_required(
        &at.field("terminationMessagePolicy"),
        container.text("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    errors.one_of_required(
        &at.field("imagePullPolicy"),
        container.text("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    ports(errors, &at.field("ports"), container.list("ports"));
    variables(errors, &at.field("env"), container.list("env"));
    variable_sources(errors, &at.field("envFrom"), container.list("envFrom"));
    mounts(errors, &at.field("volumeMounts"), container, volumes);
    devices(errors, &at.field("volumeDevices"), container, volumes);
    resources::requirements(errors, &at.field("resources"), container.sub("resources"));
    resources::resize_policy(errors, &at.field("resizePolicy"), container);
    security::container_context(errors, &at.field("securityContext"), container.sub("securityContext"));
    restart_policy(errors, at, container, sort);
    match sort {
        Sort::Main | Sort::First { stays: true } => {
            probes::lifecycle(errors, &at.field("lifecycle"), container.sub("lifecycle"));
            probes::all(errors, at, container);
        }
        Sort::First { stays: false } => {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(field) {
                    errors.forbidden(
                        &at.field(field),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
        Sort::Ephemeral => {}
    }
}

/// An image must be named; a name that is framed by blanks is a mistake that nobody sees.
pub(super) fn image(errors: &mut FieldErrors, at: &Path<'_>, image: &str) {
    if image.is_empty() {
        errors.required(at, "");
    } else if image.trim() != image {
        errors.invalid(at, image, "must not have leading or trailing whitespace");
    }
}

fn restart_policy(errors: &mut FieldErrors, at: &Path<'_>, container: &Value, sort: Sort) {
    let (at, policy) = (at.field("restartPolicy"), container.text("restartPolicy"));
    if policy.is_empty() {
        return;
    }
    if sort == Sort::Ephemeral {
        errors.forbidden(&at, "cannot be set for an Ephemeral Container");
    } else {
        errors.one_of(&at, policy, &["Always", "Never", "OnFailure"]);
    }
}

fn ports(errors: &mut FieldErrors, list: &Path<'_>, ports: &[Value]) {
    let mut names = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        let at = list.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let name_at = at.field("name");
            let wrong = names::port_name(name);
            if wrong.is_empty() {
                names.note(errors, &name_at, name);
            } else {
                wrong.into_iter().for_each(|why| errors.invalid(&name_at, name, why));
            }
        }
        match port.count("containerPort") {
            0 => errors.required(&at.field("containerPort"), ""),
            number => errors.port(&at.field("containerPort"), number),
        }
        match port.count("hostPort") {
            0 => {}
            number => errors.port(&at.field("hostPort"), number),
        }
        errors.one_of_required(&at.field("protocol"), port.text("protocol"), &["TCP", "UDP", "SCTP"]);
    }
}

/// Two containers cannot have the same port of the node.
#[derive(Default)]
struct HostPorts(Seen);

impl HostPorts {
    fn note(&mut self, errors: &mut FieldErrors, at: &Path<'_>, container: &Value) {
        let list = at.field("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let number = port.count("hostPort");
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            self.0.note(errors, &list.index(index).field("hostPort"), &key);
        }
    }
}
