//! The controller manager: one folder per controller.
