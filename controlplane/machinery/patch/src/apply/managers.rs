//! The list `metadata.managedFields`: reading, writing, keeping it short.

use serde_json::{Map, Value};

use crate::field_set::FieldSet;

/// Update entries beyond this number are folded into [`ANCIENT`].
const MAX_UPDATES: usize = 10;
/// Longer lists are nobody's honest work.
const MAX_ENTRIES: usize = 1_000;
/// Manager of what old updaters owned.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// Who owns fields. An applier is the same whatever version it applies; an updater is one per version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) subresource: String,
    /// Empty for appliers.
    pub(crate) version: String,
}

impl Identity {
    pub(crate) fn new(manager: &str, operation: Operation, subresource: &str, api_version: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            operation,
            subresource: subresource.to_owned(),
            version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.to_owned(),
            },
        }
    }

    /// As conflicts name it: `"kubectl" with subresource "status" using apps/v1`.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.version));
        }
        text
    }
}

/// One entry of the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manager {
    pub(crate) identity: Identity,
    pub(crate) api_version: String,
    /// RFC 3339, seconds.
    pub(crate) time: Option<String>,
    pub(crate) fields: FieldSet,
}

/// All entries.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Managers(pub(crate) Vec<Manager>);

/// What an object says of its managers.
pub(crate) enum Said {
    /// Nothing, or nothing that can be read.
    Nothing,
    /// `[{}]`: forget all.
    Reset,
    /// A list.
    List(Managers),
}

impl Managers {
    /// Reads the object's list.
    pub(crate) fn said_by(object: &Value) -> Said {
        let Some(Value::Array(entries)) = object.get("metadata").and_then(|m| m.get("managedFields")) else {
            return Said::Nothing;
        };
        if let [Value::Object(only)] = entries.as_slice()
            && only.is_empty()
        {
            return Said::Reset;
        }
        if entries.len() > MAX_ENTRIES {
            return Said::Nothing;
        }
        match entries.iter().map(read).collect::<Option<Vec<_>>>() {
            Some(list) if !list.is_empty() => {
                let mut managers = Self::default();
                for manager in list {
                    managers.add(manager);
                }
                Said::List(managers)
            }
            _ => Said::Nothing,
        }
    }

    /// The list of an object, empty when it says nothing that can be read.
    pub(crate) fn of(object: &Value) -> Self {
        match Self::said_by(object) {
            Said::List(managers) => managers,
            Said::Nothing | Said::Reset => Self::default(),
        }
    }

    fn add(&mut self, manager: Manager) {
        match self.0.iter_mut().find(|m| m.identity == manager.identity) {
            // A list that names one manager twice means both.
            Some(known) => known.fields.union(&manager.fields),
            None => self.0.push(manager),
        }
    }

    pub(crate) fn get(&self, identity: &Identity) -> Option<&Manager> {
        self.0.iter().find(|m| m.identity == *identity)
    }

    /// Replaces or adds an entry.
    pub(crate) fn set(&mut self, manager: Manager) {
        match self.0.iter_mut().find(|m| m.identity == manager.identity) {
            Some(known) => *known = manager,
            None => self.0.push(manager),
        }
    }

    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|m| !m.fields.is_empty());
    }

    /// Folds the oldest updaters of each version into one entry until few enough are left.
    pub(crate) fn cap(&mut self) {
        let is_update = |m: &Manager| m.identity.operation == Operation::Update;
        let mut updates = self.0.iter().filter(|m| is_update(m)).count();
        if updates <= MAX_UPDATES {
            return;
        }
        let mut oldest: Vec<Identity> = {
            let mut sorted: Vec<&Manager> = self.0.iter().filter(|m| is_update(m)).collect();
            sorted.sort_by(|a, b| {
                a.time
                    .cmp(&b.time)
                    .then_with(|| a.identity.manager.cmp(&b.identity.manager))
            });
            sorted.iter().map(|m| m.identity.clone()).collect()
        };
        oldest.retain(|identity| identity.manager != ANCIENT);
        for identity in oldest {
            if updates <= MAX_UPDATES {
                return;
            }
            let Some(at) = self.0.iter().position(|m| m.identity == identity) else {
                continue;
            };
            let old = self.0.remove(at);
            let bucket = Identity::new(ANCIENT, Operation::Update, "", &old.api_version);
            match self.0.iter_mut().find(|m| m.identity == bucket) {
                Some(known) => {
                    known.fields.union(&old.fields);
                    known.time = known.time.take().max(old.time);
                    updates -= 1;
                }
                None => self.0.push(Manager {
                    identity: bucket,
                    ..old
                }),
            }
        }
    }

    /// Writes the list into the object, in upstream's order: appliers first, then by time and name.
    pub(crate) fn write(mut self, object: &mut Value) {
        let Value::Object(object) = object else { return };
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(metadata) = metadata else { return };
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        self.0.sort_by(|a, b| {
            let key = |m: &Manager| {
                (
                    m.identity.operation,
                    m.time.clone(),
                    m.identity.manager.clone(),
                    m.api_version.clone(),
                    m.identity.subresource.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        metadata.insert(
            "managedFields".to_owned(),
            Value::Array(self.0.iter().map(written).collect()),
        );
    }
}

fn read(entry: &Value) -> Option<Manager> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    if !matches!(text("fieldsType"), "FieldsV1") {
        return None;
    }
    let fields = match entry.get("fieldsV1") {
        Some(fields) => FieldSet::from_fields_v1(fields).ok()?,
        None => FieldSet::default(),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return None;
    }
    Some(Manager {
        identity: Identity::new(text("manager"), operation, text("subresource"), api_version),
        api_version: api_version.to_owned(),
        time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
        fields,
    })
}

fn written(manager: &Manager) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| {
        entry.insert(key.to_owned(), value);
    };
    put("manager", Value::from(manager.identity.manager.as_str()));
    put(
        "operation",
        Value::from(match manager.identity.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }),
    );
    put("apiVersion", Value::from(manager.api_version.as_str()));
    if let Some(time) = &manager.time {
        put("time", Value::from(time.as_str()));
    }
    put("fieldsType", Value::from("FieldsV1"));
    put("fieldsV1", manager.fields.to_fields_v1());
    if !manager.identity.subresource.is_empty() {
        put("subresource", Value::from(manager.identity.subresource.as_str()));
    }
    Value::Object(entry)
}
