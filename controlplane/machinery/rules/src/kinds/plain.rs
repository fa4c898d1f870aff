//! Kinds without behaviour.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::{Column, Strategy};
use crate::show::{self, CREATED_AT, NAME};

/// A kind that is stored as it comes, and shown by its name and the time of its creation.
#[derive(Default)]
pub(super) struct Plain;

impl Strategy for Plain {
    fn columns(&self) -> Vec<Column> {
        show::columns(&[NAME, CREATED_AT])
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        vec![show::name(object), show::created_at(object)]
    }
}

/// A question that is answered and never stored.
#[derive(Default)]
pub(super) struct Review;

impl Strategy for Review {
    fn has_generation(&self) -> bool {
        false
    }
}
