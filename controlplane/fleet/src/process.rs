//! Child processes that outlive whoever started them: recorded on disk, found again by number and start time.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

/// Why a process could not be started, found or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A file or system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// It was killed and is still there.
    #[error("process {0} does not end")]
    Undying(i32),
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ProcessError {
    let what = what.into();
    move |source| ProcessError::Io { what, source }
}

/// What is on disk about a running process.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: i32,
    /// Start time in clock ticks since boot: tells a process from a later one of the same number.
    started: u64,
    /// Its arguments: one with others has to be started anew.
    arguments: Vec<String>,
}

/// A process that was started detached from this one.
#[derive(Debug, Clone)]
pub struct Detached {
    pid: Pid,
    started: u64,
    arguments: Vec<String>,
    record: PathBuf,
}

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The executable.
    pub program: &'a Path,
    /// Its arguments; never secrets.
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: &'a Path,
    /// Where standard output and error go; appended.
    pub log: &'a Path,
    /// Where it is recorded.
    pub record: &'a Path,
}

impl Detached {
    /// Starts it in a session of its own, so that a signal to this terminal or process group does not reach it.
    ///
    /// # Errors
    /// It cannot be started, or not be recorded; then it is not left running.
    pub fn start(launch: &Launch<'_>) -> Result<Self, ProcessError> {
        let log = File::options().create(true).append(true).open(launch.log);
        let log = log.map_err(io(format!("opening {}", launch.log.display())))?;
        let errors = log.try_clone().map_err(io("opening the log"))?;
        let mut child = Command::new(launch.program)
            .args(&launch.arguments)
            .current_dir(launch.directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(io(format!("starting {}", launch.program.display())))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let started = pid.and_then(start_time);
        // Reaps it; only its end is waited for, which costs a parked thread and nothing else.
        let (Some(pid), Some(started)) = (pid, started) else {
            let _ = child.wait();
            return Err(io(format!("starting {}", launch.program.display()))(
                std::io::Error::other("it ended at once"),
            ));
        };
        let this = Self {
            pid,
            started,
            arguments: launch.arguments.clone(),
            record: launch.record.to_owned(),
        };
        if let Err(error) = this.write_record() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        let reaper = std::thread::Builder::new()
            .name("reaper".to_owned())
            .stack_size(64 * 1024);
        reaper.spawn(move || child.wait()).map_err(io("starting a thread"))?;
        Ok(this)
    }

    fn write_record(&self) -> Result<(), ProcessError> {
        let record = Record {
            pid: self.pid.as_raw_nonzero().get(),
            started: self.started,
            arguments: self.arguments.clone(),
        };
        let failed = || io(format!("recording {}", self.record.display()));
        let text = serde_json::to_vec(&record).map_err(|e| failed()(e.into()))?;
        let temporary = self.record.with_extension("tmp");
        std::fs::write(&temporary, text).map_err(failed())?;
        std::fs::rename(&temporary, &self.record).map_err(failed())
    }

    /// The recorded process, if it still runs.
    pub fn find(record: &Path) -> Option<Self> {
        let found: Record = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
        let this = Self {
            pid: Pid::from_raw(found.pid)?,
            started: found.started,
            arguments: found.arguments,
            record: record.to_owned(),
        };
        this.is_running().then_some(this)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The arguments that it was started with.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        if let Ok(descriptor) = pidfd_open(self.pid, PidfdFlags::NONBLOCK)
            && self.is_running()
            && let Ok(descriptor) = register(descriptor)
        {
            // A pidfd becomes readable when its process has ended.
            let _ = descriptor.readable().await;
        }
    }

    /// Asks it to end, ends it if it has not after `grace`, and forgets it.
    ///
    /// # Errors
    /// It is still there long after the kill.
    pub async fn stop(&self, grace: Duration) -> Result<(), ProcessError> {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            tracing::warn!(pid = self.pid(), "the process did not end when asked to; killing it");
            self.signal(Signal::KILL);
            if tokio::time::timeout(Duration::from_secs(20), self.ended())
                .await
                .is_err()
            {
                return Err(ProcessError::Undying(self.pid.as_raw_nonzero().get()));
            }
        }
        match std::fs::remove_file(&self.record) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io(format!("removing {}", self.record.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Only ever reaches the process that was started: the descriptor pins it before its start time is looked at.
    fn signal(&self, signal: Signal) {
        if let Ok(descriptor) = pidfd_open(self.pid, PidfdFlags::empty())
            && self.is_running()
        {
            let _ = pidfd_send_signal(&descriptor, signal);
        }
    }
}

#[expect(unsafe_code, reason = "registering a file descriptor with the reactor")]
fn register(descriptor: rustix::fd::OwnedFd) -> std::io::Result<AsyncFd<rustix::fd::OwnedFd>> {
    // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until that is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, tokio::io::Interest::READABLE) }.map_err(Into::into)
}

/// Start time of a live process, in clock ticks since boot. Source: proc_pid_stat(5).
fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The command's name, in parentheses, may hold spaces; fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_found_again_and_ended() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let record = directory.path().join("process.json");
        let launch = Launch {
            program: Path::new("/bin/sh"),
            arguments: vec!["-c".into(), "trap '' TERM; while :; do sleep 60; done".into()],
            directory: directory.path(),
            log: &directory.path().join("log"),
            record: &record,
        };
        let started = Detached::start(&launch)?;
        let found = Detached::find(&record).ok_or("not found")?;
        assert_eq!(found.pid(), started.pid());
        assert_eq!(found.arguments(), launch.arguments);
        // It ignores the request, so this takes the kill.
        found.stop(Duration::from_millis(50)).await?;
        assert!(!started.is_running());
        assert!(Detached::find(&record).is_none() && !record.exists());
        started.ended().await;
        Ok(())
    }

    #[tokio::test]
    async fn another_process_of_the_same_number_is_not_taken_for_it() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let record = directory.path().join("process.json");
        let pid = std::process::id();
        std::fs::write(&record, format!(r#"{{"pid": {pid}, "started": 1, "arguments": []}}"#))?;
        assert!(Detached::find(&record).is_none());
        Ok(())
    }
}
