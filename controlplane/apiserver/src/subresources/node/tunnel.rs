//! Where nodes offer their tunnel. Not part of the Kubernetes API, and in no discovery document.

use std::sync::Arc;

use minato_auth::UserInfo;
use minato_meta::{ApiError, ErrorKind};
use minato_streams::{TUNNEL_PATH, TUNNEL_PROTOCOL};

use super::upgrade::{self, ClientUpgrade, Wanted};
use crate::request::ApiRequest;
use crate::response::Response;
use crate::server::ApiServer;

const NODE_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";

/// The node that a user is.
fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())?;
    user.in_group(NODES).then_some(name)
}

/// Whether a request is for the tunnel and, if so, whether its requester may open one: a node, and only for itself.
/// No role grants it, so no authorizer is asked.
pub(crate) fn admits_tunnel(request: &ApiRequest) -> Option<Result<(), ApiError>> {
    if request.info.path != TUNNEL_PATH {
        return None;
    }
    Some(match node_of(&request.user) {
        Some(_) => Ok(()),
        None => Err(ApiError::new(
            ErrorKind::Forbidden,
            format!("forbidden: User {:?} is not a node", request.user.name),
        )),
    })
}

/// Takes a node's connection; `None` for other paths.
pub(crate) fn serve_tunnel(server: &Arc<ApiServer>, request: &mut ApiRequest) -> Option<Result<Response, ApiError>> {
    (request.info.path == TUNNEL_PATH).then(|| accept(server, request))
}

fn accept(server: &Arc<ApiServer>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let listener = server.deps().node_listener.clone().ok_or_else(ApiError::no_such_path)?;
    let node = node_of(&request.user).ok_or_else(ApiError::unauthorized)?.to_owned();
    let client = ClientUpgrade::take(request)?;
    match &client.wanted {
        Wanted::Other(name) if name.eq_ignore_ascii_case(TUNNEL_PROTOCOL) => {}
        _ => {
            return Err(ApiError::bad_request(format!(
                "only upgrades to {TUNNEL_PROTOCOL} are served here"
            )));
        }
    }
    let response = upgrade::switching(TUNNEL_PROTOCOL)?;
    client.run(server, move |stream| async move {
        listener.serve(&node, Box::new(stream)).await;
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_have_tunnels() {
        let user = |name: &str, group: &str| UserInfo {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..UserInfo::default()
        };
        assert_eq!(node_of(&user("system:node:a", "system:nodes")), Some("a"));
        for (name, group) in [
            ("system:node:a", "system:masters"),
            ("system:node:", "system:nodes"),
            ("a", "system:nodes"),
        ] {
            assert_eq!(node_of(&user(name, group)), None, "{name} {group}");
        }
    }
}
