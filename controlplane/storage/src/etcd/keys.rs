//! Keys of one cluster in an etcd that others use too.
//!
//! Below the cluster's prefix: `data` and then the store's own key, and `mark`, which is written to find out how far a watch
//! has come. A role for the cluster covers the range of the prefix with a slash.

use bytes::Bytes;
use etcd_client::{Event as EtcdEvent, EventType, KeyValue as EtcdPair};
use minato_meta::Revision;

use super::fault::revision_of;
use crate::store::{Event, EventKind, KeyValue};

/// Translates between a cluster's keys and etcd's.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    root: String,
    data: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let root = format!("{}/", prefix.trim_end_matches('/'));
        let data = format!("{root}data");
        Self { root, data }
    }

    /// Start and end of everything that is the cluster's.
    pub(super) fn everything(&self) -> (Vec<u8>, Vec<u8>) {
        (self.root.clone().into(), end_of(self.root.as_bytes()))
    }

    pub(super) fn mark(&self) -> String {
        format!("{}mark", self.root)
    }

    pub(super) fn outer(&self, key: &str) -> String {
        format!("{}{key}", self.data)
    }

    fn inner(&self, key: &[u8]) -> Option<String> {
        let key = key.strip_prefix(self.data.as_bytes())?;
        std::str::from_utf8(key).ok().map(str::to_owned)
    }

    /// Start and end of the keys with a prefix that come after one of them.
    pub(super) fn range(&self, prefix: &str, after: Option<&str>) -> (Vec<u8>, Vec<u8>) {
        let outer = self.outer(prefix).into_bytes();
        let end = end_of(&outer);
        let start = match after {
            // The least key that is greater.
            Some(after) if after >= prefix => [self.outer(after).as_bytes(), b"\0"].concat(),
            _ => outer,
        };
        (start, end)
    }

    /// A pair of ours.
    pub(super) fn pair(&self, kv: &EtcdPair) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.inner(kv.key())?,
            value: Bytes::copy_from_slice(kv.value()),
            create_revision: revision_of(kv.create_revision()),
            mod_revision: revision_of(kv.mod_revision()),
        })
    }

    /// An event of one of our keys; `None` for the mark.
    pub(super) fn event(&self, event: &EtcdEvent) -> Option<Event> {
        let kv = event.kv()?;
        let pair = self.pair(kv)?;
        let kind = match event.event_type() {
            EventType::Delete => EventKind::Deleted,
            EventType::Put if kv.version() == 1 => EventKind::Created,
            EventType::Put => EventKind::Updated,
        };
        Some(Event {
            kind,
            kv: pair,
            previous: event.prev_kv().and_then(|kv| self.pair(kv)),
        })
    }
}

/// The least key greater than all with this prefix; etcd reads a single zero byte as "no end".
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Revision of an event, whichever key it is of.
pub(super) fn revision_of_event(event: &EtcdEvent) -> Option<Revision> {
    event.kv().map(|kv| revision_of(kv.mod_revision()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_one_range_of_its_own() {
        let keys = Keys::new("/minato/a");
        assert_eq!(keys.everything(), (b"/minato/a/".to_vec(), b"/minato/a0".to_vec()));
        assert_eq!(keys.mark(), "/minato/a/mark");
        assert_eq!(keys.outer("/registry/pods/x"), "/minato/a/data/registry/pods/x");
        assert_eq!(
            keys.inner(b"/minato/a/data/registry/pods/x").as_deref(),
            Some("/registry/pods/x")
        );
        assert_eq!(keys.inner(b"/minato/a/mark"), None);
        assert_eq!(keys.inner(b"/minato/ab/data/registry/pods/x"), None);
        assert_eq!(Keys::new("/minato/a/").mark(), keys.mark());
    }

    #[test]
    fn ranges_begin_after_a_key_and_end_after_the_prefix() {
        let keys = Keys::new("p");
        assert_eq!(keys.range("/a/", None), (b"p/data/a/".to_vec(), b"p/data/a0".to_vec()));
        assert_eq!(
            keys.range("/a/", Some("/a/b")),
            (b"p/data/a/b\0".to_vec(), b"p/data/a0".to_vec())
        );
        assert_eq!(keys.range("/b/", Some("/a/z")), keys.range("/b/", None));
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff\xff"), b"\0");
    }
}
