//! Pages over HTTP/1.1, for whoever reads what a process shows: no TLS, no names, nothing that changes anything.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use super::{Node, within};
use crate::wait::race;

/// A browser keeps nothing, guesses nothing, and loads and asks nothing but what is here.
const PRECAUTIONS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
];
/// Most connections at a time. For one more the oldest is closed that has asked for nothing yet; if each has, it waits until one ends.
const CONNECTIONS_MAX: usize = 16;
/// How long somebody may take to say what is wanted.
const QUESTION_WAIT: Duration = Duration::from_secs(10);
/// How long a whole connection may last.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// How long a listener rests that cannot accept, as when there are no files left.
const REST: Duration = Duration::from_millis(100);

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// What proves that the asker may have it, as HTTP's `Authorization` says it.
    pub authorization: Option<String>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// HTTP's status.
    pub status: u16,
    /// Kind of the body, as HTTP's `Content-Type` says it.
    pub kind: &'static str,
    /// The body.
    pub body: String,
}

/// Answers questions for pages.
pub struct Server {
    listener: TcpListener,
    handle: Handle,
}

impl Server {
    /// Listens at `at`.
    ///
    /// # Errors
    /// The address is not of this machine, or taken.
    pub async fn listen(node: &Node, at: SocketAddr) -> io::Result<Server> {
        let handle = node.inner.driver.handle.clone();
        let listener = within(&handle, TcpListener::bind(at)).await?;
        Ok(Server { listener, handle })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers each GET by `answer`, for ever.
    pub async fn run<F>(self, answer: impl Fn(Asked) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Page> + Send + 'static,
    {
        let (answer, room) = (Arc::new(answer), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        let silent = Arc::new(Silent::default());
        let accepting = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        if room.available_permits() == 0 {
                            silent.close_oldest();
                        }
                        let Ok(place) = room.clone().acquire_owned().await else { return };
                        let (answer, silent) = (answer.clone(), silent.clone());
                        let (number, closed) = silent.enter();
                        tokio::spawn(async move {
                            let served = serve(stream, || silent.leave(number), &*answer);
                            race(served, closed.notified()).await;
                            silent.leave(number);
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no connection can be accepted");
                        sleep(REST).await;
                    }
                }
            }
        };
        within(&self.handle, accepting).await;
    }
}

/// Connections that have asked for nothing yet, the oldest first.
#[derive(Default)]
struct Silent(Mutex<(u64, BTreeMap<u64, Arc<Notify>>)>);

impl Silent {
    /// One more; it ends when it is told to.
    fn enter(&self) -> (u64, Arc<Notify>) {
        let (mut silent, closed) = (self.0.lock(), Arc::new(Notify::new()));
        silent.0 += 1;
        let number = silent.0;
        silent.1.insert(number, closed.clone());
        (number, closed)
    }

    fn leave(&self, number: u64) {
        self.0.lock().1.remove(&number);
    }

    fn close_oldest(&self) {
        if let Some((_, closed)) = self.0.lock().1.pop_first() {
            closed.notify_one();
        }
    }
}

async fn serve<F>(
    stream: TcpStream,
    has_asked: impl Fn() + Copy + Send + Sync,
    answer: &(impl Fn(Asked) -> F + Send + Sync),
) where
    F: Future<Output = Page> + Send,
{
    let service = service_fn(|request: Request<_>| async move {
        has_asked();
        let page = match *request.method() {
            Method::GET => {
                let authorization =
                    request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
                let path = request.uri().path().to_owned();
                answer(Asked { path, authorization: authorization.map(str::to_owned) }).await
            }
            _ => Page { status: 405, kind: "text/plain", body: "only GET is answered\n".into() },
        };
        Ok::<_, Infallible>(response(page))
    });
    let mut server = http1::Builder::new();
    // One question for each connection: idle ones would take the places of others.
    server.timer(TokioTimer::new()).header_read_timeout(QUESTION_WAIT).keep_alive(false);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_WAIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ends"),
        Err(_) => tracing::debug!("an HTTP connection lasts too long"),
    }
}

fn response(page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(page.body)));
    *response.status_mut() = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    for (name, value) in PRECAUTIONS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net;

    use super::*;

    fn ask(addr: SocketAddr, question: &str) -> String {
        let mut stream = net::TcpStream::connect(addr).expect("it listens");
        stream.write_all(question.as_bytes()).expect("it reads");
        let mut answer = String::new();
        // What is cut off is an error here, and no page.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn pages_are_answered_and_nothing_else() {
        let node = Node::start(2).expect("a node");
        let at = "127.0.0.1:0".parse().expect("an address");
        let server = node.block_on(Server::listen(&node, at)).expect("a port is free");
        let addr = server.addr().expect("it has an address");
        let page = |asked: Asked| async move {
            let body = format!("{}{}", asked.path, asked.authorization.unwrap_or_default());
            Page { status: 200, kind: "text/plain", body }
        };
        node.spawn_apart(Box::pin(server.run(page)));
        let good = ask(addr, "GET /metrics?x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\n/metrics"), "{good}");
        assert!(good.to_lowercase().contains("content-type: text/plain"), "{good}");
        let said = ask(addr, "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n");
        assert!(said.ends_with("\r\n\r\n/aBearer x"), "{said}");
        let post = ask(addr, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
        assert!(!ask(addr, "nonsense\r\n\r\n").contains("200"));
        let again = ask(addr, "GET / HTTP/1.0\r\n\r\n");
        assert!(again.contains(" 200 "), "{again}");
        // Those who say nothing keep nobody out.
        let idle: Vec<net::TcpStream> =
            (0..3 * CONNECTIONS_MAX).map(|_| net::TcpStream::connect(addr).expect("it listens")).collect();
        let began = std::time::Instant::now();
        assert!(ask(addr, "GET /b HTTP/1.1\r\nHost: a\r\n\r\n").contains(" 200 "));
        assert!(began.elapsed() < QUESTION_WAIT / 2, "{:?}", began.elapsed());
        drop(idle);
        node.stop(Duration::from_secs(1));
    }
}
