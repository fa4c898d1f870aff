//! What a worker remembers between plans: who is held back, until when, and why. Lost with the kubelet, on purpose: a
//! restart tries everything at once again.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

/// First and longest back-off of a container that keeps ending.
const CRASH: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(10), SignedDuration::from_secs(300));
/// First and longest back-off of anything else that keeps failing.
const ERROR: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(1), SignedDuration::from_secs(60));

#[derive(Debug, Clone, Copy)]
struct Crash {
    delay: SignedDuration,
    updated: Timestamp,
}

/// Something that is not tried before a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) until: Timestamp,
    delay: SignedDuration,
    /// Shown as a waiting container's reason.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether a changed ConfigMap, Secret or pod may mend it.
    pub(crate) by_objects: bool,
}

/// Back-offs of one pod.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    crashes: HashMap<String, Crash>,
    holds: HashMap<String, Hold>,
}

impl Memory {
    /// Until when `name` is held back after a failure, if that is after `now`.
    pub(crate) fn held(&self, name: &str, now: Timestamp) -> Option<Timestamp> {
        self.holds.get(name).map(|hold| hold.until).filter(|until| *until > now)
    }

    /// The last failure, until it is overcome.
    pub(crate) fn hold(&self, name: &str) -> Option<&Hold> {
        self.holds.get(name)
    }

    /// Remembers a failure; each in a row doubles the pause.
    pub(crate) fn failed(&mut self, name: &str, now: Timestamp, reason: &str, message: String, by_objects: bool) {
        let before = self.holds.get(name).map(|hold| hold.delay);
        let delay = before.map_or(ERROR.0, |delay| (delay * 2).min(ERROR.1));
        self.hold_until(name, now + delay, reason, message, by_objects);
        if let Some(hold) = self.holds.get_mut(name) {
            hold.delay = delay;
        }
    }

    /// Holds `name` back until a time that another back-off gives.
    pub(crate) fn hold_until(&mut self, name: &str, until: Timestamp, reason: &str, message: String, by_objects: bool) {
        let hold = Hold {
            until,
            delay: ERROR.0,
            reason: reason.to_owned(),
            message,
            by_objects,
        };
        self.holds.insert(name.to_owned(), hold);
    }

    pub(crate) fn succeeded(&mut self, name: &str) {
        self.holds.remove(name);
    }

    /// What objects may mend is tried at once.
    pub(crate) fn objects_changed(&mut self, now: Timestamp) {
        for hold in self.holds.values_mut().filter(|hold| hold.by_objects) {
            hold.until = now;
        }
    }

    /// Until when a container that ended at `finished` waits for its restart.
    pub(crate) fn crash_until(&self, name: &str, finished: Timestamp) -> Option<Timestamp> {
        let crash = self.crashes.get(name)?;
        let calm = finished.duration_since(crash.updated) > CRASH.1 * 2;
        (!calm).then(|| finished + crash.delay)
    }

    /// The back-off now, for the message.
    pub(crate) fn crash_delay(&self, name: &str) -> Option<SignedDuration> {
        self.crashes.get(name).map(|crash| crash.delay)
    }

    /// A container is started again at `now` after it ended: its next restart waits longer.
    pub(crate) fn restarted(&mut self, name: &str, now: Timestamp) {
        let delay = match self.crashes.get(name) {
            Some(crash) if now.duration_since(crash.updated) <= CRASH.1 * 2 => (crash.delay * 2).min(CRASH.1),
            _ => CRASH.0,
        };
        self.crashes.insert(name.to_owned(), Crash { delay, updated: now });
    }
}
