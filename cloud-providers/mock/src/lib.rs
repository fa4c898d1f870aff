//! The mock cloud: sim and local modes over one state machine.
