//! Test clusters, wait_for and fixtures. A dev-dependency only.
