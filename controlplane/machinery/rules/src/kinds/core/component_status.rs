//! Component statuses: read-only, and of no use since components report by other ways.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::{Column, Strategy};
use crate::show::{self, Col, NAME};
use crate::tree::Tree as _;

/// Health of a component.
#[derive(Default)]
pub(in crate::kinds) struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn has_generation(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        show::columns(&[
            NAME,
            Col::text("Status", "Whether the component is well."),
            Col::text("Message", "What it says."),
            Col::text("Error", "What is wrong."),
        ])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let healthy = object.list("conditions").iter().find(|c| c.text("type") == "Healthy");
        let (state, message, error) = match healthy {
            Some(c) if c.text("status") == "True" => ("Healthy", c.text("message"), c.text("error")),
            Some(c) => ("Unhealthy", c.text("message"), c.text("error")),
            None => ("Unknown", "", ""),
        };
        vec![show::name(object), state.into(), message.into(), error.into()]
    }
}
