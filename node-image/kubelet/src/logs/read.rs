//! Reading a log, and following it: the kernel tells of new lines, the runtime's watch of the container's end.

use std::io::SeekFrom;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use minato_cri::Cri;
use minato_cri::v1::ContainerState;
use rustix::fs::inotify;
use tokio::fs::File;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{mpsc, watch};

use super::line::parse;

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Longest line; what is longer is given in parts. The runtime itself splits at 16 KiB.
const LONGEST: usize = 256 * 1024;

/// How much of a log, and in which form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    pub(crate) follow: bool,
    /// So many lines from the end.
    pub(crate) tail: Option<u64>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
    /// Bytes given at most.
    pub(crate) limit: Option<u64>,
    /// `stdout` or `stderr` alone.
    pub(crate) stream: Option<String>,
}

/// Reads one container's log.
pub(crate) struct LogReader {
    pub(crate) path: PathBuf,
    pub(crate) options: LogOptions,
    /// Runtime's id, to know when nothing more will come.
    pub(crate) container: String,
    pub(crate) cri: Cri,
    /// Changes whenever something happened in the runtime.
    pub(crate) news: watch::Receiver<u64>,
}

/// Turns lines into what a client gets.
struct Filter {
    options: LogOptions,
    given: u64,
    /// The last line was a part: the next one gets no time of its own.
    inside: bool,
}

impl Filter {
    /// The line for the client; `None` when it is not wanted.
    fn line(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let line = parse(line)?;
        let unwanted = self.options.since.is_some_and(|since| !line.is_since(since))
            || self.options.stream.as_ref().is_some_and(|stream| stream != line.stream);
        if unwanted {
            return None;
        }
        let mut out = Vec::with_capacity(line.text.len() + 40);
        if self.options.timestamps && !self.inside {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        self.inside = line.partial;
        if let Some(limit) = self.options.limit {
            let left = usize::try_from(limit - self.given).unwrap_or(usize::MAX);
            out.truncate(left);
        }
        self.given += out.len() as u64;
        Some(out)
    }

    fn is_full(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.given >= limit)
    }
}

/// Where the last `lines` lines begin.
async fn tail_start(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let mut end = file.metadata().await?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut seen = 0_u64;
    let mut buffer = vec![0; CHUNK];
    let mut last = true;
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let length = usize::try_from(end - start).unwrap_or(CHUNK);
        file.seek(SeekFrom::Start(start)).await?;
        let chunk = &mut buffer[..length];
        file.read_exact(chunk).await?;
        for (index, byte) in chunk.iter().enumerate().rev() {
            // The end of the last line does not begin another.
            if *byte == b'\n' && !std::mem::take(&mut last) {
                seen += 1;
                if seen == lines {
                    return Ok(start + index as u64 + 1);
                }
            }
            last = false;
        }
        end = start;
    }
    Ok(0)
}

#[expect(unsafe_code, reason = "registering a file descriptor with the reactor")]
fn watch_directory(path: &Path) -> std::io::Result<AsyncFd<OwnedFd>> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&fd, directory, events)?;
    // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until that is dropped.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Waits for an event, and takes all that are there.
async fn event(fd: &AsyncFd<OwnedFd>) -> std::io::Result<()> {
    let mut ready = fd.readable().await?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(fd.get_ref(), &mut buffer);
    while events.next().is_ok() {}
    ready.clear_ready();
    Ok(())
}

impl LogReader {
    /// Sends the log in chunks until all was sent, or for ever while the container runs if it is followed.
    pub(crate) async fn run(mut self, chunks: &mpsc::Sender<Bytes>) -> std::io::Result<()> {
        let events = if self.options.follow {
            Some(watch_directory(&self.path)?)
        } else {
            None
        };
        let mut file = match File::open(&self.path).await {
            Ok(file) => file,
            // Nothing was written yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.options.follow => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(lines) = self.options.tail {
            let start = tail_start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let mut filter = Filter {
            options: self.options.clone(),
            given: 0,
            inside: false,
        };
        let mut rest = BytesMut::new();
        loop {
            // Asked before reading, so that nothing written before the end is missed.
            let over = match &events {
                Some(_) => self.is_over().await,
                None => true,
            };
            if !drain(&mut file, &mut rest, &mut filter, chunks).await? {
                return Ok(());
            }
            if let Some(next) = self.rotated(&file).await {
                // What was written to the old file before the runtime turned to the new one.
                if !drain(&mut file, &mut rest, &mut filter, chunks).await? {
                    return Ok(());
                }
                file = next;
                continue;
            }
            let Some(events) = events.as_ref().filter(|_| !over) else {
                return Ok(());
            };
            tokio::select! {
                result = event(events) => result?,
                changed = self.news.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    /// The new file, if the log was rotated since this one was opened.
    async fn rotated(&self, file: &File) -> Option<File> {
        let now = File::open(&self.path).await.ok()?;
        let (old, new) = (file.metadata().await.ok()?, now.metadata().await.ok()?);
        ((old.dev(), old.ino()) != (new.dev(), new.ino())).then_some(now)
    }

    async fn is_over(&self) -> bool {
        match self.cri.container_status(&self.container).await {
            Ok(status) => status.state() != ContainerState::ContainerRunning,
            Err(error) => error.is_not_found(),
        }
    }
}

/// Sends all complete lines; false when the client has all it asked for, or is gone.
async fn drain(
    file: &mut File,
    rest: &mut BytesMut,
    filter: &mut Filter,
    chunks: &mpsc::Sender<Bytes>,
) -> std::io::Result<bool> {
    loop {
        rest.reserve(CHUNK);
        let length = file.read_buf(rest).await?;
        let mut out = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = rest.split_to(end + 1);
            out.extend(filter.line(&line[..end]).unwrap_or_default());
            if filter.is_full() {
                break;
            }
        }
        if rest.len() > LONGEST {
            let line = rest.split();
            out.extend(filter.line(&line).unwrap_or_default());
        }
        if !out.is_empty() && chunks.send(Bytes::from(out)).await.is_err() {
            return Ok(false);
        }
        if filter.is_full() {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n\
        2026-01-01T00:00:03Z stdout P thr\n2026-01-01T00:00:03Z stdout F ee\n2026-01-01T00:00:04Z stdout F four\n";

    async fn read(options: LogOptions) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let (sender, mut chunks) = mpsc::channel(8);
        let (_keep, news) = watch::channel(0);
        let reader = LogReader {
            path,
            options,
            container: String::new(),
            cri: Cri::new(Path::new("/nonexistent")),
            news,
        };
        reader.run(&sender).await.unwrap();
        drop(sender);
        let mut out = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            out.extend_from_slice(&chunk);
        }
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn options_choose_lines() {
        let all = LogOptions::default();
        assert_eq!(read(all.clone()).await, "one\ntwo\nthree\nfour\n");
        let tail = |lines| LogOptions {
            tail: Some(lines),
            ..all.clone()
        };
        assert_eq!(read(tail(1)).await, "four\n");
        assert_eq!(read(tail(4)).await, "two\nthree\nfour\n");
        assert_eq!(read(tail(0)).await, "");
        assert_eq!(read(tail(100)).await, "one\ntwo\nthree\nfour\n");
        let since = LogOptions {
            since: Some("2026-01-01T00:00:03Z".parse().unwrap()),
            ..all.clone()
        };
        assert_eq!(read(since).await, "three\nfour\n");
        let times = LogOptions {
            timestamps: true,
            tail: Some(3),
            ..all.clone()
        };
        assert_eq!(
            read(times).await,
            "2026-01-01T00:00:03Z three\n2026-01-01T00:00:04Z four\n"
        );
        let limit = LogOptions {
            limit: Some(6),
            ..all.clone()
        };
        assert_eq!(read(limit).await, "one\ntw");
        let errors = LogOptions {
            stream: Some("stderr".to_owned()),
            ..all
        };
        assert_eq!(read(errors).await, "two\n");
    }
}
