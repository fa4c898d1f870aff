//! Services on a node, by nftables.
//!
//! ```text
//! informers ─> model (what a Service means on this node) ─> render (chains and elements) ─> table (differences) ─> nft
//! ```
//!
//! A change of one Service is rendered alone, and only what differs from before is sent: the cost of a change does not
//! grow with the number of Services, neither here nor in the kernel, which looks addresses up in maps. IPv4 for now.
//! May depend on: machinery's `minato-api`, `minato-runtime`.
//! Source: <https://kubernetes.io/docs/reference/networking/virtual-ips/>.

mod conntrack;
mod health;
mod model;
mod nft;
mod proxy;
mod render;
mod table;

pub use nft::NftError;
pub use proxy::{Proxy, ProxyConfig};
