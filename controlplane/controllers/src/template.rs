//! Pod templates: equality and short hashes.

use minato_api::k8s::core::v1::PodTemplateSpec;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::names::POD_TEMPLATE_HASH;

/// Letters without vowels and look-alikes, so that no hash spells a word.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Ten letters that depend on the value and on how often such a hash collided.
pub(crate) fn hash<T: Serialize>(value: &T, collisions: i32) -> serde_json::Result<String> {
    let mut digest = Sha256::new();
    digest.update(serde_json::to_vec(value)?);
    digest.update(collisions.to_be_bytes());
    let bytes = digest.finalize();
    Ok(bytes
        .iter()
        .take(10)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect())
}

/// Whether two templates make the same pods. The hash label that a ReplicaSet's template carries is left out.
pub(crate) fn same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let bare = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        let meta = template.metadata.get_or_insert_default();
        if let Some(labels) = &mut meta.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.annotations = meta.annotations.take().filter(|annotations| !annotations.is_empty());
        meta.creation_timestamp = None;
        template
    };
    bare(a) == bare(b)
}

#[cfg(test)]
mod tests {
    use minato_api::meta_v1::ObjectMeta;

    use super::*;

    fn template(labels: &[(&str, &str)]) -> PodTemplateSpec {
        PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
                ..ObjectMeta::default()
            }),
            spec: None,
        }
    }

    #[test]
    fn the_hash_label_does_not_count_and_others_do() {
        assert!(same(
            &template(&[("app", "a")]),
            &template(&[("app", "a"), (POD_TEMPLATE_HASH, "x")])
        ));
        assert!(same(
            &PodTemplateSpec::default(),
            &template(&[(POD_TEMPLATE_HASH, "x")])
        ));
        assert!(!same(&template(&[("app", "a")]), &template(&[("app", "b")])));
    }

    #[test]
    fn hashes_depend_on_value_and_collisions() {
        let one = hash(&template(&[("app", "a")]), 0).unwrap();
        assert_eq!(one.len(), 10);
        assert_eq!(one, hash(&template(&[("app", "a")]), 0).unwrap());
        assert_ne!(one, hash(&template(&[("app", "a")]), 1).unwrap());
        assert_ne!(one, hash(&template(&[("app", "b")]), 0).unwrap());
    }
}
