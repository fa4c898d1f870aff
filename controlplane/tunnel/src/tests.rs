//! Both ends against each other, over a pipe instead of an upgraded connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use minato_runtime::Tasks;
use minato_streams::{Egress, EgressError, NodeListener, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::{AgentConfig, TunnelServer, agent};

const LIMIT: Duration = Duration::from_secs(10);

fn kubelet() -> Target {
    Target::Kubelet { node: "n1".to_owned() }
}

fn config(kubelet: SocketAddr) -> AgentConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    AgentConfig {
        node: "n1".to_owned(),
        server: String::new(),
        server_name: String::new(),
        tls: watch::channel(Arc::new(tls)).1,
        kubelet,
    }
}

/// A server with one tunnel, to a node whose kubelet is at this address.
async fn tunnel(kubelet: SocketAddr, tasks: &Tasks) -> Arc<TunnelServer> {
    let server = Arc::new(TunnelServer::new());
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (of_agent, own) = (tasks.clone(), server.clone());
    tasks.spawn("agent", async move {
        agent::serve(TokioIo::new(far), &mut config(kubelet), &of_agent).await;
    });
    tasks.spawn("server", async move { own.serve("n1", Box::new(near)).await });
    tokio::time::timeout(LIMIT, async {
        while server.nodes().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    server
}

#[tokio::test]
async fn streams_that_nobody_reads_do_not_stop_the_others() {
    // Sends without end to whoever says nothing, and back what it got to whoever speaks.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut first = [0];
                stream.read_exact(&mut first).await.unwrap();
                if first == *b"f" {
                    while stream.write_all(&[0; 64 * 1024]).await.is_ok() {}
                }
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    let tasks = Tasks::new();
    let server = tunnel(address, &tasks).await;
    let mut stuck = Vec::new();
    for _ in 0..64 {
        let mut stream = server.connect(&kubelet()).await.unwrap();
        stream.write_all(b"f").await.unwrap();
        // Its first byte has come; more than its window is on the way.
        let mut byte = [0];
        tokio::time::timeout(LIMIT, stream.read_exact(&mut byte))
            .await
            .unwrap()
            .unwrap();
        stuck.push(stream);
    }
    let talk = async {
        let mut stream = server.connect(&kubelet()).await.unwrap();
        let sent = vec![9; 1_000_000];
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let write = async {
            writer.write_all(b"e").await.unwrap();
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let ((), read) = tokio::join!(write, reader.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent);
    };
    tokio::time::timeout(LIMIT, talk).await.unwrap();
    tasks.stop().await;
}

#[tokio::test]
async fn what_cannot_be_dialled_says_why() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let tasks = Tasks::new();
    let server = tunnel(unused, &tasks).await;
    let reason = |result: Result<_, EgressError>| match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("connected"),
    };
    let text = reason(server.connect(&kubelet()).await);
    assert!(
        text.contains("the kubelet of node \"n1\": dial tcp") && text.contains("refused"),
        "{text}"
    );
    let host = |host: &str| Target::Address {
        host: host.to_owned(),
        port: 80,
    };
    let text = reason(server.connect(&host("169.254.169.254")).await);
    assert!(text.contains("not an address that may be dialled"), "{text}");
    let text = reason(server.connect(&host("a b")).await);
    assert!(text.contains("not a host and port"), "{text}");
    let other = Target::Kubelet { node: "n2".to_owned() };
    assert!(reason(server.connect(&other).await).contains("no tunnel to node \"n2\" is up"));
    tasks.stop().await;
    // With the tunnel gone, nothing is dialled at all.
    assert!(matches!(
        server.connect(&host("10.0.0.1")).await,
        Err(EgressError::NoTunnel(_))
    ));
}
