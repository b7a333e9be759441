//! Questions by HTTP/1.1 to a server of somebody else's, with TLS or without.
//!
//! A client has one server and keeps connections to it. What comes back is bounded and otherwise not looked at. A question
//! that is given up (its future is dropped) takes its connection along.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::{Node, within};

/// Most connections to one server that are kept for the next question.
const IDLE_MAX: usize = 4;

/// Whom a client trusts, and how it proves who it is. Shows nothing of a key.
#[derive(Clone)]
pub struct Tls(TlsConnector);

impl Tls {
    /// `authorities`: certificates of those who sign servers' certificates. `identity`: own certificates, and their key. All
    /// as PEM. An error says in words what is wrong, and nothing of what the texts hold.
    pub fn new(authorities: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Tls, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| format!("a certificate is no authority's: {error}"))?;
        }
        Tls::of(roots, identity)
    }

    /// As [`Tls::new`] without an identity, for the list of a whole system: certificates in it that cannot be used are left out.
    pub fn of_system(authorities: &[u8]) -> Result<Tls, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(authorities)?);
        Tls::of(roots, None)
    }

    fn of(roots: RootCertStore, identity: Option<(&[u8], &[u8])>) -> Result<Tls, String> {
        if roots.is_empty() {
            return Err("there is no certificate in it".into());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "the key is no private key in PEM, or encrypted".to_owned())?;
                config
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| format!("certificate and key cannot be used: {error}"))?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    parsed.map_err(|_| "it holds no certificates in PEM".into())
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name or address, an IPv6 one without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A question.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// HTTP's method.
    pub method: &'a str,
    /// Path and query, as they are sent.
    pub target: &'a str,
    /// Headers, without `Host`, which the client adds.
    pub headers: &'a [(&'a str, &'a str)],
    /// What is sent.
    pub body: Bytes,
    /// A longer answer is an error, of the kind `FileTooLarge`.
    pub bytes_max: usize,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// What was said.
    pub body: Bytes,
    headers: HeaderMap,
}

impl Answer {
    /// One without headers.
    pub fn new(status: u16, body: Bytes) -> Answer {
        Answer { status, body, headers: HeaderMap::new() }
    }

    /// The first value of a header, if it is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Asks one server.
pub struct Client {
    handle: Handle,
    place: Place,
    tls: Option<Tls>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// For the server at `place`, which is asked with TLS if there is any.
    pub fn new(node: &Node, place: Place, tls: Option<Tls>) -> Client {
        Client { handle: node.inner.driver.handle.clone(), place, tls, idle: Mutex::default() }
    }

    /// Posts JSON. `token` is a secret that goes along; an answer of more than `bytes_max` is an error. Has no deadline of
    /// its own.
    pub async fn post(
        &self,
        path: &str,
        token: Option<&str>,
        body: Bytes,
        bytes_max: usize,
    ) -> io::Result<Answer> {
        let mut headers = vec![(CONTENT_TYPE.as_str(), "application/json")];
        headers.extend(token.map(|token| (AUTHORIZATION.as_str(), token)));
        self.ask(Question { method: "POST", target: path, headers: &headers, body, bytes_max }).await
    }

    /// Asks anything. Has no deadline of its own.
    pub async fn ask(&self, question: Question<'_>) -> io::Result<Answer> {
        within(&self.handle, self.ask_inside(question)).await
    }

    /// How the server is called in the header `Host`: with its port, if it is not the usual one.
    pub fn authority(&self) -> String {
        let Place { host, port } = &self.place;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let usual = if self.tls.is_some() { 443 } else { 80 };
        if *port == usual { host } else { format!("{host}:{port}") }
    }

    async fn ask_inside(&self, question: Question<'_>) -> io::Result<Answer> {
        let Question { method, target, headers, body, bytes_max } = question;
        let method = Method::from_bytes(method.as_bytes()).map_err(io::Error::other)?;
        let mut sender = self.sender().await?;
        let mut request = Request::builder().method(method).uri(target).header(HOST, self.authority());
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value).map_err(io::Error::other)?;
            // Some are, and no log needs any.
            value.set_sensitive(true);
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            match error.is::<LengthLimitError>() {
                true => io::Error::new(io::ErrorKind::FileTooLarge, error),
                false => io::Error::other(error),
            }
        })?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
        Ok(Answer { status: head.status.as_u16(), body: body.to_bytes(), headers: head.headers })
    }

    /// A connection that may be used.
    async fn sender(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        loop {
            let Some(mut kept) = self.idle.lock().pop() else { break };
            // One that the server has closed meanwhile is not.
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect((self.place.host.as_str(), self.place.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => begin(stream).await,
            Some(Tls(connector)) => {
                let name = ServerName::try_from(self.place.host.clone()).map_err(io::Error::other)?;
                begin(connector.connect(name, stream).await?).await
            }
        }
    }
}

async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends when the sender is gone, or the server closes it.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::trace!(%error, "an HTTP connection ends");
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::Rt;

    /// Answers each connection's questions with `answers`, one after the other, and closes it when there are no more; gives what it
    /// was asked.
    fn server(connections: Vec<Vec<&'static str>>) -> (Place, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let serving = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().expect("somebody connects");
                for answer in answers {
                    let mut question = vec![0; 4096];
                    let count = stream.read(&mut question).expect("a question");
                    asked.push(String::from_utf8_lossy(&question[..count]).into_owned());
                    stream.write_all(answer.as_bytes()).expect("it listens");
                }
            }
            asked
        });
        (Place { host: "127.0.0.1".into(), port }, serving)
    }

    #[test]
    fn connections_are_kept_and_made_anew() {
        let node = Node::start(2).expect("a node");
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let (place, serving) = server(vec![vec![good, good], vec![good]]);
        let client = Client::new(&node, place, None);
        node.block_on(async {
            for token in [None, Some("secret")] {
                let answer = client.post("/v3/kv/txn", token, Bytes::from_static(b"{1}"), 100).await;
                let answer = answer.expect("it answers");
                assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
                assert_eq!(answer.header("content-length"), Some("2"));
            }
            // The server has closed the connection, or is about to.
            let answer = loop {
                match client.post("/x", None, Bytes::new(), 100).await {
                    Ok(answer) => break answer,
                    Err(_) => Rt::os(node.clone()).sleep(Duration::from_millis(1)).await,
                }
            };
            assert_eq!(answer.status, 200);
        });
        let asked = serving.join().expect("the server ends");
        let first = asked.first().expect("it was asked").to_lowercase();
        assert!(
            first.starts_with("post /v3/kv/txn http/1.1\r\n") && first.contains("host: 127.0.0.1:"),
            "{first}"
        );
        assert!(!first.contains("authorization") && asked[1].contains("authorization: secret"), "{asked:?}");
    }

    #[test]
    fn answers_are_bounded_and_need_not_be_http() {
        let node = Node::start(2).expect("a node");
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let (place, _serving) = server(vec![vec![long], vec!["nonsense\r\n\r\n"], vec![""]]);
        let client = Client::new(&node, place, None);
        node.block_on(async {
            for _ in 0..3 {
                client.post("/", None, Bytes::new(), 1).await.expect_err("it is no good answer");
            }
        });
    }

    #[test]
    fn what_is_no_certificate_is_said() {
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Tls::new(pem.as_bytes(), None).is_err(), "{pem}");
        }
    }
}
