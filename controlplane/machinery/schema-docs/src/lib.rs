//! Descriptions of kinds and fields, for API documents and `kubectl explain`.
//!
//! They are taken from the doc comments of `k8s-openapi` when this crate is built, kept compressed (about a quarter of a
//! megabyte, in the read-only part of the binary) and unpacked one package at a time, so that they cost no memory
//! between documents. May depend on: flate2. Pure.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::DeflateDecoder;

include!(concat!(env!("OUT_DIR"), "/packages.rs"));

const UNIT: char = '\u{1f}';
const RECORD: char = '\u{1e}';
/// No package is larger; the blobs are our own, the limit only guards against a broken build.
const MAX_BYTES: u64 = 16 << 20;

/// All descriptions of one package, such as `io.k8s.api.core.v1`. Load one per document and drop it afterwards.
#[derive(Debug, Default)]
pub struct Package {
    definitions: HashMap<String, Definition>,
}

#[derive(Debug)]
struct Definition {
    description: String,
    fields: HashMap<String, String>,
}

impl Package {
    /// Unpacks the package that holds a definition such as `io.k8s.api.core.v1.Pod`. `None` when there is none.
    pub fn of(definition: &str) -> Option<Self> {
        let (package, _) = short(definition).rsplit_once('.')?;
        let at = PACKAGES.binary_search_by(|(name, _)| (*name).cmp(package)).ok()?;
        let mut text = String::new();
        DeflateDecoder::new(PACKAGES[at].1)
            .take(MAX_BYTES)
            .read_to_string(&mut text)
            .ok()?;
        let definitions = text.split(RECORD).filter_map(|record| {
            let mut parts = record.split(UNIT);
            let (name, description) = (parts.next()?, parts.next()?);
            let mut fields = HashMap::new();
            while let (Some(field), Some(text)) = (parts.next(), parts.next()) {
                fields.insert(field.to_owned(), text.to_owned());
            }
            let definition = Definition {
                description: description.to_owned(),
                fields,
            };
            Some((name.to_owned(), definition))
        });
        Some(Self {
            definitions: definitions.collect(),
        })
    }

    /// The description of a definition of this package.
    pub fn definition(&self, definition: &str) -> Option<&str> {
        self.definitions
            .get(short(definition))
            .map(|d| d.description.as_str())
            .filter(|text| !text.is_empty())
    }

    /// The description of a field, by its JSON name, of a definition of this package.
    pub fn field(&self, definition: &str, field: &str) -> Option<&str> {
        self.definitions
            .get(short(definition))?
            .fields
            .get(field)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    }
}

fn short(definition: &str) -> &str {
    definition.strip_prefix("io.k8s.").unwrap_or(definition)
}

/// One description: of the definition itself when `field` is empty. Unpacks the whole package; for more than one use
/// [`Package`].
pub fn description(definition: &str, field: &str) -> Option<String> {
    let package = Package::of(definition)?;
    let text = if field.is_empty() {
        package.definition(definition)
    } else {
        package.field(definition, field)
    };
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_fields_are_described() {
        let pod = description("io.k8s.api.core.v1.Pod", "").unwrap();
        assert!(pod.starts_with("Pod is a collection of containers"), "{pod}");
        let replicas = description("io.k8s.api.apps.v1.DeploymentSpec", "replicas").unwrap();
        assert!(replicas.starts_with("Number of desired pods"), "{replicas}");
        for (definition, field) in [
            ("io.k8s.api.core.v1.ServiceSpec", "type"),
            ("io.k8s.api.core.v1.ServiceSpec", "clusterIP"),
            ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences"),
            (
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
                "x-kubernetes-list-type",
            ),
            ("io.k8s.api.core.v1.Container", "volumeMounts"),
        ] {
            assert!(description(definition, field).is_some(), "{definition} {field}");
        }
        assert_eq!(description("io.k8s.api.core.v1.Pod", "nope"), None);
        assert_eq!(description("io.k8s.nope.v1.Pod", ""), None);
    }

    #[test]
    fn nearly_every_field_is_described() {
        let core = Package::of("io.k8s.api.core.v1.Pod").unwrap();
        let fields: usize = core.definitions.values().map(|d| d.fields.len()).sum();
        assert!(core.definitions.len() > 200, "{}", core.definitions.len());
        assert!(fields > 900, "{fields}");
    }

    #[test]
    fn the_blobs_are_small() {
        let bytes: usize = PACKAGES.iter().map(|(_, blob)| blob.len()).sum();
        assert!(bytes < 400 << 10, "{bytes}");
    }
}
