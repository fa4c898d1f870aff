//! Both ends of the reverse tunnel between nodes and their control plane.
