//! How one request wants to see objects: in which version, in which form, and in which encoding.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use minato_codec::proto;
use minato_meta::{ApiError, Revision};
use minato_rules::ResourceInfo;
use minato_schema::SchemaRef;
use minato_storage::StoreError;
use minato_storage::cache::Entry;
use serde_json::{Value, json};

use super::output::{Form, Output};
use super::transaction::store_error;
use super::version;
use crate::list_body::ListBody;
use crate::negotiate::{self, Ask, Encoding};
use crate::request::ApiRequest;
use crate::server::ApiServer;

/// Annotation of the bookmark that ends the initial events of a streaming list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// See the module documentation.
pub(crate) struct View {
    resource: Arc<ResourceInfo>,
    schema: Option<SchemaRef>,
    /// How stored JSON begins that may be sent as it is, where versions of a kind come and go.
    head: Option<String>,
    encoding: Encoding,
    output: Output,
    /// Tables of a watch say their columns in the first frame alone.
    columns_due: AtomicBool,
    /// Names this way of seeing among the forms that objects and events keep.
    number: u64,
}

/// Metadata of a list.
pub(crate) struct ListHead {
    pub(crate) revision: Revision,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<u64>,
}

impl ListHead {
    fn to_value(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.token {
            metadata["continue"] = Value::from(token.as_str());
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = Value::from(remaining);
        }
        metadata
    }
}

impl View {
    /// The view of a request that asks for an object, a list or a watch.
    ///
    /// # Errors
    /// 406 when the kind has none of the forms and encodings that the client accepts, 400 for a wrong option of a form.
    pub(crate) fn new(
        server: &ApiServer,
        request: &ApiRequest,
        resource: &Arc<ResourceInfo>,
        ask: Ask,
    ) -> Result<Self, ApiError> {
        // Kinds with schemas of their own have no protobuf.
        let custom = server.registry.custom_schema(&resource.gvr).is_some();
        let schema = server.registry.schema(resource).filter(|_| !custom);
        let can = |(encoding, form): &(Encoding, Form)| {
            *encoding != Encoding::Protobuf || (schema.is_some() && *form == Form::Whole)
        };
        let accepted = negotiate::accepted_forms(request, ask)?;
        let (encoding, form) = accepted.into_iter().find(can).ok_or_else(negotiate::not_acceptable)?;
        let output = Output::new(form, request)?;
        let mut hasher = DefaultHasher::new();
        (&resource.gvr, encoding, output).hash(&mut hasher);
        Ok(Self {
            resource: resource.clone(),
            schema,
            head: custom.then(|| {
                let (kind, version) = (&resource.gvk.kind, resource.gvk.group_version());
                format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",")
            }),
            encoding,
            output,
            columns_due: AtomicBool::new(true),
            number: hasher.finish(),
        })
    }

    /// Whether what is sent depends on when it is sent, so that it cannot be kept.
    pub(crate) fn tells_time(&self) -> bool {
        self.output.tells_time()
    }

    /// Media type of objects and lists.
    pub(crate) fn media_type(&self) -> HeaderValue {
        self.encoding.media_type()
    }

    /// Media type of watches.
    pub(crate) fn stream_type(&self) -> HeaderValue {
        match self.encoding {
            Encoding::Protobuf => HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch"),
            Encoding::Json | Encoding::Yaml => Encoding::Json.media_type(),
        }
    }

    fn api_version(&self) -> String {
        self.resource.gvk.group_version().to_string()
    }

    fn is_stored(&self, json: &[u8]) -> bool {
        let begins = |head: &String| json.starts_with(head.as_bytes());
        version::is_stored_version(&self.resource) && self.head.as_ref().is_none_or(begins)
    }

    /// The tree of stored JSON, in the version of the request.
    fn tree(&self, json: &[u8]) -> Result<Value, ApiError> {
        let corrupt = |e: serde_json::Error| store_error(StoreError::Corrupt(e.to_string()));
        let mut object = serde_json::from_slice(json).map_err(corrupt)?;
        version::from_storage(&self.resource, &mut object);
        Ok(object)
    }

    /// Stored JSON in the version and form of the request, for an object by itself.
    fn json(&self, json: &Bytes) -> Result<Bytes, ApiError> {
        if self.output.is_whole() && self.is_stored(json) {
            return Ok(json.clone());
        }
        encode(&self.shown(self.tree(json)?))
    }

    /// An object by itself, in the form of the request.
    fn shown(&self, object: Value) -> Value {
        let with_columns = self.columns_due.swap(false, Ordering::Relaxed);
        self.output.object(&self.resource, object, with_columns)
    }

    fn message(&self, object: &Value) -> Result<Bytes, ApiError> {
        let schema = self.schema.as_deref().ok_or_else(negotiate::not_acceptable)?;
        let bytes = proto::encode_message(object, schema);
        bytes.map(Into::into).map_err(ApiError::internal)
    }

    fn seal(&self, message: &[u8]) -> Bytes {
        proto::seal(&self.api_version(), &self.resource.gvk.kind, message).into()
    }

    /// An object as an item of a list.
    fn item(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        match self.encoding {
            Encoding::Protobuf => entry.form(self.number, || self.message(&self.tree(entry.json())?)),
            _ if self.output.is_whole() => self.json(entry.json()),
            _ if self.tells_time() => encode(&self.item_tree(entry)?),
            _ => entry.form(self.number, || encode(&self.item_tree(entry)?)),
        }
    }

    fn item_tree(&self, entry: &Entry) -> Result<Value, ApiError> {
        Ok(self.output.item(&self.resource, self.tree(entry.json())?))
    }

    /// An object by itself.
    ///
    /// # Errors
    /// 500 for stored data that cannot be read or encoded.
    pub(crate) fn object(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        Ok(match self.encoding {
            Encoding::Json => self.json(entry.json())?,
            Encoding::Yaml => yaml(&self.shown(self.tree(entry.json())?))?,
            Encoding::Protobuf => self.seal(&self.item(entry)?),
        })
    }

    /// A list of objects.
    ///
    /// # Errors
    /// 500 for stored data that cannot be read or encoded.
    pub(crate) fn list(&self, head: &ListHead, entries: &[Arc<Entry>]) -> Result<ListBody, ApiError> {
        let metadata = head.to_value();
        let (kind, api_version, items_name) = self.output.list_type(&self.resource);
        if self.encoding == Encoding::Yaml {
            let items = entries.iter().map(|entry| self.item_tree(entry));
            let mut list = self.output.list_facts(&self.resource);
            list.insert("kind".to_owned(), Value::from(kind));
            list.insert("apiVersion".to_owned(), Value::from(api_version));
            list.insert("metadata".to_owned(), metadata);
            list.insert(items_name.to_owned(), items.collect::<Result<_, _>>()?);
            return Ok(ListBody::whole(yaml(&Value::Object(list))?));
        }
        let items = entries.iter().map(|entry| self.item(entry));
        let items: Vec<Bytes> = items.collect::<Result<_, _>>()?;
        if self.encoding == Encoding::Protobuf {
            let schema = minato_schema::builtin().get(LIST_META);
            let schema = schema.ok_or_else(|| ApiError::internal("the schema of lists is missing"))?;
            let metadata = proto::encode_message(&metadata, schema).map_err(ApiError::internal)?;
            let total = items.iter().map(|item| proto::item_length(item.len())).sum();
            let frame = proto::ListFrame::new(&api_version, &kind, &metadata, total);
            return Ok(ListBody::protobuf(frame, items));
        }
        let mut head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},",
            Value::from(kind),
            Value::from(api_version),
        );
        for (name, value) in self.output.list_facts(&self.resource) {
            head.push_str(&format!("{}:{value},", Value::from(name)));
        }
        head.push_str(&format!("\"{items_name}\":["));
        Ok(ListBody::json(head, items, "]}\n"))
    }

    /// The number under which an event keeps its frame of a type.
    pub(crate) fn frame_number(&self, kind: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.number, kind).hash(&mut hasher);
        hasher.finish()
    }

    /// A frame of a watch around stored JSON.
    ///
    /// # Errors
    /// 500 for stored data that cannot be read or encoded.
    pub(crate) fn frame(&self, kind: &str, json: &Bytes) -> Result<Bytes, ApiError> {
        if self.encoding == Encoding::Protobuf {
            let message = self.message(&self.tree(json)?)?;
            return Ok(proto::watch_frame(kind, &self.seal(&message)).into());
        }
        Ok(json_frame(kind, &self.json(json)?))
    }

    /// Like [`View::frame`], around an entry.
    pub(crate) fn entry_frame(&self, kind: &str, entry: &Entry) -> Result<Bytes, ApiError> {
        match self.encoding {
            Encoding::Protobuf => Ok(proto::watch_frame(kind, &self.seal(&self.item(entry)?)).into()),
            Encoding::Json | Encoding::Yaml => Ok(json_frame(kind, &self.json(entry.json())?)),
        }
    }

    /// A frame that says how far a watch has come.
    pub(crate) fn bookmark(&self, revision: Revision, ends_initial: bool) -> Result<Bytes, ApiError> {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = json!({
            "kind": self.resource.gvk.kind,
            "apiVersion": self.api_version(),
            "metadata": metadata,
        });
        Ok(match self.encoding {
            Encoding::Protobuf => proto::watch_frame("BOOKMARK", &self.seal(&self.message(&object)?)).into(),
            Encoding::Json | Encoding::Yaml => {
                // It is no object: the first of these is still to say what the columns are.
                let shown = self.output.object(&self.resource, object, false);
                json_frame("BOOKMARK", shown.to_string().as_bytes())
            }
        })
    }

    /// The frame with which a watch ends by an error.
    pub(crate) fn error_frame(&self, error: &ApiError) -> Bytes {
        let status = serde_json::to_value(error.to_status()).unwrap_or_default();
        let schema = minato_schema::builtin().get(STATUS);
        if self.encoding == Encoding::Protobuf
            && let Some(Ok(status)) = schema.map(|schema| proto::encode_protobuf(&status, schema))
        {
            return proto::watch_frame("ERROR", &status).into();
        }
        json_frame("ERROR", status.to_string().as_bytes())
    }
}

fn encode(value: &Value) -> Result<Bytes, ApiError> {
    serde_json::to_vec(value).map(Into::into).map_err(ApiError::internal)
}

fn yaml(value: &Value) -> Result<Bytes, ApiError> {
    let text = serde_yaml_ng::to_string(value).map_err(ApiError::internal)?;
    Ok(text.into())
}

fn json_frame(kind: &str, object: &[u8]) -> Bytes {
    const PARTS: [&[u8]; 3] = [b"{\"type\":\"", b"\",\"object\":", b"}\n"];
    let mut frame = Vec::with_capacity(object.len() + kind.len() + 24);
    frame.extend_from_slice(PARTS[0]);
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(PARTS[1]);
    frame.extend_from_slice(object);
    frame.extend_from_slice(PARTS[2]);
    frame.into()
}
