//! Who a request comes from (authentication) and whether it may do what it asks (authorization).
//!
//! ```text
//! UnionAuthenticator ─ X509 · ServiceAccount (JWT) · BootstrapToken        → UserInfo
//! UnionAuthorizer ──── Masters · Node (graph of pods) · Rbac (index)       → Decision
//! bootstrap_objects: the roles and bindings that every cluster has
//! ```
//!
//! Reads the cluster through [`minato_meta::ClusterReader`] only, and follows it into indexes of its own, so that a decision
//! costs microseconds whatever the size of the cluster. May depend on: machinery crates, ring, x509-parser.

mod attributes;
mod bootstrap_token;
mod follow;
mod issuer;
mod jws;
mod node;
mod policy;
mod privileged;
mod rbac;
mod service_account;
mod union;
mod x509;

pub use attributes::{Attributes, Authenticated, Authenticator, Authorizer, Credentials, Decision, RulesFor, UserInfo};
pub use bootstrap_token::BootstrapTokenAuthenticator;
pub use issuer::{BoundObject, IssuedToken, TokenIssuer, TokenSpec};
pub use jws::KeyError;
pub use node::{NodeAuthorizer, node_of};
pub use policy::bootstrap_objects;
pub use privileged::PrivilegedGroupAuthorizer;
pub use rbac::{RbacAuthorizer, RoleWrite, Rule};
pub use service_account::{DEFAULT_ISSUER, ServiceAccountAuthenticator, ServiceAccountKeys, user_name};
pub use union::{AUTHENTICATED, MastersAuthorizer, UNAUTHENTICATED, UnionAuthenticator, UnionAuthorizer};
pub use x509::X509Authenticator;
