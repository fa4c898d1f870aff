//! One object as the cache keeps it: its bytes, made once, and what readers have derived from them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use minato_meta::Revision;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::object;
use crate::store::KeyValue;

/// A derived encoding, by a number that its user chooses.
pub(super) type Forms = Mutex<Vec<(u64, Bytes)>>;

/// The form of this number, made at the first call.
pub(super) fn form<E>(forms: &Forms, number: u64, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
    // Made under the lock: others who want it too wait for it instead of making it again.
    let mut forms = forms.lock();
    if let Some((_, bytes)) = forms.iter().find(|(n, _)| *n == number) {
        return Ok(bytes.clone());
    }
    let bytes = make()?;
    forms.push((number, bytes.clone()));
    Ok(bytes)
}

/// One state of one object; shared by reference, never changed.
#[derive(Debug)]
pub struct Entry {
    key: Arc<str>,
    revision: Revision,
    json: Bytes,
    labels: OnceLock<BTreeMap<Box<str>, Box<str>>>,
    fields: OnceLock<(u64, Box<[String]>)>,
    forms: Forms,
}

#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    metadata: Labels,
}

#[derive(Deserialize, Default)]
struct Labels {
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
}

impl Entry {
    /// From canonical JSON with the revision in it; the key is relative to the resource.
    pub(super) fn new(key: Arc<str>, revision: Revision, json: Bytes) -> Self {
        Self {
            key,
            revision,
            json,
            labels: OnceLock::new(),
            fields: OnceLock::new(),
            forms: Mutex::default(),
        }
    }

    /// From what the store has below `prefix`; `None` for a key of something else.
    pub(super) fn from_store(prefix: &str, kv: &KeyValue) -> Option<Arc<Self>> {
        let key = kv.key.strip_prefix(prefix)?;
        let json = object::with_revision(&kv.value, kv.mod_revision);
        Some(Arc::new(Self::new(key.into(), kv.mod_revision, json)))
    }

    /// The last state of a deleted object, or of one that has left a selection: the object as it was, with the revision
    /// of its end.
    pub(super) fn ended(&self, revision: Revision) -> Arc<Self> {
        let json = self.json_at(revision);
        Arc::new(Self::new(self.key.clone(), revision, json))
    }

    /// The object's JSON with another revision.
    pub fn json_at(&self, revision: Revision) -> Bytes {
        object::at_revision(&self.json, revision)
    }

    /// Key below the resource's prefix: `namespace/name`, or `name`.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Revision of the write that made this state.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Canonical JSON of the stored version, with `metadata.resourceVersion`.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// Value of a label. The labels are read from the JSON once.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = self.labels.get_or_init(|| {
            let labelled: Result<Labelled, _> = serde_json::from_slice(&self.json);
            labelled.ok().and_then(|l| l.metadata.labels).unwrap_or_default()
        });
        labels.get(key).map(|value| &**value)
    }

    /// Values that a reader selects by, computed once for the reader's `view`; other views of the same object are
    /// computed each time.
    pub fn fields(&self, view: u64, compute: impl Fn() -> Box<[String]>) -> Cow<'_, [String]> {
        let (kept, values) = self.fields.get_or_init(|| (view, compute()));
        if *kept == view {
            Cow::Borrowed(values)
        } else {
            Cow::Owned(compute().into_vec())
        }
    }

    /// The object in another encoding, made once. Numbers are the caller's to choose and must name one encoding each.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn form<E>(&self, number: u64, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        form(&self.forms, number, make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, json: &'static str) -> Entry {
        Entry::new(key.into(), Revision(3), Bytes::from_static(json.as_bytes()))
    }

    #[test]
    fn keys_and_labels_are_read() {
        let pod = entry(
            "ns/p",
            r#"{"metadata":{"labels":{"a":"b\"c"},"name":"p"},"spec":{"labels":{"a":"x"}}}"#,
        );
        assert_eq!((pod.namespace(), pod.name()), ("ns", "p"));
        assert_eq!((pod.label("a"), pod.label("b")), (Some("b\"c"), None));
        let node = entry("n", r#"{"metadata":{"labels":null}}"#);
        assert_eq!((node.namespace(), node.name(), node.label("a")), ("", "n", None));
        assert_eq!(entry("n", "{}").label("a"), None);
    }

    #[test]
    fn derived_things_are_made_once_for_each_kind_of_reader() {
        let pod = entry("ns/p", "{}");
        let made = std::cell::Cell::new(0);
        let make = |text: &'static str| {
            made.set(made.get() + 1);
            Ok::<_, ()>(Bytes::from_static(text.as_bytes()))
        };
        for _ in 0..3 {
            assert_eq!(pod.form(1, || make("one")).unwrap(), "one");
            assert_eq!(pod.form(2, || make("two")).unwrap(), "two");
        }
        assert_eq!(made.get(), 2);
        assert_eq!(pod.form(3, || Err("no")), Err("no"));
        let fields = |text: &str| {
            let text = text.to_owned();
            move || -> Box<[String]> { Box::new([text.clone()]) }
        };
        assert_eq!(*pod.fields(1, fields("one")), ["one".to_owned()]);
        assert_eq!(*pod.fields(1, fields("other")), ["one".to_owned()]);
        assert_eq!(*pod.fields(2, fields("two")), ["two".to_owned()]);
    }
}
