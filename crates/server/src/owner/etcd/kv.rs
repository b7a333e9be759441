//! What is asked of etcd's HTTP interface, and what its answers mean: JSON, with numbers as texts and bytes in base64.
//!
//! Answers are not trusted: each number and text is checked, and what does not fit is said in a sentence.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use proto::Nid;
use proto::limits::NIDS_MAX;
use proto::owner::{Record, Server};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where transactions are posted.
pub(super) const TXN_PATH: &str = "/v3/kv/txn";
/// Where a password is changed for a token.
pub(super) const AUTHENTICATE_PATH: &str = "/v3/auth/authenticate";
/// Most bytes of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most bytes of an error's text that are repeated.
const ERROR_BYTES_MAX: usize = 200;
/// Version of the format of an owner.
const FORMAT: u32 = 1;
/// Longest name of a server.
const SERVER_BYTES_MAX: usize = 255;
/// Longest address.
const NID_BYTES_MAX: usize = 255;

/// A condition: a key is at this revision; 0: there is no such key.
pub(super) struct Compare {
    pub key: String,
    pub revision: u64,
}

/// One step of a transaction.
pub(super) enum Step {
    Get(String),
    Put(String, String),
}

/// A transaction: all of `then` if all conditions hold, otherwise all of `otherwise`.
#[derive(Default)]
pub(super) struct Txn {
    pub conditions: Vec<Compare>,
    pub then: Vec<Step>,
    pub otherwise: Vec<Step>,
}

impl Txn {
    /// As etcd takes it.
    pub fn encode(&self) -> Bytes {
        let condition = |compare: &Compare| {
            json!({"target": "MOD", "result": "EQUAL", "key": STANDARD.encode(&compare.key),
                   "mod_revision": compare.revision.to_string()})
        };
        let step = |step: &Step| match step {
            Step::Get(key) => json!({"request_range": {"key": STANDARD.encode(key)}}),
            Step::Put(key, value) => {
                json!({"request_put": {"key": STANDARD.encode(key), "value": STANDARD.encode(value)}})
            }
        };
        let all = |steps: &[Step]| steps.iter().map(step).collect::<Vec<Value>>();
        let conditions: Vec<Value> = self.conditions.iter().map(condition).collect();
        let body =
            json!({"compare": conditions, "success": all(&self.then), "failure": all(&self.otherwise)});
        Bytes::from(body.to_string())
    }
}

/// A key that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Revision of its newest change.
    pub revision: u64,
    pub value: Vec<u8>,
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Of which cluster.
    pub cluster: u64,
    /// The revision after it.
    pub revision: u64,
    /// Whether all conditions held.
    pub held: bool,
    /// What each [`Step::Get`] of the steps that were made has found.
    pub found: Vec<Option<Found>>,
}

#[derive(Deserialize)]
struct Answer {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Header {
    cluster_id: String,
    revision: String,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    mod_revision: String,
    #[serde(default)]
    value: String,
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "an answer has a text where a number belongs".to_owned())
}

impl Outcome {
    /// Reads the answer to `txn`.
    pub fn decode(txn: &Txn, body: &[u8]) -> Result<Outcome, String> {
        let answer: Answer =
            serde_json::from_slice(body).map_err(|error| format!("an answer is not etcd's: {error}"))?;
        let steps = if answer.succeeded { &txn.then } else { &txn.otherwise };
        if answer.responses.len() != steps.len() {
            return Err(format!("an answer has {} parts, and not {}", answer.responses.len(), steps.len()));
        }
        let mut found = Vec::new();
        for (step, response) in steps.iter().zip(&answer.responses) {
            if matches!(step, Step::Put(..)) {
                continue;
            }
            let range = response.response_range.as_ref().ok_or("an answer lacks a part")?;
            found.push(range.kvs.first().map(KeyValue::decode).transpose()?);
        }
        let (cluster, revision) = (number(&answer.header.cluster_id)?, number(&answer.header.revision)?);
        Ok(Outcome { cluster, revision, held: answer.succeeded, found })
    }
}

impl KeyValue {
    fn decode(&self) -> Result<Found, String> {
        let value = STANDARD.decode(&self.value).map_err(|_| "an answer has a value that is not base64")?;
        let revision = number(&self.mod_revision)?;
        if revision == 0 { Err("a key has revision 0".into()) } else { Ok(Found { revision, value }) }
    }
}

/// Why etcd refuses: its text, bounded and without anything that could confuse a log.
pub(super) fn refusal(status: u16, body: &[u8]) -> String {
    let said: Option<String> = serde_json::from_slice::<Value>(body).ok().and_then(|said| {
        ["error", "message"].iter().find_map(|key| Some(said.get(key)?.as_str()?.to_owned()))
    });
    let text: String =
        said.unwrap_or_default().chars().filter(|c| !c.is_control()).take(ERROR_BYTES_MAX).collect();
    if text.is_empty() { format!("HTTP status {status}") } else { text }
}

/// Asks for a token.
pub(super) fn authenticate(user: &str, password: &str) -> Bytes {
    Bytes::from(json!({"name": user, "password": password}).to_string())
}

/// The token in an answer.
pub(super) fn token(body: &[u8]) -> Option<String> {
    let token = serde_json::from_slice::<Value>(body).ok()?.get("token")?.as_str()?.to_owned();
    (!token.is_empty()).then_some(token)
}

#[derive(Serialize, Deserialize)]
struct RecordText {
    format: u32,
    epoch: u64,
    server: String,
    /// Hexadecimal: not every reader of JSON takes 64 bits.
    instance: String,
    nids: Vec<String>,
    released: bool,
    reserved: String,
    #[serde(default)]
    former: Option<ServerText>,
}

#[derive(Serialize, Deserialize)]
struct ServerText {
    server: String,
    instance: String,
    nids: Vec<String>,
}

impl ServerText {
    fn of(server: &Server) -> ServerText {
        ServerText {
            server: server.name.clone(),
            instance: format!("{:016x}", server.instance),
            nids: server.nids.iter().map(Nid::to_string).collect(),
        }
    }

    fn decode(self) -> Result<Server, String> {
        if self.server.len() > SERVER_BYTES_MAX || self.nids.len() > NIDS_MAX {
            return Err("it names a server that is too long".into());
        }
        if self.nids.iter().any(|nid| nid.len() > NID_BYTES_MAX) {
            return Err("it names an address that is too long".into());
        }
        let instance = u64::from_str_radix(&self.instance, 16).map_err(|_| "instance is no number")?;
        let nids: Result<Vec<Nid>, _> = self.nids.iter().map(|nid| nid.parse()).collect();
        let nids = nids.map_err(|_| "it names an address that is none")?;
        Ok(Server { name: self.server, instance, nids })
    }
}

/// An owner as text.
pub(super) fn encode_record(record: &Record) -> String {
    let ServerText { server, instance, nids } = ServerText::of(&record.server);
    let text = RecordText {
        format: FORMAT,
        epoch: record.epoch,
        server,
        instance,
        nids,
        released: record.released,
        reserved: record.reserved.clone(),
        former: record.former.as_ref().map(ServerText::of),
    };
    json!(text).to_string()
}

/// The owner in a text.
pub(super) fn decode_record(value: &[u8]) -> Result<Record, String> {
    let text: RecordText = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if text.format != FORMAT {
        return Err(format!("it has format {}, and this program knows {FORMAT}", text.format));
    }
    if text.reserved.len() > SERVER_BYTES_MAX {
        return Err("it names a server that is too long".into());
    }
    let server = ServerText { server: text.server, instance: text.instance, nids: text.nids }.decode()?;
    let former = text.former.map(ServerText::decode).transpose()?;
    Ok(Record { epoch: text.epoch, server, released: text.released, reserved: text.reserved, former })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let nids = vec!["10.0.0.1@tcp".parse().expect("a NID")];
        let server = Server { name: "oss1".into(), instance: u64::MAX, nids };
        let former = Some(Server { name: "oss2".into(), instance: 1, nids: vec![] });
        Record { epoch: 7, server, released: false, reserved: "oss3".into(), former }
    }

    #[test]
    fn an_owner_reads_as_it_was_written() {
        let text = encode_record(&record());
        assert_eq!(decode_record(text.as_bytes()), Ok(record()));
        assert!(
            text.contains(r#""epoch":7"#) && text.contains(r#""server":"oss1""#),
            "a person can read it: {text}"
        );
        for at in 0..text.len() {
            assert!(decode_record(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn no_text_is_taken_for_an_owner_that_is_none() {
        let good = encode_record(&record());
        let long = "x".repeat(300);
        for (from, to) in [
            (r#""format":1"#, r#""format":2"#),
            (r#""epoch":7"#, r#""epoch":-7"#),
            ("10.0.0.1@tcp", "nonsense"),
            ("ffffffffffffffff", "not a number"),
            ("oss1", long.as_str()),
            ("oss3", long.as_str()),
        ] {
            let bad = good.replace(from, to);
            assert!(bad != good && decode_record(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in ["", "null", "[]", "{}", "7"] {
            assert!(decode_record(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    fn txn() -> Txn {
        Txn {
            conditions: vec![Compare { key: "k".into(), revision: 5 }],
            then: vec![Step::Put("k".into(), "v".into())],
            otherwise: vec![Step::Get("k".into())],
        }
    }

    #[test]
    fn a_transaction_is_written_as_etcd_reads_it() {
        let text = String::from_utf8(txn().encode().to_vec()).expect("JSON");
        assert_eq!(
            text,
            r#"{"compare":[{"key":"aw==","mod_revision":"5","result":"EQUAL","target":"MOD"}],"failure":[{"request_range":{"key":"aw=="}}],"success":[{"request_put":{"key":"aw==","value":"dg=="}}]}"#
        );
    }

    #[test]
    fn what_etcd_answers_is_understood() {
        // As etcd 3.4.23 and 3.7.3 write it.
        let held = br#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"12","raft_term":"2"},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"12"}}}]}"#;
        let outcome = Outcome::decode(&txn(), held).expect("an answer");
        assert_eq!((outcome.cluster, outcome.revision, outcome.held), (14841639068965178418, 12, true));
        let not = br#"{"header":{"cluster_id":"1","revision":"12"},"responses":[{"response_range":{"header":{"revision":"12"},"kvs":[{"key":"aw==","create_revision":"4","mod_revision":"9","version":"2","value":"dw=="}],"count":"1"}}]}"#;
        let outcome = Outcome::decode(&txn(), not).expect("an answer");
        assert_eq!(outcome.found, [Some(Found { revision: 9, value: b"w".to_vec() })]);
        let none = br#"{"header":{"cluster_id":"1","revision":"12"},"responses":[{"response_range":{"header":{"revision":"12"}}}]}"#;
        assert_eq!(Outcome::decode(&txn(), none).expect("an answer").found, [None]);
    }

    #[test]
    fn nonsense_is_refused_and_never_panics() {
        let good = r#"{"header":{"cluster_id":"1","revision":"12"},"responses":[{"response_range":{"kvs":[{"mod_revision":"9","value":"dw=="}]}}]}"#;
        for (from, to) in [
            (r#""cluster_id":"1""#, r#""cluster_id":"-1""#),
            (r#""revision":"12""#, r#""revision":12"#),
            (r#""mod_revision":"9""#, r#""mod_revision":"0""#),
            ("dw==", "%%"),
            ("response_range", "response_put"),
            (r#"[{"response_range""#, r#"[{},{"response_range""#),
        ] {
            let bad = good.replace(from, to);
            assert!(bad != good && Outcome::decode(&txn(), bad.as_bytes()).is_err(), "{bad}");
        }
        for at in 0..good.len() {
            assert!(Outcome::decode(&txn(), &good.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_refusal_is_repeated_in_short() {
        assert_eq!(refusal(503, br#"{"error":"etcdserver: no leader","code":14}"#), "etcdserver: no leader");
        assert_eq!(refusal(502, b"<html>"), "HTTP status 502");
        let long = format!(r#"{{"error":"a\n{}"}}"#, "x".repeat(1000));
        assert_eq!(refusal(500, long.as_bytes()).len(), ERROR_BYTES_MAX);
    }
}
