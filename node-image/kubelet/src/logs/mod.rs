//! Containers' logs: reading what the runtime wrote, following it across rotations, and rotating it.
//!
//! A line is `<time> <stdout|stderr> <F|P> <text>`; `P` marks a part of a longer line.
//! Source: <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>.

mod line;
mod read;
mod rotate;

pub(crate) use read::{LogOptions, LogReader};
pub(crate) use rotate::rotate;
