//! A connection and nothing else: the sessions, frames and seals that clients and targets have, and at the other end a target that
//! keeps nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::FileOwner;
use proto::wire::header::Room;
use proto::wire::messages::{Connected, Done, FEATURE_BASE, ObjectAttr, ReadDone};
use proto::wire::messages::{Read, Sync, Write};
use proto::wire::{Reply, Request};
use proto::{Code, Fid, FsName, Nid, ObjectId, TargetId, Timestamp, Transno};
use rpc::{Answer, Call, Hub, Import, Key, Keys, Protect, Role, Service};
use rt::os::Node;
use rt::os::process::Signals;
use rt::{Addr, BoxFuture, Rt};

use super::{Bounds, DEPTHS, Data, Measure, PIECE, Speed, Way};
use crate::failure::Failure;

/// Small questions, one after another.
const PINGS: u32 = 2000;
/// How long the other side may take to answer first.
const PATIENCE: Duration = Duration::from_secs(10);
const TARGET: TargetId = TargetId { kind: proto::TargetKind::Ost, index: 0 };
/// Requests of one client at a time.
const SLOTS: u32 = 64;

/// What is measured between.
pub struct Peers {
    /// Where the other side is; `None` for this process.
    pub nid: Option<Nid>,
    /// What both sides have.
    pub key: Key,
    /// How connections are protected.
    pub protect: Option<Protect>,
}

/// Answers at once, and keeps nothing.
struct Sink {
    piece: Bytes,
}

impl Service for Sink {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        let changed = if call.request.changes() { Transno(call.xid.0) } else { Transno(0) };
        let (result, bulk) = match call.request {
            Request::Connect(_) => (Ok(Reply::Connect(connected())), Vec::new()),
            Request::Write(_) => (Ok(Reply::Write(taken())), Vec::new()),
            Request::Read(read) => {
                let bulk = self.piece.slice(..self.piece.len().min(read.len as usize));
                (Ok(Reply::Read(ReadDone { size: PIECE })), vec![bulk])
            }
            Request::Sync(_) => (Ok(Reply::Sync(Done {})), Vec::new()),
            Request::Disconnect(_) => (Ok(Reply::Disconnect(Done {})), Vec::new()),
            _ => (Err(Code::NotSupported), Vec::new()),
        };
        // All is done that was ever asked for: whoever asks keeps nothing.
        let answer =
            Answer { result, bulk, transno: changed, last_committed: changed, room: Room::default() };
        Box::pin(std::future::ready(answer))
    }
}

fn connected() -> Connected {
    Connected {
        session: 1,
        features: FEATURE_BASE,
        boot: 1,
        slots: SLOTS,
        last_committed: Transno(0),
        resumed: false,
    }
}

fn taken() -> ObjectAttr {
    let never = Timestamp::default();
    ObjectAttr { size: PIECE, blocks: 0, mtime: never, ctime: never }
}

fn hub(rt: &Rt, peers: &Peers) -> Result<Hub, Failure> {
    let fsname: FsName =
        "survey".parse().map_err(|_| Failure::new("\"survey\" is no name of a file system"))?;
    let keys = Keys { server: None, client: Some(peers.key.clone()) };
    let hub = Hub::new(rt.clone(), fsname, keys);
    if let Some(protect) = &peers.protect {
        hub.set_protect(protect.clone());
    }
    Ok(hub)
}

/// The other side: answers at `nid` until the process is told to end.
///
/// # Errors
/// Nobody can listen there.
pub fn serve((node, rt): (&Node, &Rt), nid: &Nid, peers: &Peers, signals: &Signals) -> Result<(), Failure> {
    let hub = serving(rt, peers, &Data::new(rt))?;
    let addr = Addr(nid.socket_address());
    node.block_on(hub.listen(&addr)).map_err(|error| {
        Failure::new(format!("{nid}: {}; name an address of this host", crate::control::describe(&error)))
    })?;
    out!(
        "Answering at {nid}; measure from another host with \"weft survey net {nid} --key FILE\". Ctrl-C ends it."
    );
    node.block_on(signals.wait());
    node.block_on(hub.close());
    Ok(())
}

fn serving(rt: &Rt, peers: &Peers, data: &Data) -> Result<Hub, Failure> {
    let hub = hub(rt, peers)?;
    hub.serve(TARGET, Arc::new(Sink { piece: data.of(0) }));
    Ok(hub)
}

/// Measures the way to the other side, and how long a question takes that moves nothing, in microseconds.
///
/// # Errors
/// The other side does not answer, or the connection fails.
pub fn measure(
    (node, rt): (&Node, &Rt),
    peers: &Peers,
    bounds: &Bounds<'_>,
    data: &Data,
) -> Result<(Vec<Speed>, f64), Failure> {
    let here = match &peers.nid {
        Some(_) => None,
        None => Some(serving(rt, peers, data)?),
    };
    let nid = match (&peers.nid, &here) {
        (Some(nid), _) => nid.clone(),
        (None, Some(here)) => listen(node, here)?,
        (None, None) => return Err(Failure::new("there is nobody to measure the way to")),
    };
    let hub = hub(rt, peers)?;
    let import = hub.import(TARGET, hub.new_client(), Role::Client, vec![nid.clone()]);
    let measured = load(node, &import, &nid, bounds, data);
    node.block_on(async {
        import.disconnect().await;
        hub.close().await;
        if let Some(here) = here {
            here.close().await;
        }
    });
    measured
}

/// A port of this host that is free.
fn listen(node: &Node, hub: &Hub) -> Result<Nid, Failure> {
    let addr = node.block_on(hub.listen(&Addr("127.0.0.1:0".into())));
    let addr =
        addr.map_err(|error| Failure::new(format!("127.0.0.1: {}", crate::control::describe(&error))))?;
    format!("{addr}@tcp").parse().map_err(|error| Failure::new(format!("{addr}: {error}")))
}

fn load(
    node: &Node,
    import: &Import,
    nid: &Nid,
    bounds: &Bounds<'_>,
    data: &Data,
) -> Result<(Vec<Speed>, f64), Failure> {
    let nobody = || {
        let seconds = PATIENCE.as_secs();
        Failure::new(format!(
            "no answer from {nid} within {seconds} seconds; is \"weft survey net --listen {nid}\" running there, with the same key?"
        ))
    };
    let ping = || Sync { transno: Transno(0) };
    match node.block_on(import.call_within(PATIENCE, ping())) {
        None => return Err(nobody()),
        Some(Err(rpc::RpcError::Refused(Code::Forbidden))) => {
            return Err(Failure::new(format!("{nid} has another key; give both sides the same with --key")));
        }
        Some(Err(error)) => return Err(Failure::new(format!("{nid}: {error}"))),
        Some(Ok(_)) => {}
    }
    let began = Instant::now();
    node.block_on(async {
        for _ in 0..PINGS {
            import.call(ping()).await?;
        }
        Ok::<_, rpc::RpcError>(())
    })
    .map_err(|error| Failure::new(format!("{nid}: {error}")))?;
    let ping_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(PINGS);
    let object = ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START, oid: 1, ver: 0 }, stripe: 0 };
    let mut speeds = Vec::new();
    for depth in DEPTHS {
        let write = |piece: u64| {
            let (time, owner) = (Timestamp::default(), FileOwner::default());
            let write = Write { object, offset: 0, time, locked: false, sync: false, owner };
            let answered = node.block_on(import.call_bulk(write, vec![data.of(piece)]));
            answered.map(drop).map_err(|error| error.to_string())
        };
        speeds.push(Measure { what: "net: write", way: Way::Write, depth }.run(bounds, write, || Ok(()))?);
    }
    for depth in DEPTHS {
        let read = |_: u64| {
            let read = Read { object, offset: 0, len: PIECE as u32, locked: false };
            let answered = node.block_on(import.call(read)).map_err(|error| error.to_string())?;
            let len: usize = answered.bulk.iter().map(Bytes::len).sum();
            if len as u64 == PIECE { Ok(()) } else { Err(format!("{len} bytes came instead of {PIECE}")) }
        };
        speeds.push(Measure { what: "net: read", way: Way::Read, depth }.run(bounds, read, || Ok(()))?);
    }
    Ok((speeds, ping_us))
}
