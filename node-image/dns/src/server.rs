//! Questions in, answers out, by UDP and TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::DNSClass;
use minato_runtime::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::forward::Upstreams;
use crate::zone::{Answer, Zone};

/// Questions that may wait for other resolvers at a time; more are dropped, and clients ask again.
const AT_A_TIME: usize = 1024;
/// How long a TCP client may be silent. Source: RFC 7766, section 6.2.3.
const SILENCE: Duration = Duration::from_secs(10);

struct Server {
    zone: Arc<Zone>,
    upstreams: Arc<Upstreams>,
    permits: Arc<Semaphore>,
}

/// Starts to answer at an address.
pub(crate) async fn start(
    address: SocketAddr,
    zone: &Arc<Zone>,
    upstreams: &Arc<Upstreams>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let server = Arc::new(Server {
        zone: zone.clone(),
        upstreams: upstreams.clone(),
        permits: Arc::new(Semaphore::new(AT_A_TIME)),
    });
    let socket = UdpSocket::bind(address)
        .await
        .with_context(|| format!("listening on {address} by UDP"))?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listening on {address} by TCP"))?;
    tasks.spawn("dns by UDP", by_udp(server.clone(), Arc::new(socket)));
    tasks.spawn("dns by TCP", by_tcp(server, listener));
    Ok(())
}

async fn by_udp(server: Arc<Server>, socket: Arc<UdpSocket>) {
    let mut buffer = vec![0; 65_535];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "receiving a question failed");
                continue;
            }
        };
        let Ok(permit) = server.permits.clone().try_acquire_owned() else {
            continue;
        };
        let (server, socket, question) = (server.clone(), socket.clone(), buffer[..length].to_vec());
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(answer) = server.answer(&question, false).await {
                let _ = socket.send_to(&answer, from).await;
            }
        });
    }
}

async fn by_tcp(server: Arc<Server>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let Ok(permit) = server.permits.clone().try_acquire_owned() else {
            continue;
        };
        let server = server.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = conversation(&server, stream).await {
                tracing::debug!(%error, "a TCP client is gone");
            }
        });
    }
}

async fn conversation(server: &Server, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let Ok(length) = tokio::time::timeout(SILENCE, stream.read_u16()).await else {
            return Ok(());
        };
        let mut question = vec![0; usize::from(length?)];
        tokio::time::timeout(SILENCE, stream.read_exact(&mut question)).await??;
        let Some(answer) = server.answer(&question, true).await else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        stream.write_all(&length.to_be_bytes()).await?;
        stream.write_all(&answer).await?;
    }
}

impl Server {
    /// The answer to a message; none for what is no question at all.
    async fn answer(&self, bytes: &[u8], by_tcp: bool) -> Option<Vec<u8>> {
        let question = match Message::from_vec(bytes) {
            Ok(question) if question.metadata.message_type == MessageType::Query => question,
            Ok(_) => return None,
            Err(_) => {
                let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
                return Message::error_msg(id, OpCode::Query, ResponseCode::FormErr)
                    .to_vec()
                    .ok();
            }
        };
        let answer = match self.local(&question) {
            Some(answer) => answer,
            None => match self.upstreams.ask(bytes, by_tcp).await {
                Some(answer) => return Some(answer),
                None => reply(&question, ResponseCode::ServFail),
            },
        };
        let encoded = answer.to_vec().ok()?;
        if !by_tcp && encoded.len() > usize::from(question.max_payload()) {
            return answer.truncate().to_vec().ok();
        }
        Some(encoded)
    }

    /// The answer, when the question is about the cluster, or cannot be answered by anybody.
    fn local(&self, question: &Message) -> Option<Message> {
        if question.metadata.op_code != OpCode::Query {
            return Some(reply(question, ResponseCode::NotImp));
        }
        let [query] = question.queries.as_slice() else {
            return Some(reply(question, ResponseCode::FormErr));
        };
        if query.query_class != DNSClass::IN {
            return None;
        }
        let (code, records) = match self.zone.answer(&query.name, query.query_type)? {
            Answer::Records(records) => (ResponseCode::NoError, records),
            Answer::NoSuchName => (ResponseCode::NXDomain, Vec::new()),
        };
        let mut message = reply(question, code);
        message.metadata.authoritative = true;
        if records.is_empty() {
            message.add_authority(self.zone.authority());
        }
        message.add_answers(records);
        Some(message)
    }
}

fn reply(question: &Message, code: ResponseCode) -> Message {
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata.recursion_desired = question.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.add_queries(question.queries.iter().cloned());
    if question.edns.is_some() {
        message.set_edns(hickory_proto::op::Edns::new());
    }
    message
}
