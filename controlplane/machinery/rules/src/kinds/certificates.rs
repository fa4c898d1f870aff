//! Certificate requests.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use minato_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::check::{Path, Report as _, SPEC, STATUS, Seen, same};
use crate::resource::{Column, Strategy};
use crate::show::{self, AGE, Col, NAME};
use crate::tree::{Tree as _, texts};

const LEAST_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "signing",
    "digital signature",
    "content commitment",
    "key encipherment",
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    "server auth",
    "client auth",
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
];

/// A wish for a certificate.
#[derive(Default)]
pub(super) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::default();
        spec(&mut errors, object.sub("spec"));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> FieldErrors {
        decisions(object, old)
    }

    fn validate_status_update(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = decisions(object, old);
        let (new, before) = (object.at("status.certificate"), old.at("status.certificate"));
        if !before.is_blank() && !same(new, before) {
            errors.forbidden(
                &STATUS.field("certificate"),
                "updates may not modify existing certificate content",
            );
        }
        let (had, has) = (decision(old), decision(object));
        if had != has {
            errors.forbidden(
                &STATUS.field("conditions"),
                "updates may not add a condition of type \"Approved\" or \"Denied\"",
            );
        }
        errors
    }

    fn validate_subresource_update(&self, _: &str, object: &Value, old: &Value) -> FieldErrors {
        decisions(object, old)
    }

    fn field_labels(&self) -> &[&str] {
        &["spec.signerName"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        object.sub("spec").text("signerName").to_owned()
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            AGE,
            Col::text("SignerName", "Who is asked to sign."),
            Col::text("Requestor", "Who asks."),
            Col::text("RequestedDuration", "How long the certificate is wanted for."),
            Col::text("Condition", "What became of the request."),
        ])
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let spec = object.sub("spec");
        let seconds = spec.int("expirationSeconds").map(show::human_duration);
        vec![
            show::name(object),
            show::age(object, now),
            show::or_none(spec.text("signerName")),
            json!(spec.text("username")),
            show::or_none(&seconds.unwrap_or_default()),
            json!(condition(object.sub("status"))),
        ]
    }
}

fn decision(object: &Value) -> [bool; 2] {
    let conditions = object.at("status.conditions").as_list();
    ["Approved", "Denied"].map(|kind| conditions.iter().any(|c| c.text("type") == kind))
}

fn condition(status: &Value) -> String {
    let has = |kind: &str| status.list("conditions").iter().any(|c| c.text("type") == kind);
    let decided = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let mut all = vec![decided];
    if has("Failed") {
        all.push("Failed");
    }
    if !status.sub("certificate").is_blank() {
        all.push("Issued");
    }
    all.join(",")
}

fn spec(errors: &mut FieldErrors, spec: &Value) {
    let at = &SPEC;
    let (request_at, request) = (at.field("request"), spec.text("request"));
    if request.is_empty() {
        errors.required(&request_at, "");
    } else if !is_request(request) {
        errors.invalid(&request_at, request, "PEM block type must be CERTIFICATE REQUEST");
    }
    let (list, usages) = (at.field("usages"), texts(spec.list("usages")));
    if usages.is_empty() {
        errors.required(&list, "");
    }
    let mut seen = Seen::default();
    for (index, usage) in usages.iter().enumerate() {
        let at = list.index(index);
        errors.one_of(&at, usage, &USAGES);
        seen.note(errors, &at, usage);
    }
    let name_at = at.field("signerName");
    signer(errors, &name_at, spec.text("signerName"));
    if let Some(seconds) = spec.int("expirationSeconds").filter(|s| *s < LEAST_SECONDS) {
        errors.invalid(
            &at.field("expirationSeconds"),
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
}

/// Whether it is a PKCS #10 request in PEM, in base64; what is in it is looked at by those who sign.
fn is_request(text: &str) -> bool {
    let text = STANDARD
        .decode(text)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    text.is_some_and(|text| {
        text.contains("-----BEGIN CERTIFICATE REQUEST-----") && text.contains("-----END CERTIFICATE REQUEST-----")
    })
}

/// `example.com/name`.
fn signer(errors: &mut FieldErrors, at: &Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    match name.split_once('/') {
        Some((domain, path)) if !path.is_empty() && !path.contains('/') => {
            errors.named(at, domain, names::dns1123_subdomain);
            for part in path.split('.') {
                if !names::dns1123_label(part).is_empty() {
                    errors.invalid(at, name, "path must be a valid DNS label");
                }
            }
        }
        _ => errors.invalid(
            at,
            name,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
    }
}

/// What was decided stays, and no request is both approved and denied.
fn decisions(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let list = STATUS.field("conditions");
    let conditions = object.at("status.conditions").as_list();
    let mut seen = Seen::default();
    for (index, condition) in conditions.iter().enumerate() {
        let (at, kind) = (list.index(index), condition.text("type"));
        if kind.is_empty() {
            errors.required(&at.field("type"), "");
        }
        seen.note(&mut errors, &at.field("type"), kind);
        let (status_at, status) = (at.field("status"), condition.text("status"));
        match kind {
            "Approved" | "Denied" | "Failed" => errors.one_of_required(&status_at, status, &["True"]),
            _ => errors.one_of_required(&status_at, status, &["False", "True", "Unknown"]),
        }
    }
    if decision(object) == [true, true] {
        let value = object.at("status.conditions").clone();
        errors.invalid(&list, value, "Approved and Denied conditions are mutually exclusive");
    }
    for (kind, (had, has)) in ["Approved", "Denied"]
        .iter()
        .zip(decision(old).into_iter().zip(decision(object)))
    {
        if had && !has {
            errors.forbidden(&list, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Value {
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n";
        json!({"metadata": {"name": "c"}, "spec": {"request": STANDARD.encode(pem), "usages": ["client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client", "username": "ann", "expirationSeconds": 3600}})
    }

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn requests() {
        let object = request();
        assert!(CertificateSigningRequest.validate(&object).is_empty());
        for (field, value, expected) in [
            ("usages", json!([]), "spec.usages: Required value"),
            (
                "expirationSeconds",
                json!(599),
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
            ),
            (
                "signerName",
                json!("me"),
                "spec.signerName: Invalid value: \"me\": must be a fully qualified domain and path of the form \
                 'example.com/signer-name'",
            ),
        ] {
            let mut wrong = object.clone();
            wrong["spec"][field] = value;
            assert_eq!(texts(&CertificateSigningRequest.validate(&wrong)), [expected]);
        }
    }

    #[test]
    fn decisions_stay() {
        let old = request();
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let mut approved = old.clone();
        approved["status"] = json!({"conditions": [condition("Approved")]});
        let approve = CertificateSigningRequest.validate_subresource_update("approval", &approved, &old);
        assert!(approve.is_empty());
        assert_eq!(
            CertificateSigningRequest
                .validate_status_update(&approved, &old)
                .0
                .len(),
            1
        );
        assert_eq!(
            texts(&CertificateSigningRequest.validate_status_update(&old, &approved))[0],
            "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""
        );
        let mut both = approved.clone();
        both["status"]["conditions"] = json!([condition("Approved"), condition("Denied")]);
        assert_eq!(decisions(&both, &approved).0.len(), 1);
        let cells = |object: &Value| CertificateSigningRequest.cells(object, Timestamp::UNIX_EPOCH)[2..].to_vec();
        assert_eq!(
            cells(&old),
            ["kubernetes.io/kube-apiserver-client", "ann", "60m", "Pending"].map(Value::from)
        );
        approved["status"]["certificate"] = json!("eA==");
        assert_eq!(cells(&approved)[3], "Approved,Issued");
    }
}
