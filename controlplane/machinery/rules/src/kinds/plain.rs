//! Kinds that are not stored.

use crate::resource::Strategy;

/// A question that is answered and never stored.
#[derive(Default)]
pub(super) struct Review;

impl Strategy for Review {
    fn has_generation(&self) -> bool {
        false
    }
}
