//! The scheduler: queue, snapshot, framework, plug-ins, binder.
