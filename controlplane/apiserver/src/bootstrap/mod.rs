//! What must exist in every cluster, made when the server starts.

use std::sync::Arc;

use crate::server::ApiServer;

/// Brings the cluster to that state.
pub(crate) async fn run(_server: &Arc<ApiServer>) {}
