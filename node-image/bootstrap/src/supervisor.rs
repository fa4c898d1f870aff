//! Keeps programs running, and does what process 1 has to: takes in orphans, and ends everything when it is asked to end.
//!
//! One thread that waits for signals: a child's end, a request to end, or the time at which a program is started again.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::say;

/// One that ran this long is started again at once.
const STEADY: Duration = Duration::from_secs(10);
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How long programs may take to end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A program to keep running.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// A path, or a name to look up.
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
}

struct Kept {
    program: Program,
    pid: Option<Pid>,
    started: Instant,
    pause: Duration,
    due: Option<Instant>,
}

/// All programs, in the order in which they were started; they are stopped in the opposite order.
pub(crate) struct Supervisor {
    kept: Vec<Kept>,
    logs: PathBuf,
    signals: SignalFd,
}

impl Supervisor {
    /// Blocks the signals that it handles: call it before there are other threads.
    pub(crate) fn new(logs: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(logs).with_context(|| format!("making {}", logs.display()))?;
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
            mask.add(signal);
        }
        mask.thread_block().context("blocking signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).context("waiting for signals")?;
        Ok(Self {
            kept: Vec::new(),
            logs: logs.to_owned(),
            signals,
        })
    }

    /// Starts a program and keeps it running from then on.
    pub(crate) fn start(&mut self, program: Program) -> anyhow::Result<()> {
        let mut kept = Kept {
            program,
            pid: None,
            started: Instant::now(),
            pause: Duration::ZERO,
            due: None,
        };
        self.launch(&mut kept)?;
        self.kept.push(kept);
        Ok(())
    }

    fn launch(&self, kept: &mut Kept) -> anyhow::Result<()> {
        use std::os::unix::process::CommandExt;
        let program = &kept.program;
        let log = self.logs.join(format!("{}.log", program.name));
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        unblock_signals(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", program.path.display()))?;
        kept.pid = i32::try_from(child.id()).ok().map(Pid::from_raw);
        kept.started = Instant::now();
        kept.due = None;
        say(&format!("{} started as process {}", program.name, child.id()));
        Ok(())
    }

    /// Runs until asked to end.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.reap();
            self.restart_due();
            if self.wait(self.kept.iter().filter_map(|kept| kept.due).min())? {
                say("asked to end");
                self.stop();
                return Ok(());
            }
        }
    }

    /// Waits for a signal, at most until `until`; true when it is one to end.
    fn wait(&self, until: Option<Instant>) -> anyhow::Result<bool> {
        let timeout = match until {
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for signals"),
        }
        let mut end = false;
        while let Some(signal) = self.signals.read_signal().context("reading a signal")? {
            end |= Signal::try_from(i32::try_from(signal.ssi_signo).unwrap_or(0)) != Ok(Signal::SIGCHLD);
        }
        Ok(end)
    }

    /// Takes in every child that has ended: programs, and orphans that nobody else waits for.
    fn reap(&mut self) {
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let pid = match status {
                WaitStatus::StillAlive => return,
                other => other.pid(),
            };
            let gone = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
            if let Some(kept) = self.kept.iter_mut().find(|kept| gone && kept.pid == pid) {
                ended(kept, &status);
            }
        }
    }

    fn restart_due(&mut self) {
        let now = Instant::now();
        let mut all = std::mem::take(&mut self.kept);
        for kept in all.iter_mut().filter(|kept| kept.due.is_some_and(|due| due <= now)) {
            if let Err(error) = self.launch(kept) {
                say(&format!("{}: {error:#}", kept.program.name));
                kept.due = Some(now + PAUSE.1);
            }
        }
        self.kept = all;
    }

    fn stop(&mut self) {
        let deadline = Instant::now() + STOP_GRACE;
        for at in (0..self.kept.len()).rev() {
            if let Some(pid) = self.kept[at].pid {
                let _ = kill(pid, Signal::SIGTERM);
            }
            while self.kept[at].pid.is_some() && Instant::now() < deadline {
                // Looked at from time to time besides: a signal may have gone to another thread.
                if self.wait(Some(Instant::now() + Duration::from_millis(100))).is_err() {
                    break;
                }
                self.reap();
            }
            if let Some(pid) = self.kept[at].pid {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }
}

fn ended(kept: &mut Kept, status: &WaitStatus) {
    let how = match status {
        WaitStatus::Exited(_, code) => format!("with code {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("by {signal}"),
        other => format!("{other:?}"),
    };
    kept.pid = None;
    kept.pause = if kept.started.elapsed() >= STEADY {
        Duration::ZERO
    } else {
        (kept.pause * 2).clamp(PAUSE.0, PAUSE.1)
    };
    kept.due = Some(Instant::now() + kept.pause);
    say(&format!(
        "{} ended {how}; starting it again in {:?}",
        kept.program.name, kept.pause
    ));
}

/// A child inherits the signal mask; with these blocked it could not be asked to end.
#[expect(unsafe_code, reason = "a function between fork and exec")]
fn unblock_signals(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure runs in the child between fork and exec and makes one async-signal-safe call (sigprocmask).
    unsafe {
        command.pre_exec(|| SigSet::all().thread_unblock().map_err(std::io::Error::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_started_again_and_all_end_when_asked() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let count = directory.path().join("count");
        let mut supervisor = Supervisor::new(&directory.path().join("log"))?;
        let script = format!(
            "echo x >> {0}; test $(wc -l < {0}) -lt 3 || exec sleep 1000",
            count.display()
        );
        supervisor.start(Program {
            name: "flaky",
            path: PathBuf::from("sh"),
            arguments: vec!["-c".to_owned(), script],
        })?;
        // Twice it ends at once; then it stays.
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&count).unwrap_or_default().lines().count() < 3 {
            anyhow::ensure!(Instant::now() < deadline, "it was not started again");
            supervisor.wait(Some(Instant::now() + Duration::from_millis(50)))?;
            supervisor.reap();
            supervisor.restart_due();
        }
        let pid = supervisor.kept[0].pid.context("it runs")?;
        supervisor.stop();
        assert_eq!(supervisor.kept[0].pid, None);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
        Ok(())
    }
}
