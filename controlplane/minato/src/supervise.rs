//! `minato supervise`: keeps the mock cloud and the manager of a quick start running. Both outlive it, and it takes over
//! what runs already, so killing any one of them is harmless.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use minato_fleet::{Detached, Launch};

use crate::quickstart::Layout;

/// One that ran this long is started again at once.
const STEADY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const STOP_GRACE: Duration = Duration::from_secs(20);

/// Runs until it is asked to end, then stops both.
pub(crate) async fn run(directory: &Path) -> anyhow::Result<()> {
    let layout = Layout::new(directory)?;
    let cloud = Child {
        name: "mock-cloud",
        arguments: layout.cloud_arguments(),
    };
    let manager = Child {
        name: "manager",
        arguments: layout.manager_arguments()?,
    };
    tokio::select! {
        asked = crate::asked_to_end() => asked?,
        result = cloud.keep_running(&layout) => result?,
        result = after_cloud(&layout, &manager) => result?,
    }
    // The manager first: it talks to the cloud.
    manager.stop(&layout).await?;
    cloud.stop(&layout).await
}

/// The manager reads the token that the cloud makes at its first start.
async fn after_cloud(layout: &Layout, manager: &Child) -> anyhow::Result<()> {
    let token = layout.cloud().token();
    while !token.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    manager.keep_running(layout).await
}

struct Child {
    name: &'static str,
    arguments: Vec<String>,
}

impl Child {
    async fn keep_running(&self, layout: &Layout) -> anyhow::Result<()> {
        let mut pause = Duration::ZERO;
        loop {
            let since = Instant::now();
            match self.ensure(layout) {
                Ok(process) => process.ended().await,
                Err(error) => tracing::error!(process = self.name, %error, "cannot be started"),
            }
            tracing::warn!(process = self.name, "ended; starting it again");
            pause = if since.elapsed() >= STEADY {
                Duration::ZERO
            } else {
                (pause * 2).clamp(Duration::from_millis(50), LONGEST_PAUSE)
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn ensure(&self, layout: &Layout) -> anyhow::Result<Detached> {
        let record = layout.record(self.name);
        if let Some(process) = Detached::find(&record) {
            return Ok(process);
        }
        let launch = Launch {
            program: &std::env::current_exe()?,
            arguments: self.arguments.clone(),
            directory: &layout.root,
            log: &layout.log(self.name),
            record: &record,
        };
        Ok(Detached::start(&launch)?)
    }

    async fn stop(&self, layout: &Layout) -> anyhow::Result<()> {
        match Detached::find(&layout.record(self.name)) {
            Some(process) => process
                .stop(STOP_GRACE)
                .await
                .with_context(|| format!("stopping {}", self.name)),
            None => Ok(()),
        }
    }
}
