//! CRI v1 client and a fake runtime for tests.
