//! Programs that print the figures of the benchmarks.
