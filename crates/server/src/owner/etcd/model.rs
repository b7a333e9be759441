//! An etcd cluster in memory, as far as it is asked here: transactions over JSON. Members can be dead, silent, or lose answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use rt::sim::Rng;
use rt::{BoxFuture, Rt};
use serde_json::{Value, json};

use super::client::Transport;

/// How a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Refuses connections.
    Dead,
    /// Never answers, and does nothing.
    Silent,
    /// Does what it is told, and never answers.
    Mute,
    /// As after the loss of the leader.
    Leaderless,
    /// Anything of all that, and requests that are carried out late.
    Wild,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    revision: u64,
    moods: Vec<Mood>,
    /// How often each member was asked.
    asked: Vec<u64>,
    /// Cluster of each member.
    clusters: Vec<u64>,
    /// Carries every transaction out, whether its conditions hold or not.
    careless: bool,
    /// Password and token that are asked for.
    password: Option<(String, String)>,
}

#[derive(Clone)]
pub(crate) struct Model {
    rt: Rt,
    names: Vec<String>,
    state: Arc<Mutex<State>>,
    random: Arc<Mutex<Rng>>,
}

impl Model {
    pub fn new(rt: &Rt, members: usize) -> Model {
        let state = State {
            revision: 1,
            moods: vec![Mood::Well; members],
            asked: vec![0; members],
            clusters: vec![0xc1, 0xc1, 0xc1],
            ..State::default()
        };
        let names = (0..members).map(|n| format!("e{n}")).collect();
        let random = Arc::new(Mutex::new(Rng::new(1)));
        Model { rt: rt.clone(), names, state: Arc::new(Mutex::new(state)), random }
    }

    pub fn set(&self, member: usize, mood: Mood) {
        self.state.lock().moods[member] = mood;
    }

    pub fn set_all(&self, mood: Mood) {
        self.state.lock().moods.fill(mood);
    }

    pub fn set_cluster(&self, member: usize, cluster: u64) {
        self.state.lock().clusters[member] = cluster;
    }

    pub fn be_careless(&self) {
        self.state.lock().careless = true;
    }

    pub fn want_password(&self, password: &str, token: &str) {
        self.state.lock().password = Some((password.into(), token.into()));
    }

    pub fn asked(&self, member: usize) -> u64 {
        self.state.lock().asked[member]
    }

    pub fn put(&self, key: &str, value: &str) {
        self.state.lock().put(key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }

    pub fn get(&self, key: &str) -> Option<String> {
        let state = self.state.lock();
        state.keys.get(key.as_bytes()).map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Loses everything.
    pub fn wipe(&self) {
        self.state.lock().keys.clear();
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.random.lock().below(bound)
    }

    async fn answer(
        &self,
        member: usize,
        path: &str,
        token: Option<String>,
        body: Bytes,
    ) -> io::Result<(u16, Bytes)> {
        let mood = {
            let mut state = self.state.lock();
            state.asked[member] += 1;
            state.moods[member]
        };
        let mood = if mood == Mood::Wild { self.whim() } else { mood };
        match mood {
            Mood::Dead => return Err(io::ErrorKind::ConnectionRefused.into()),
            Mood::Silent => return std::future::pending().await,
            Mood::Leaderless => {
                return Ok((503, Bytes::from_static(br#"{"error":"etcdserver: no leader","code":14}"#)));
            }
            Mood::Mute | Mood::Well | Mood::Wild => {}
        }
        if mood == Mood::Wild {
            self.rt.sleep(Duration::from_millis(self.below(3000))).await;
        } else {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
        let answer = self.state.lock().answer(member, path, token.as_deref(), &body);
        if mood == Mood::Mute { std::future::pending().await } else { Ok(answer) }
    }

    fn whim(&self) -> Mood {
        match self.below(20) {
            0 => Mood::Dead,
            1 => Mood::Silent,
            2 => Mood::Mute,
            3 => Mood::Leaderless,
            4 => Mood::Wild,
            _ => Mood::Well,
        }
    }
}

impl State {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.revision += 1;
        self.keys.insert(key, (self.revision, value));
    }

    fn answer(&mut self, member: usize, path: &str, token: Option<&str>, body: &[u8]) -> (u16, Bytes) {
        let question: Value = serde_json::from_slice(body).expect("a question is JSON");
        if let Some((password, expected)) = &self.password {
            if path == "/v3/auth/authenticate" {
                return match question["password"].as_str() == Some(password) {
                    true => (200, Bytes::from(json!({"token": expected}).to_string())),
                    false => (400, Bytes::from_static(br#"{"error":"authentication failed"}"#)),
                };
            }
            if token != Some(expected) {
                return (401, Bytes::from_static(br#"{"error":"etcdserver: invalid auth token","code":16}"#));
            }
        }
        assert_eq!(path, "/v3/kv/txn");
        (200, Bytes::from(self.txn(member, &question).to_string()))
    }

    fn txn(&mut self, member: usize, question: &Value) -> Value {
        let bytes = |value: &Value| STANDARD.decode(value.as_str().expect("a text")).expect("base64");
        let list = |value: &Value| value.as_array().cloned().expect("a list");
        let holds = list(&question["compare"]).iter().all(|compare| {
            let revision = self.keys.get(&bytes(&compare["key"])).map_or(0, |(revision, _)| *revision);
            compare["mod_revision"].as_str() == Some(revision.to_string().as_str())
        });
        let holds = holds || self.careless;
        let steps = list(&question[if holds { "success" } else { "failure" }]);
        assert!(steps.len() <= 128, "etcd takes no more steps");
        if steps.iter().any(|step| step.get("request_put").is_some()) {
            // All that one transaction writes has one revision.
            self.revision += 1;
        }
        let mut responses = Vec::new();
        for step in steps {
            if let Some(put) = step.get("request_put") {
                self.keys.insert(bytes(&put["key"]), (self.revision, bytes(&put["value"])));
                responses.push(json!({"response_put": {}}));
            } else {
                let kvs: Vec<Value> = self
                    .keys
                    .get(&bytes(&step["request_range"]["key"]))
                    .map(|(revision, value)| json!({"mod_revision": revision.to_string(), "value": STANDARD.encode(value)}))
                    .into_iter()
                    .collect();
                responses.push(json!({"response_range": {"kvs": kvs}}));
            }
        }
        let cluster = self.clusters[member].to_string();
        let header = json!({"cluster_id": cluster, "revision": self.revision.to_string()});
        json!({"header": header, "succeeded": holds, "responses": responses})
    }
}

impl Transport for Model {
    fn members(&self) -> &[String] {
        &self.names
    }

    fn post<'a>(
        &'a self,
        member: usize,
        path: &'a str,
        token: Option<&'a str>,
        body: Bytes,
        _bytes_max: usize,
    ) -> BoxFuture<'a, io::Result<(u16, Bytes)>> {
        let (model, path, token) = (self.clone(), path.to_owned(), token.map(str::to_owned));
        let (sent, answered) = rt::sync::oneshot::channel();
        // What was sent is carried out even if nobody waits any more.
        self.rt.spawn(async move {
            let answer = model.answer(member, &path, token, body).await;
            let _ = sent.send(answer);
        });
        Box::pin(async move { answered.await.unwrap_or(Err(io::ErrorKind::ConnectionReset.into())) })
    }
}
