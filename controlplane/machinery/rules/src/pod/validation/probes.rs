//! Probes and lifecycle handlers.

use minato_meta::FieldErrors;
use serde_json::Value;

use crate::check::{Path, Report as _, port_number_or_name};
use crate::tree::Tree as _;

/// Checks the three probes of a container.
pub(super) fn all(errors: &mut FieldErrors, at: &Path<'_>, container: &Value) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (at, probe) = (at.field(name), container.sub(name));
        if probe.is_null() {
            continue;
        }
        self::probe(errors, &at, probe);
        if name == "readinessProbe" {
            if probe.has("terminationGracePeriodSeconds") {
                errors.invalid(
                    &at.field("terminationGracePeriodSeconds"),
                    probe.sub("terminationGracePeriodSeconds").clone(),
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.count("successThreshold") != 1 {
            errors.invalid(
                &at.field("successThreshold"),
                probe.count("successThreshold"),
                "must be 1",
            );
        }
    }
}

fn probe(errors: &mut FieldErrors, at: &Path<'_>, probe: &Value) {
    handler(errors, at, probe, &["exec", "httpGet", "tcpSocket", "grpc"]);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.not_negative(&at.field(field), probe.int(field));
    }
    if let Some(grace) = probe.int("terminationGracePeriodSeconds").filter(|g| *g <= 0) {
        errors.invalid(
            &at.field("terminationGracePeriodSeconds"),
            grace,
            "must be greater than 0",
        );
    }
}

/// Checks `postStart` and `preStop`.
pub(super) fn lifecycle(errors: &mut FieldErrors, at: &Path<'_>, lifecycle: &Value) {
    for name in ["postStart", "preStop"] {
        if lifecycle.has(name) {
            let (at, value) = (at.field(name), lifecycle.sub(name));
            handler(errors, &at, value, &["exec", "httpGet", "tcpSocket", "sleep"]);
        }
    }
}

fn handler(errors: &mut FieldErrors, at: &Path<'_>, value: &Value, kinds: &[&str]) {
    let mut count = 0;
    for kind in kinds {
        if !value.has(kind) {
            continue;
        }
        count += 1;
        let (at, action) = (at.field(kind), value.sub(kind));
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" if action.list("command").is_empty() => errors.required(&at.field("command"), ""),
            "httpGet" => http_get(errors, &at, action),
            "tcpSocket" => port_number_or_name(errors, &at.field("port"), action.sub("port")),
            "grpc" => errors.port(&at.field("port"), action.count("port")),
            "sleep" => errors.not_negative(&at.field("seconds"), action.int("seconds")),
            _ => {}
        }
    }
    if count == 0 {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(errors: &mut FieldErrors, at: &Path<'_>, action: &Value) {
    if action.text("path").is_empty() {
        errors.required(&at.field("path"), "");
    }
    port_number_or_name(errors, &at.field("port"), action.sub("port"));
    errors.one_of(&at.field("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
    let headers = at.field("httpHeaders");
    for header in action.list("httpHeaders") {
        let name = header.text("name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            errors.invalid(
                &headers,
                name,
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used \
                 for validation is '[-A-Za-z0-9]+')",
            );
        }
    }
}
