//! A server for tests that answers what it is told to, one answer for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rt::Rt;
use rt::os::Node;

use super::bucket::Options;
use super::client::Client;
use super::credentials::Credentials;

/// The server, and a client of its bucket `lab`.
pub struct Fake {
    node: Node,
    /// Asks the server.
    pub client: Arc<Client>,
    serving: JoinHandle<Vec<String>>,
}

impl Fake {
    /// One that gives these answers in their order.
    pub fn new(answers: &[&str]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let answers: Vec<String> = answers.iter().map(|text| (*text).to_owned()).collect();
        let serving =
            std::thread::spawn(move || answers.iter().map(|text| answer(&listener, text)).collect());
        let node = Node::start(2).expect("a node");
        let options = Options::at(&format!("http://127.0.0.1:{port}"));
        let bucket = options.bucket(Path::new("s3://lab")).expect("it is good").expect("it is a bucket");
        let http = options.client(&node, &bucket).expect("no TLS is needed");
        let credentials = Credentials::new("ID", "hush", None).expect("they are credentials");
        let client = Arc::new(Client::new(&Rt::os(node.clone()), http, bucket, credentials));
        Fake { node, client, serving }
    }

    /// Runs `asking`.
    pub fn block_on<F: Future>(&self, asking: F) -> F::Output {
        self.node.block_on(asking)
    }

    /// What it was asked, in small letters: it has to have been asked as often as it has answers.
    pub fn end(self) -> Vec<String> {
        self.node.stop(Duration::from_secs(1));
        self.serving.join().expect("it was asked as often as it has answers")
    }
}

/// Gives the next connection an answer, and what was asked before its body.
fn answer(listener: &TcpListener, text: &str) -> String {
    let (stream, _) = listener.accept().expect("somebody connects");
    let mut stream = BufReader::new(stream);
    let (mut question, mut body) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a question");
        let line = line.to_lowercase();
        if line == "\r\n" || line.is_empty() {
            break;
        }
        if let Some(len) = line.strip_prefix("content-length:") {
            body = len.trim().parse().expect("a length");
        }
        question.push_str(&line);
    }
    std::io::copy(&mut stream.by_ref().take(body), &mut std::io::sink()).expect("a body");
    stream.get_mut().write_all(text.as_bytes()).expect("it listens");
    question
}
