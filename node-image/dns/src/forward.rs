//! Questions that are not the cluster's go on as they are to the machine's resolvers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// How long one resolver may take; as the C library's default.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest message. Source: RFC 1035, section 4.2.2.
const LARGEST: usize = 65_535;

/// The machine's resolvers, in order.
pub(crate) struct Upstreams(Vec<SocketAddr>);

impl Upstreams {
    /// Those of a resolver configuration that are not ourselves. None at all is no failure: then only the cluster's own
    /// names are answered.
    pub(crate) fn read(path: &Path, own: &[IpAddr]) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let servers = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
        });
        Self(
            servers
                .filter(|server| !own.contains(server))
                .map(|server| SocketAddr::new(server, 53))
                .collect(),
        )
    }

    /// The first answer to a question, by the protocol in which it came.
    pub(crate) async fn ask(&self, question: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        for server in &self.0 {
            let exchange = async {
                if by_tcp {
                    tcp(*server, question).await
                } else {
                    udp(*server, question).await
                }
            };
            match tokio::time::timeout(PATIENCE, exchange).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "the resolver cannot be asked"),
                Err(_) => tracing::debug!(%server, "the resolver does not answer"),
            }
        }
        None
    }
}

async fn udp(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    // A port of its own for every question, and an identity that must match: what RFC 5452 asks for.
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= 2 && answer[..2] == question[..2.min(question.len())] {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_and_we_are_not_our_own() -> std::io::Result<()> {
        let path = std::env::temp_dir().join(format!("minato-dns-{}", std::process::id()));
        std::fs::write(
            &path,
            "search x\nnameserver 192.0.2.1\n# nameserver 192.0.2.2\nnameserver 10.96.0.10\nnameserver ::1\n",
        )?;
        let own = [IpAddr::from([10, 96, 0, 10])];
        let Upstreams(servers) = Upstreams::read(&path, &own);
        std::fs::remove_file(&path)?;
        let texts: Vec<String> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["192.0.2.1:53", "[::1]:53"]);
        Ok(())
    }
}
