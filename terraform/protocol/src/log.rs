//! Logs in the form that the host of a plug-in reads from its standard error: one JSON object a line.

use std::fmt;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Sends logs to the host, which decides what is shown (`TF_LOG`). `filter` says what is worth sending.
pub fn init(filter: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .event_format(HostFormat)
        .init();
}

struct HostFormat;

impl<S, N> FormatEvent<S, N> for HostFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let mut line = Line(Map::new());
        event.record(&mut line);
        line.set("@timestamp", json!(jiff::Timestamp::now().to_string()));
        line.set("@level", json!(metadata.level().as_str().to_lowercase()));
        line.set("@module", json!(metadata.target()));
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

struct Line(Map<String, Value>);

impl Line {
    fn set(&mut self, name: &str, value: Value) {
        let name = if name == "message" { "@message" } else { name };
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Line {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), json!(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), json!(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), json!(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), json!(value));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), json!(format!("{value:?}")));
    }
}
