//! Who a request comes from (authentication) and whether it may do what it asks (authorization).
//!
//! Reads the cluster through [`minato_meta::ClusterReader`] only. May depend on: machinery crates, `pki`, JWT and x509
//! libraries.

mod attributes;
mod issuer;
mod privileged;
mod x509;

pub use attributes::{Attributes, Authenticated, Authenticator, Authorizer, Credentials, Decision, RulesFor, UserInfo};
pub use issuer::{BoundObject, IssuedToken, TokenIssuer, TokenSpec};
pub use privileged::PrivilegedGroupAuthorizer;
pub use x509::X509Authenticator;
