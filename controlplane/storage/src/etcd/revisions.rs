//! The present revision for many readers by few requests: whoever comes while a request is under way shares the next one.

use std::sync::Weak;

use minato_meta::Revision;
use tokio::sync::{mpsc, oneshot};

use super::Inner;
use crate::store::StoreError;

type Answer = Result<Revision, StoreError>;

/// Readers that wait for the next request.
const QUEUE: usize = 1_024;

#[derive(Clone)]
pub(super) struct Revisions(mpsc::Sender<oneshot::Sender<Answer>>);

impl Revisions {
    /// Ends when all of its handles, or the store, are gone.
    pub(super) fn start(inner: Weak<Inner>) -> Self {
        let (sender, mut waiting) = mpsc::channel::<oneshot::Sender<Answer>>(QUEUE);
        tokio::spawn(async move {
            let mut readers = Vec::new();
            while waiting.recv_many(&mut readers, QUEUE).await > 0 {
                let Some(inner) = inner.upgrade() else { return };
                // Begun after each of them asked, so it shows each what was acknowledged before.
                let answer = inner.read_revision().await;
                for reader in readers.drain(..) {
                    // Who has gone away does not mind.
                    let _ = reader.send(answer.clone());
                }
            }
        });
        Self(sender)
    }

    pub(super) async fn read(&self) -> Answer {
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        let (sender, answer) = oneshot::channel();
        self.0.send(sender).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}
