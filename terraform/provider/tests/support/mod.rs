//! The provider's process, spoken to as Terraform does.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test binary uses its own part; a test fails by panicking"
)]

use std::path::PathBuf;
use std::process::Stdio;

use hyper_util::rt::TokioIo;
use minato_terraform_protocol::wire::provider::provider_client::ProviderClient;
use minato_terraform_protocol::wire::provider::{self as wire, DynamicValue};
use minato_terraform_protocol::{COOKIE, Object, Value, decode, encode};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint, Uri};

/// A running provider.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Fields of the handshake.
    pub(crate) handshake: Vec<String>,
}

/// How Terraform would start it.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terraform-provider-minato"));
    command
        .env(COOKIE.0, COOKIE.1)
        .env("PLUGIN_PROTOCOL_VERSIONS", "5,6")
        .env_remove("MINATO_KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Process {
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let handshake = line.split('|').map(str::to_owned).collect();
        Self { child, handshake }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(&self.handshake[3])
    }

    /// A connection without TLS.
    pub(crate) fn channel(&self) -> Channel {
        let socket = self.socket();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
    }

    pub(crate) fn provider(&self) -> ProviderClient<Channel> {
        ProviderClient::new(self.channel())
    }
}

/// An object on the wire.
pub(crate) fn dynamic(object: &Object) -> Option<DynamicValue> {
    Some(DynamicValue {
        msgpack: encode(&Value::from(object.clone())),
        json: Vec::new(),
    })
}

pub(crate) fn null() -> Option<DynamicValue> {
    Some(DynamicValue {
        msgpack: encode(&Value::Null),
        json: Vec::new(),
    })
}

/// An object from the wire; `None` for null.
pub(crate) fn object(value: Option<DynamicValue>) -> Option<Object> {
    match decode(&value.unwrap().msgpack).unwrap() {
        Value::Map(attributes) => Some(Object(attributes)),
        Value::Null => None,
        other => panic!("{other:?} is no object"),
    }
}

/// What was said, each with its place.
pub(crate) fn told(diagnostics: &[wire::Diagnostic]) -> Vec<(String, String)> {
    use wire::attribute_path::step::Selector;
    let each = diagnostics.iter();
    each.map(|diagnostic| {
        let steps = diagnostic.attribute.iter().flat_map(|path| &path.steps);
        let steps: Vec<String> = steps
            .map(|step| match step.selector.as_ref().unwrap() {
                Selector::AttributeName(name) | Selector::ElementKeyString(name) => name.clone(),
                Selector::ElementKeyInt(index) => index.to_string(),
            })
            .collect();
        (
            steps.join("/"),
            format!("{}: {}", diagnostic.summary, diagnostic.detail),
        )
    })
    .collect()
}
