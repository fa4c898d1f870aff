//! Writes the container images that nodes load at boot into a directory: for the node image.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.context("usage: minato-images DIRECTORY")?;
    let cache = tempfile::tempdir()?;
    let images = [
        ("pause.tar", minato_images::pause(minato_images::PAUSE, cache.path())?),
        ("busybox.tar", minato_images::busybox(minato_images::BUSYBOX)?),
    ];
    for (name, bytes) in images {
        let path = directory.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
