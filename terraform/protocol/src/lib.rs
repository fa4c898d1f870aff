//! Terraform plug-in protocol 6: handshake, mTLS, cty values.
