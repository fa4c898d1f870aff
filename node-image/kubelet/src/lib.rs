//! The node agent: pods on containerd through CRI.
