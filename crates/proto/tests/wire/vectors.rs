//! Golden vectors: `docs/wire.md#vectors`.

use std::collections::BTreeSet;

use bytes::Bytes;
use proto::auth::{Acceptor, AcceptorConfig, Initiator, InitiatorConfig, KeyKind, Versions};
use proto::seal::Protection;
use proto::session::ReplyRecord;
use proto::wire::header::{FLAG_CALLBACK, FLAG_REPLY, HEADER_BYTES, crc32c};
use proto::wire::{DecodeError, Header, Reply, Request, batch};
use proto::{Code, JobId, Transno, Xid};

use crate::samples;

pub const HEADER: &str = include_str!("../../vectors/header.hex");
pub const BATCHES: &str = include_str!("../../vectors/batches.hex");
pub const REQUESTS: &str = include_str!("../../vectors/requests.hex");
pub const REPLIES: &str = include_str!("../../vectors/replies.hex");
pub const HANDSHAKE: &str = include_str!("../../vectors/handshake.hex");
pub const RECORDS: &str = include_str!("../../vectors/records.hex");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines of a file: name and bytes.
pub fn parse(file: &str) -> Vec<(String, Vec<u8>)> {
    let lines = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, digits) = line.split_once(' ').unwrap_or((line, ""));
            let digits: Vec<u8> =
                digits.chars().map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8).collect();
            let bytes = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect();
            (name.to_owned(), bytes)
        })
        .collect()
}

/// Compares a file with what is encoded now.
fn check(file: &str, now: &[(String, Vec<u8>)]) {
    if parse(file) == now {
        return;
    }
    let lines: Vec<String> =
        now.iter().map(|(name, bytes)| format!("{name} {}", hex(bytes)).trim_end().to_owned()).collect();
    panic!(
        "the wire format changed; if that is meant, it needs a version and this file:\n{}",
        lines.join("\n")
    );
}

#[test]
fn header() {
    let headers = [("header", samples::header()), ("of-a-job", samples::header_of_job())];
    let now = headers.clone().map(|(name, header)| (name.to_owned(), header.encode().to_vec()));
    check(HEADER, &now);
    for ((_, bytes), (_, header)) in parse(HEADER).into_iter().zip(headers) {
        assert_eq!(Header::decode(&bytes), Ok(header));
    }
}

/// A job is a name in a request, and nowhere else.
#[test]
fn the_job_of_a_header_is_a_name() {
    let of = |job: &[u8], flags: u16| {
        let mut bytes = Header { flags, ..samples::header() }.encode();
        bytes[72..72 + job.len()].copy_from_slice(job);
        let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        Header::decode(&bytes).map(|header| header.job)
    };
    assert_eq!(of(b"dd.0", 0), Ok(JobId::named(b"dd.0")));
    assert_eq!(of(&[b'a'; 31], 0), Ok(JobId::named(&[b'a'; 31])));
    for (job, flags) in [
        (&b"dd.0"[..], FLAG_REPLY),
        (b"dd.0", FLAG_CALLBACK),
        (b"dd 0", 0),
        (b"dd\0x", 0),
        (b"\0dd.0", 0),
        (b"\xff", 0),
        (&[b'a'; 32], 0),
    ] {
        assert_eq!(of(job, flags), Err(DecodeError::BadValue), "{job:?} {flags}");
    }
}

#[test]
fn reserved_bytes_of_a_header_are_zero() {
    let good = samples::header().encode();
    let reserved: Vec<usize> = (57..60).chain(68..72).chain(120..136).collect();
    for at in reserved {
        let mut bad = good;
        bad[at] = 1;
        let crc = crc32c(&bad[..HEADER_BYTES - 4]);
        bad[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bad), Err(DecodeError::BadValue), "byte {at}");
    }
}

#[test]
fn batches() {
    let samples = samples::batches();
    let whole = |header: &Header, members: &[batch::Member]| {
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&batch::encode(members));
        bytes
    };
    let now: Vec<_> =
        samples.iter().map(|(name, h, members)| ((*name).to_owned(), whole(h, members))).collect();
    check(BATCHES, &now);
    for ((_, bytes), (name, header, members)) in parse(BATCHES).into_iter().zip(samples) {
        let read = Header::decode(&bytes).expect("a header");
        assert_eq!(read, header, "{name}");
        let body = Bytes::copy_from_slice(&bytes[HEADER_BYTES..]);
        assert_eq!(batch::decode(&read, body), Ok(members), "{name}");
    }
}

#[test]
fn requests() {
    let body = |request: &Request| {
        let mut out = Vec::new();
        request.put_body(&mut out);
        out
    };
    let samples = samples::requests();
    let now: Vec<_> = samples.iter().map(|(name, r)| ((*name).to_owned(), body(r))).collect();
    check(REQUESTS, &now);
    for ((_, bytes), (name, request)) in parse(REQUESTS).into_iter().zip(samples) {
        assert_eq!(Request::take_body(request.opcode(), bytes.into()), Ok(request), "{name}");
    }
}

#[test]
fn what_waits_by_its_nature_has_no_slot() {
    let waiting: Vec<_> = samples::requests().into_iter().filter(|(_, request)| request.waits()).collect();
    assert!(waiting.len() >= 3, "{waiting:?}");
    assert!(waiting.iter().all(|(_, request)| !request.changes()), "{waiting:?}");
}

#[test]
fn replies() {
    let body = |reply: &Reply| {
        let mut out = Vec::new();
        reply.put_body(&mut out);
        out
    };
    let samples = samples::replies();
    let now: Vec<_> = samples.iter().map(|(name, r)| ((*name).to_owned(), body(r))).collect();
    check(REPLIES, &now);
    for ((_, bytes), (name, reply)) in parse(REPLIES).into_iter().zip(samples) {
        assert_eq!(Reply::take_body(reply.opcode(), bytes.into()), Ok(reply), "{name}");
    }
}

#[test]
fn every_operation_has_its_vectors() {
    let known = |decode: &dyn Fn(u16) -> Option<DecodeError>| -> BTreeSet<u16> {
        (0..=u16::MAX).filter(|n| decode(*n) != Some(DecodeError::UnknownOperation(*n))).collect()
    };
    let requests = known(&|n| Request::take_body(n, Bytes::new()).err());
    assert_eq!(samples::requests().iter().map(|(_, r)| r.opcode()).collect::<BTreeSet<_>>(), requests);
    let replies = known(&|n| Reply::take_body(n, Bytes::new()).err());
    assert_eq!(samples::replies().iter().map(|(_, r)| r.opcode()).collect::<BTreeSet<_>>(), replies);
    let same_names =
        samples::requests().iter().map(|(name, _)| *name).eq(samples::replies().iter().map(|(n, _)| *n));
    assert!(same_names, "requests and replies are listed in one order");
}

#[test]
fn handshake() {
    let fsname = "weft".parse().expect("a file system name");
    let versions = Versions { min: 1, max: 1 };
    let (initiator, hello) = Initiator::start(InitiatorConfig {
        key: &[0x11; 32],
        kind: KeyKind::Client,
        fsname: &fsname,
        versions,
        features: 0,
        protection: Protection::Frames,
        nonce: [0x22; 32],
    });
    let config = AcceptorConfig {
        server_key: None,
        client_key: Some(&[0x11; 32]),
        fsname: &fsname,
        versions,
        features: 0,
        protection: Protection::Heads,
        nonce: [0x33; 32],
    };
    let (acceptor, reply) = Acceptor::start(config, &hello).expect("the handshake is in order");
    let (proved, proof) = initiator.reply(&reply).expect("the handshake is in order");
    let (_, _, welcome) = acceptor.finish(&proof).expect("the handshake is in order");
    proved.finish(&welcome).expect("the handshake is in order");
    let other = "other".parse().expect("a file system name");
    let refused = Acceptor::start(AcceptorConfig { fsname: &other, ..config }, &hello);
    let refusal = refused.err().and_then(|failed| failed.send).expect("another file system refuses politely");
    let now = [
        ("Hello", hello),
        ("HelloReply", reply),
        ("Proof", proof),
        ("Welcome", welcome),
        ("Refusal", refusal),
    ];
    check(HANDSHAKE, &now.map(|(name, bytes)| (name.to_owned(), bytes)));
}

#[test]
fn reply_records() {
    let unlinked = samples::replies().into_iter().find(|(name, _)| *name == "Unlink").expect("a sample").1;
    let opcode = unlinked.opcode();
    let records = [
        ("answered", ReplyRecord::new(Xid(0x0102), opcode, &Ok(unlinked), Transno(0x2122))),
        ("refused", ReplyRecord::new(Xid(0x0103), opcode, &Err(Code::NotFound), Transno(0))),
    ];
    let now: Vec<_> = records.iter().map(|(name, r)| ((*name).to_owned(), r.encode().to_vec())).collect();
    check(RECORDS, &now);
    for ((_, bytes), (name, record)) in parse(RECORDS).into_iter().zip(records) {
        assert_eq!(ReplyRecord::decode(bytes.into()), Ok(record), "{name}");
    }
}

#[test]
fn the_specification_lists_every_operation_and_code() {
    let specification = include_str!("../../../../docs/wire.md");
    for (name, request) in samples::requests() {
        let changes = if request.changes() { "yes" } else { "no" };
        let row = format!("\n| {} | {name} | {changes} | ", request.opcode());
        assert!(specification.contains(&row), "docs/wire.md lacks {row}");
    }
    let known = (1..1000).filter_map(Code::from_u32).filter(|code| !matches!(code, Code::Unknown(_)));
    for code in known {
        let row = format!("\n| {} | {code} | ", code.to_u32());
        assert!(specification.contains(&row), "docs/wire.md lacks {row}");
    }
}
