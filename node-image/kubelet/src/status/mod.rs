//! A pod's status: computed ([`compute`]) and sent ([`StatusSender`]).

mod compute;
mod mirror;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use compute::{Outcome, Situation, compute};
pub(crate) use mirror::remove_mirror;
pub(crate) use send::{StatusSender, confirm_deletion, send_now};
