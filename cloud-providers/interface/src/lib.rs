//! The cloud provider traits, error kinds, ownership tags and ledger types.
