//! One tenant's control plane as a value: started from a config, stopped by its handle. No globals.
