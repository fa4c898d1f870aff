//! A thread that lives in a network namespace and runs a tokio runtime there, so that its sockets are that network's.

use std::fs::File;
use std::future::Future;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{LocalError, io};

/// A runtime inside a network namespace. Dropping it ends everything that runs there.
pub(super) struct NetnsRuntime {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl NetnsRuntime {
    /// Joins the namespace bound at `path` on a new thread.
    pub(super) fn start(path: &Path) -> Result<Self, LocalError> {
        let namespace = File::open(path).map_err(io(format!("opening network namespace {}", path.display())))?;
        let stop = CancellationToken::new();
        let (send, receive) = std::sync::mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("vpc".to_owned())
            .spawn(move || {
                let runtime = setns(&namespace, CloneFlags::CLONE_NEWNET)
                    .map_err(std::io::Error::from)
                    .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
                match runtime {
                    Ok(runtime) => {
                        let _ = send.send(Ok(runtime.handle().clone()));
                        runtime.block_on(stopped.cancelled());
                    }
                    Err(error) => {
                        let _ = send.send(Err(error));
                    }
                }
            })
            .map_err(io("starting the network thread"))?;
        let handle = receive
            .recv()
            .map_err(|_| LocalError::Unsupported("the network thread ended at once".to_owned()))?
            .map_err(io("joining the network namespace"))?;
        Ok(Self {
            handle,
            stop,
            thread: Some(thread),
        })
    }

    /// Runs a task inside the namespace.
    pub(super) fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(future)
    }
}

impl Drop for NetnsRuntime {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
