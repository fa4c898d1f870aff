//! Runs `nft`, which applies a script as one transaction: all of it, or nothing.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Why a script was not applied.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program could not be run.
    #[error("cannot run nft (package nftables): {0}")]
    Run(#[from] std::io::Error),
    /// It refused; nothing was changed.
    #[error("nft refused the rules: {0}")]
    Refused(String),
}

/// Applies a script.
pub(crate) async fn apply(script: &str) -> Result<(), NftError> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let writing = async {
        if let Some(mut input) = child.stdin.take() {
            // One that refuses early closes its input: its message says why.
            let _ = input.write_all(script.as_bytes()).await;
        }
    };
    writing.await;
    let output = child.wait_with_output().await?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first: String = text.lines().take(4).collect::<Vec<_>>().join("; ");
    Err(NftError::Refused(first))
}
