//! Starts and stops the controllers.

use std::sync::Arc;

use minato_provider_interface::CloudProvider;
use minato_runtime::{Runtime, Tasks};

use crate::{CloudControllerManagerConfig, Context, lifecycle, node, route, service};

/// Starts a controller; false when the provider or the configuration lacks what it needs.
type Start = fn(&Context) -> bool;

/// All controllers by upstream's names.
const CONTROLLERS: [(&str, Start); 4] = [
    ("cloud-node-controller", node::start),
    ("cloud-node-lifecycle-controller", lifecycle::start),
    ("node-route-controller", route::start),
    ("service-lb-controller", service::start),
];

/// The cloud controllers of one cluster, as a value.
pub struct CloudControllerManager;

impl CloudControllerManager {
    /// Names that [`CloudControllerManagerConfig::disabled`] may hold.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CONTROLLERS.iter().map(|(name, _)| *name)
    }

    /// Starts all controllers that are not disabled and whose capability the provider has. They end with the tasks of
    /// `runtime` or by the handle. Of several replicas only the elected leader may call this; see
    /// `minato_runtime::LeaderElector`.
    pub fn start(
        config: CloudControllerManagerConfig,
        provider: Arc<dyn CloudProvider>,
        runtime: &Runtime,
    ) -> CloudControllerManagerHandle {
        let tasks = runtime.tasks.child();
        let cx = Context {
            runtime: runtime.with_tasks(tasks.clone()),
            config: Arc::new(config),
            provider,
        };
        for (name, start) in CONTROLLERS {
            if !cx.config.disabled.contains(name) && !start(&cx) {
                let provider = cx.provider.name();
                tracing::warn!(
                    controller = name,
                    provider,
                    "not started: the provider or the configuration lacks it"
                );
            }
        }
        CloudControllerManagerHandle { tasks }
    }
}

/// Running controllers. Dropping it does not stop them.
pub struct CloudControllerManagerHandle {
    tasks: Tasks,
}

impl CloudControllerManagerHandle {
    /// Stops all controllers and waits for them.
    pub async fn stop(&self) {
        self.tasks.stop().await;
    }

    /// Fires when the controllers stop, by [`CloudControllerManagerHandle::stop`] or because one of them panicked.
    pub async fn stopped(&self) {
        self.tasks.token().cancelled().await;
    }

    /// Why they stopped by themselves, if they did.
    pub fn failure(&self) -> Option<String> {
        self.tasks.failure()
    }
}
