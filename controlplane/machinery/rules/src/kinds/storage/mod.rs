//! Where volumes come from.

mod class;
mod csi;

pub(super) use class::{StorageClass, VolumeAttributesClass};
pub(super) use csi::{CsiDriver, CsiNode, CsiStorageCapacity, VolumeAttachment};
