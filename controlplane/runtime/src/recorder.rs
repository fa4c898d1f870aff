//! Events, as `kubectl describe` shows them. Sending is best effort and never holds a controller up: a full queue drops
//! events. Repetitions become a count on one object, and a source that repeats too much is silenced.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use minato_api::k8s::core::v1::{Event, EventSource, ObjectReference};
use minato_api::kube::api::{Patch, PatchParams, PostParams};
use minato_api::kube::{Api, Client, Resource};
use minato_api::meta_v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Tasks;
use crate::limiter::Bucket;

/// Events waiting to be sent; more are dropped.
const QUEUE: usize = 1024;
/// Remembered events and sources; when full, all are forgotten, which costs a few duplicates.
const MEMORY: usize = 4096;
/// Per object: this many at once, then one in five minutes.
const SPAM: (f64, f64) = (1.0 / 300.0, 25.0);
/// This many events that differ in their message alone, within ten minutes, are combined.
const SIMILAR: (u32, i64) = (10, 600);

/// `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

struct Item {
    component: &'static str,
    host: Option<Arc<str>>,
    object: ObjectReference,
    kind: EventKind,
    reason: String,
    message: String,
    at: Timestamp,
}

/// The sending side, one per process and cluster.
#[derive(Clone)]
pub struct RecorderHub {
    queue: mpsc::Sender<Item>,
    dropped: Arc<AtomicU64>,
}

impl RecorderHub {
    /// Starts the sending task.
    pub fn start(client: Client, tasks: &Tasks) -> Self {
        let (queue, items) = mpsc::channel(QUEUE);
        tasks.spawn("events", send(client, items));
        Self {
            queue,
            dropped: Arc::default(),
        }
    }

    /// A recorder that sends as `component`.
    pub fn recorder(&self, component: &'static str) -> Recorder {
        Recorder {
            component,
            host: None,
            hub: self.clone(),
        }
    }

    /// Events dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Records events of one component.
#[derive(Clone)]
pub struct Recorder {
    component: &'static str,
    host: Option<Arc<str>>,
    hub: RecorderHub,
}

impl Recorder {
    /// The same of a component that runs on the node of that name.
    #[must_use]
    pub fn on_host(mut self, host: &str) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Records that `reason` befell `object`.
    pub fn event<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        kind: EventKind,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event_for(object.object_ref(&()), kind, reason, message);
    }

    /// [`Recorder::event`] for an object that is known by reference alone.
    pub fn event_for(&self, object: ObjectReference, kind: EventKind, reason: &str, message: impl Into<String>) {
        let item = Item {
            component: self.component,
            host: self.host.clone(),
            object,
            kind,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        if self.hub.queue.try_send(item).is_err() {
            self.hub.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

type SimilarKey = (&'static str, String, EventKind, String);

#[derive(Default)]
struct Correlator {
    /// Name and count of the event object for an exact repetition.
    exact: HashMap<(SimilarKey, String), (String, i32)>,
    /// Distinct messages of similar events, and when the first came.
    similar: HashMap<SimilarKey, (u32, Timestamp)>,
    spam: HashMap<(&'static str, String), Bucket>,
}

enum Verdict {
    Drop,
    Create { message: String },
    Repeat { message: String, name: String, count: i32 },
}

impl Correlator {
    fn judge(&mut self, item: &Item) -> Verdict {
        if self.exact.len() >= MEMORY || self.similar.len() >= MEMORY || self.spam.len() >= MEMORY {
            *self = Self::default();
        }
        let object = object_id(&item.object);
        let bucket = self
            .spam
            .entry((item.component, object.clone()))
            .or_insert_with(|| Bucket::new(SPAM.0, SPAM.1));
        if !bucket.try_take() {
            return Verdict::Drop;
        }
        let similar: SimilarKey = (item.component, object, item.kind, item.reason.clone());
        let mut message = item.message.clone();
        if let Some((name, count)) = self.exact.get_mut(&(similar.clone(), message.clone())) {
            *count = count.saturating_add(1);
            return Verdict::Repeat {
                message,
                name: name.clone(),
                count: *count,
            };
        }
        let (seen, since) = self.similar.entry(similar.clone()).or_insert((0, item.at));
        if item.at.as_second() - since.as_second() > SIMILAR.1 {
            (*seen, *since) = (0, item.at);
        }
        *seen += 1;
        if *seen > SIMILAR.0 {
            // One object for them all: its message changes, its key does not.
            message = format!("(combined from similar events): {message}");
            if let Some((name, count)) = self.exact.get_mut(&(similar, String::new())) {
                *count = count.saturating_add(1);
                return Verdict::Repeat {
                    message,
                    name: name.clone(),
                    count: *count,
                };
            }
        }
        Verdict::Create { message }
    }

    fn created(&mut self, item: &Item, combined: bool, name: String) {
        let similar = (item.component, object_id(&item.object), item.kind, item.reason.clone());
        let message = if combined { String::new() } else { item.message.clone() };
        self.exact.insert((similar, message), (name, 1));
    }

    fn forget(&mut self, name: &str) {
        self.exact.retain(|_, (known, _)| known != name);
    }
}

fn object_id(object: &ObjectReference) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    [&object.kind, &object.namespace, &object.name, &object.uid]
        .map(part)
        .join("/")
}

async fn send(client: Client, mut items: mpsc::Receiver<Item>) {
    let mut correlator = Correlator::default();
    while let Some(item) = items.recv().await {
        if let Err(error) = send_one(&client, &mut correlator, &item).await {
            tracing::debug!(reason = item.reason, %error, "an event was not recorded");
        }
    }
}

async fn send_one(client: &Client, correlator: &mut Correlator, item: &Item) -> Result<(), minato_api::kube::Error> {
    let namespace = item.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let message = match correlator.judge(item) {
        Verdict::Drop => return Ok(()),
        Verdict::Create { message } => message,
        Verdict::Repeat { message, name, count } => {
            let patch = json!({"count": count, "lastTimestamp": Time(item.at), "message": message});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return Ok(()),
                // It expired meanwhile.
                Err(minato_api::kube::Error::Api(status)) if status.code == 404 => correlator.forget(&name),
                Err(error) => return Err(error),
            }
            message
        }
    };
    let combined = message != item.message;
    let name = event_name(&item.object, item.at);
    api.create(&PostParams::default(), &event(item, &namespace, &name, message))
        .await?;
    correlator.created(item, combined, name);
    Ok(())
}

fn event_name(object: &ObjectReference, at: Timestamp) -> String {
    let mut base = object.name.clone().unwrap_or_default();
    base.truncate(200);
    format!("{base}.{:x}{:04x}", at.as_nanosecond(), rand::random::<u16>())
}

fn event(item: &Item, namespace: &str, name: &str, mut message: String) -> Event {
    if message.len() > 1024 {
        let end = (0..=1020).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    let source = EventSource {
        component: Some(item.component.to_owned()),
        host: item.host.as_deref().map(str::to_owned),
    };
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: None::<BTreeMap<String, String>>,
            ..ObjectMeta::default()
        },
        involved_object: item.object.clone(),
        reason: Some(item.reason.clone()),
        message: Some(message),
        source: Some(source),
        first_timestamp: Some(Time(item.at)),
        last_timestamp: Some(Time(item.at)),
        count: Some(1),
        type_: Some(item.kind.as_str().to_owned()),
        reporting_component: Some(item.component.to_owned()),
        reporting_instance: Some(item.host.as_deref().unwrap_or_default().to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, message: &str) -> Item {
        Item {
            component: "test",
            host: None,
            object: ObjectReference {
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            kind: EventKind::Normal,
            reason: "Tested".to_owned(),
            message: message.to_owned(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn repetitions_count_and_similar_ones_combine() {
        let mut correlator = Correlator::default();
        let first = item("a", "same");
        assert!(matches!(correlator.judge(&first), Verdict::Create { .. }));
        correlator.created(&first, false, "a.1".to_owned());
        let Verdict::Repeat { name, count, .. } = correlator.judge(&first) else {
            panic!("not a repetition")
        };
        assert_eq!((name.as_str(), count), ("a.1", 2));

        for number in 0..9 {
            let similar = item("a", &format!("other {number}"));
            let Verdict::Create { message } = correlator.judge(&similar) else {
                panic!("not new")
            };
            assert_eq!(message, similar.message);
        }
        let eleventh = item("a", "yet another");
        let Verdict::Create { message } = correlator.judge(&eleventh) else {
            panic!("not new")
        };
        assert_eq!(message, "(combined from similar events): yet another");
    }

    #[tokio::test]
    async fn a_flood_about_one_object_is_cut_off_and_others_are_heard() {
        let mut correlator = Correlator::default();
        let flood = item("a", "same");
        let heard = (0..100)
            .filter(|_| !matches!(correlator.judge(&flood), Verdict::Drop))
            .count();
        assert_eq!(heard, 25);
        assert!(!matches!(correlator.judge(&item("b", "same")), Verdict::Drop));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let event = event(&item("a", ""), "default", "a.1", "é".repeat(1000));
        let message = event.message.unwrap();
        assert_eq!(message.len(), 1020 + 3);
    }
}
