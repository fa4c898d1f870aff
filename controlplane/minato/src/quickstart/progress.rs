//! Shows what is being waited for: a spinner for people, a line per step for logs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One step.
pub(super) struct Step {
    bar: ProgressBar,
    what: String,
    began: Instant,
    terminal: bool,
}

impl Step {
    pub(super) fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.set_message(what.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self {
            bar,
            what,
            began: Instant::now(),
            terminal,
        }
    }

    pub(super) fn say(&self, more: &str) {
        self.bar.set_message(format!("{}: {more}", self.what));
    }

    pub(super) fn done(self) {
        let line = format!("✔ {} ({:.1} s)", self.what, self.began.elapsed().as_secs_f32());
        self.bar.finish_and_clear();
        if self.terminal {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
    }
}
