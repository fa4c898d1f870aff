//! Informers, work queues, leader election, task supervision, metrics and tracing for every component.
