//! Rotation of running containers' logs: the full file is moved aside and the runtime told to begin another; old ones are
//! compressed, and the oldest removed.

use std::collections::HashMap;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minato_cri::v1::ContainerState;

use crate::context::Context;

/// Keeps logs within their bounds, for ever.
pub(crate) async fn rotate(context: Arc<Context>) {
    let mut tick = tokio::time::interval(context.settings.log_interval);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let containers = match context.cri.list_containers(HashMap::new()).await {
            Ok(containers) => containers,
            Err(_) => continue,
        };
        let running = containers
            .iter()
            .filter(|c| c.state() == ContainerState::ContainerRunning);
        for container in running {
            if let Err(error) = rotate_one(&context, &container.id).await {
                tracing::warn!(container = container.id, %error, "rotating a log failed");
            }
        }
    }
}

async fn rotate_one(context: &Context, id: &str) -> Result<()> {
    let Ok(status) = context.cri.container_status(id).await else {
        return Ok(());
    };
    let path = PathBuf::from(status.log_path);
    let size = match std::fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(_) => return Ok(()),
    };
    if size < context.settings.log_size {
        return Ok(());
    }
    let keep = context.settings.log_files;
    let tidy = path.clone();
    tokio::task::spawn_blocking(move || tidy_up(&tidy, keep))
        .await
        .map_err(std::io::Error::other)??;
    let aside = path.with_extension(format!("log.{}", jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S")));
    std::fs::rename(&path, &aside)?;
    if let Err(error) = context.cri.reopen_container_log(id).await {
        // The runtime still writes to the old file: give it its name back.
        std::fs::rename(&aside, &path)?;
        return Err(std::io::Error::other(error));
    }
    Ok(())
}

/// Compresses the rotated files of a log and removes the oldest, so that with the present and the next one `keep` remain.
fn tidy_up(path: &Path, keep: usize) -> Result<()> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let prefix = format!("{name}.");
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut rotated = Vec::new();
    for entry in std::fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".tmp") {
            std::fs::remove_file(entry.path())?;
        } else if name.starts_with(&prefix) {
            rotated.push(entry.path());
        }
    }
    // Their names end with the time.
    rotated.sort();
    let most = keep.saturating_sub(2);
    for old in rotated.drain(..rotated.len().saturating_sub(most)) {
        std::fs::remove_file(old)?;
    }
    for plain in rotated
        .iter()
        .filter(|path| path.extension().is_none_or(|extension| extension != "gz"))
    {
        compress(plain)?;
    }
    Ok(())
}

fn compress(path: &Path) -> Result<()> {
    let target = PathBuf::from(format!("{}.gz", path.display()));
    let temporary = PathBuf::from(format!("{}.tmp", path.display()));
    let mut encoder = flate2::write::GzEncoder::new(std::fs::File::create(&temporary)?, flate2::Compression::default());
    std::io::copy(&mut std::fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?.flush()?;
    std::fs::rename(temporary, target)?;
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_the_rest_is_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in [
            "0.log",
            "0.log.20260101-000001.gz",
            "0.log.20260101-000002",
            "0.log.20260101-000003",
            "0.log.20260101-000004",
            "1.log",
            "0.log.x.tmp",
        ] {
            std::fs::write(at(name), name).unwrap();
        }
        tidy_up(&at("0.log"), 5).unwrap();
        let mut left: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        let expected = [
            "0.log",
            "0.log.20260101-000002.gz",
            "0.log.20260101-000003.gz",
            "0.log.20260101-000004.gz",
            "1.log",
        ];
        assert_eq!(left, expected);
    }
}
