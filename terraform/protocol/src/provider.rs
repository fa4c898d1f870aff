//! What a provider implements.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::diagnostics::Diagnostics;
use crate::schema::Schema;
use crate::value::Object;

/// A set of resources and data sources with one configuration. All methods may be called at the same time.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// What its configuration may say.
    fn schema(&self) -> &Schema;

    /// Takes its configuration, parts of which may be unknown while planning.
    async fn configure(&self, config: &Object) -> Diagnostics;

    /// Its resources, by type name.
    fn resources(&self) -> &BTreeMap<&'static str, Arc<dyn Resource>>;

    /// Its data sources, by type name.
    fn data_sources(&self) -> &BTreeMap<&'static str, Arc<dyn DataSource>>;

    /// Its ephemeral resources, by type name.
    fn ephemeral_resources(&self) -> &BTreeMap<&'static str, Arc<dyn EphemeralResource>>;

    /// Makes whatever is under way end soon, with an error.
    fn stop(&self);
}

/// What is there after something was done, or partly done.
pub struct Applied {
    /// As observed; `None` when nothing is there.
    pub state: Option<Object>,
    /// What went wrong.
    pub diagnostics: Diagnostics,
}

impl Applied {
    /// Nothing was made.
    pub fn nothing(diagnostics: impl Into<Diagnostics>) -> Self {
        Self {
            state: None,
            diagnostics: diagnostics.into(),
        }
    }
}

/// Something that is made, changed and deleted.
#[async_trait]
pub trait Resource: Send + Sync {
    /// Its attributes.
    fn schema(&self) -> &Schema;

    /// Finds faults in a configuration, parts of which may be unknown. Asks nobody.
    fn validate(&self, config: &Object) -> Diagnostics;

    /// A last word on a plan in which something changes: `prior` is absent for a creation, `planned` for a deletion.
    async fn review(&self, prior: Option<&Object>, planned: Option<&Object>) -> Diagnostics;

    /// Makes it.
    async fn create(&self, planned: &Object) -> Applied;

    /// What is there now; `None` when it is gone.
    async fn read(&self, state: &Object) -> Result<Option<Object>, Diagnostics>;

    /// Changes it. When nothing could be observed, what was before is taken to be there still.
    async fn update(&self, prior: &Object, planned: &Object) -> Applied;

    /// Deletes it, and waits until it is gone.
    async fn delete(&self, prior: &Object) -> Result<(), Diagnostics>;

    /// What is known of a resource from its id alone; it is read next.
    fn import(&self, id: &str) -> Result<Object, Diagnostics>;
}

/// Something that is looked up, and kept in the state.
#[async_trait]
pub trait DataSource: Send + Sync {
    /// Its attributes.
    fn schema(&self) -> &Schema;

    /// Finds faults in a configuration, parts of which may be unknown. Asks nobody.
    fn validate(&self, config: &Object) -> Diagnostics;

    /// Looks it up.
    async fn read(&self, config: &Object) -> Result<Object, Diagnostics>;
}

/// Something that is looked up, and kept nowhere.
#[async_trait]
pub trait EphemeralResource: Send + Sync {
    /// Its attributes.
    fn schema(&self) -> &Schema;

    /// Finds faults in a configuration, parts of which may be unknown. Asks nobody.
    fn validate(&self, config: &Object) -> Diagnostics;

    /// Looks it up.
    async fn open(&self, config: &Object) -> Result<Object, Diagnostics>;
}
