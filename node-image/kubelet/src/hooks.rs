//! Lifecycle hooks of containers.

use std::time::Duration;

use minato_api::apimachinery::pkg::util::intstr::IntOrString;
use minato_api::k8s::core::v1::{Container, LifecycleHandler};

use crate::context::Context;
use crate::probes::{http_get, tcp_connect};

/// The number of a port that may be given by name.
pub(crate) fn port_of(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            let found = ports
                .filter(|port| port.name.as_ref() == Some(name))
                .map(|port| port.container_port)
                .next();
            let number = found.or_else(|| name.parse().ok());
            number.ok_or_else(|| format!("the container has no port named {name:?}"))?
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

/// Runs a hook in a running container; what went wrong, as text.
pub(crate) async fn run(
    context: &Context,
    container: &Container,
    id: &str,
    ip: &str,
    hook: &LifecycleHandler,
    limit: Duration,
) -> Result<(), String> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        let answer = context
            .cri
            .exec_sync(id, command, limit)
            .await
            .map_err(|error| error.to_string())?;
        return match answer.exit_code {
            0 => Ok(()),
            code => {
                let output =
                    String::from_utf8_lossy(&answer.stdout).into_owned() + &String::from_utf8_lossy(&answer.stderr);
                Err(format!("the command exited with {code}: {output}"))
            }
        };
    }
    let action = async {
        if let Some(http) = &hook.http_get {
            let port = port_of(container, &http.port)?;
            http_get(http, port, ip, limit).await.map(drop)
        } else if let Some(tcp) = &hook.tcp_socket {
            let port = port_of(container, &tcp.port)?;
            let host = tcp.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
            tcp_connect(host, port).await
        } else if let Some(sleep) = &hook.sleep {
            tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
            Ok(())
        } else {
            Err("the hook says nothing to do".to_owned())
        }
    };
    match tokio::time::timeout(limit, action).await {
        Ok(result) => result,
        Err(_) => Err("the hook did not end in time".to_owned()),
    }
}
