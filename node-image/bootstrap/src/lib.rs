//! First boot: from instance metadata to a registered node.
