//! Workloads that end.

mod cron_job;
mod job;
mod schedule;

pub(super) use cron_job::CronJob;
pub(super) use job::Job;
pub use schedule::Schedule;
