//! A stand-in for a kubelet: its HTTPS API, with processes of this machine for containers.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use minato_pki::{ClusterPki, Issued, Serving};
use minato_streams::spdy::{ReadHalf, Session, SpdyStream, WriteHalf};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) const NODE: &str = "n1";

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(pki: &ClusterPki) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in pki.cluster().trusted() {
        roots.add(authority.clone()).unwrap();
    }
    Arc::new(roots)
}

/// TLS of a client of the API server.
pub(crate) fn client_tls(pki: &ClusterPki, identity: &Issued) -> Arc<rustls::ClientConfig> {
    let (chain, key) = identity.to_tls().unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(pki))
        .with_client_auth_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

/// A serving certificate for a node of this name.
pub(crate) fn serving_for(pki: &ClusterPki, name: &str) -> Issued {
    let serving = Serving {
        names: vec![name.to_owned()],
        addresses: Vec::new(),
    };
    pki.issue_serving(name, &serving).unwrap()
}

/// Serves on loopback until the runtime ends.
pub(crate) async fn serve(pki: &ClusterPki, certificate: &Issued) -> SocketAddr {
    let (chain, key) = certificate.to_tls().unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(pki), provider())
        .build()
        .unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service =
                    hyper::service::service_fn(|request| async { Ok::<_, std::convert::Infallible>(answer(request)) });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = connection.with_upgrades().await;
            });
        }
    });
    address
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response
}

fn answer(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["containerLogs", "default", "waiting", _] => text(
            StatusCode::BAD_REQUEST,
            "container \"c\" in pod \"waiting\" is waiting to start: ContainerCreating",
        ),
        ["containerLogs", namespace, pod, container] => {
            text(StatusCode::OK, format!("{namespace}/{pod}/{container}?{query}\n"))
        }
        ["exec" | "attach", _, _, _] => upgraded(request, "v4.channel.k8s.io", move |session, streams| {
            command(session, streams, query)
        }),
        ["portForward", _, _] => upgraded(request, "portforward.k8s.io", forward),
        ["pods"] => text(StatusCode::OK, "{\"kind\":\"PodList\"}"),
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn upgraded<F>(
    request: Request<Incoming>,
    protocol: &'static str,
    run: impl FnOnce(Session, mpsc::Receiver<SpdyStream>) -> F + Send + 'static,
) -> Response<Full<Bytes>>
where
    F: Future<Output = ()> + Send,
{
    if request.headers().get("x-stream-protocol-version").is_none() {
        return text(StatusCode::BAD_REQUEST, "no stream protocol");
    }
    tokio::spawn(async move {
        let stream = hyper::upgrade::on(request).await.unwrap();
        let (session, streams) = Session::server(TokioIo::new(stream)).unwrap();
        run(session, streams).await;
    });
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", header::HeaderValue::from_static(protocol));
    response
}

fn decode(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

/// Runs the command of an exec; for an attach, `cat`.
async fn command(session: Session, mut accepted: mpsc::Receiver<SpdyStream>, query: String) {
    let pairs: Vec<(String, String)> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name.to_owned(), decode(value)))
        .collect();
    let is_set = |name: &str| pairs.iter().any(|(n, v)| n == name && v == "1");
    let expected = 1 + ["input", "output", "error", "tty"].iter().filter(|n| is_set(n)).count();
    let (mut stdin, mut stdout, mut stderr, mut error) = (None, None, None, None);
    let mut others = Vec::new();
    for _ in 0..expected {
        let stream = accepted.recv().await.unwrap();
        let kind = stream.header("streamtype").unwrap().to_owned();
        let (writer, reader) = stream.split();
        match kind.as_str() {
            "stdin" => stdin = Some(reader),
            "stdout" => stdout = Some(writer),
            "stderr" => stderr = Some(writer),
            "error" => error = Some(writer),
            _ => others.push(reader),
        }
    }
    let mut words: Vec<String> = pairs
        .iter()
        .filter(|(n, _)| n == "command")
        .map(|(_, v)| v.clone())
        .collect();
    if words.is_empty() {
        words = vec!["cat".to_owned()];
    }
    let child = tokio::process::Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(why) => return fail(error.unwrap(), &format!("no such command: {why}"), "InternalError", "").await,
    };
    let input = feed(stdin, child.stdin.take().unwrap());
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let output = async { tokio::join!(drain(out, stdout), drain(err, stderr), child.wait()) };
    let status = tokio::select! {
        ((), (), status) = output => status.unwrap(),
        ((), ()) = async { tokio::join!(input, std::future::pending()) } => return,
        () = session.closed() => return,
    };
    let error = error.unwrap();
    match status.code() {
        Some(0) => {
            error
                .write(Bytes::from_static(b"{\"metadata\":{},\"status\":\"Success\"}"))
                .await
                .unwrap();
            error.finish().await.unwrap();
        }
        code => {
            let code = code.unwrap_or(137).to_string();
            fail(
                error,
                &format!("command terminated with non-zero exit code {code}"),
                "NonZeroExitCode",
                &code,
            )
            .await;
        }
    }
    // As the real ones do: whatever was said goes out before the connection closes.
    drop((session, others));
}

async fn fail(error: WriteHalf, message: &str, reason: &str, code: &str) {
    let status = serde_json::json!({
        "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "details": {"causes": [{"reason": "ExitCode", "message": code}]},
    });
    error.write(status.to_string().into()).await.unwrap();
    error.finish().await.unwrap();
}

async fn feed(reader: Option<ReadHalf>, mut to: tokio::process::ChildStdin) {
    let Some(mut reader) = reader else { return };
    while let Some(Ok(data)) = reader.next().await {
        if to.write_all(&data).await.is_err() {
            return;
        }
    }
}

async fn drain(mut from: impl tokio::io::AsyncRead + Unpin, to: Option<WriteHalf>) {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                if let Some(to) = &to {
                    to.write(Bytes::copy_from_slice(&buffer[..n])).await.unwrap();
                }
            }
        }
    }
    if let Some(to) = to {
        to.finish().await.unwrap();
    }
}

/// Joins each data stream with the port that it names.
async fn forward(session: Session, mut accepted: mpsc::Receiver<SpdyStream>) {
    let mut errors = Vec::new();
    while let Some(stream) = accepted.recv().await {
        let port: u16 = stream.header("port").unwrap().parse().unwrap();
        if stream.header("streamtype") == Some("error") {
            errors.push(stream);
            continue;
        }
        let error = errors.pop();
        tokio::spawn(async move {
            let (writer, mut reader) = stream.split();
            let connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from, mut to) = connection.into_split();
            let upload = async {
                while let Some(Ok(data)) = reader.next().await {
                    to.write_all(&data).await.unwrap();
                }
                let _ = to.shutdown().await;
            };
            let download = async {
                let mut buffer = vec![0; 32 * 1024];
                while let Ok(n @ 1..) = from.read(&mut buffer).await {
                    writer.write(Bytes::copy_from_slice(&buffer[..n])).await.unwrap();
                }
                writer.finish().await.unwrap();
            };
            tokio::join!(upload, download);
            if let Some(error) = error {
                error.split().0.finish().await.unwrap();
            }
        });
    }
    drop(session);
}
