//! Damaged messages: refused or read as something else, never worse.

use bytes::Bytes;
use proto::TargetId;
use proto::auth::{Acceptor, AcceptorConfig, Initiator, InitiatorConfig, KeyKind, Versions};
use proto::layout::Pattern;
use proto::seal::Protection;
use proto::session::ReplyRecord;
use proto::wire::header::crc32c;
use proto::wire::{Header, Reader, Reply, Request, Wire, batch};

use crate::random::{Random, mutate};
use crate::{samples, vectors};

#[test]
fn damaged_bodies_never_panic() {
    let mut random = Random::new(1);
    let (requests, replies) = (vectors::parse(vectors::REQUESTS), vectors::parse(vectors::REPLIES));
    let opcodes: Vec<u16> = samples::requests().iter().map(|(_, r)| r.opcode()).collect();
    let mut read = 0;
    for round in 0..100_000 {
        let which = random.below(opcodes.len());
        // Now and then a body of another operation.
        let opcode = if round % 16 == 0 { opcodes[random.below(opcodes.len())] } else { opcodes[which] };
        let mut body = requests[which].1.clone();
        mutate(&mut random, &mut body);
        if let Ok(request) = Request::take_body(opcode, Bytes::from(body)) {
            let mut again = Vec::new();
            request.put_body(&mut again);
            assert_eq!(Request::take_body(opcode, again.into()), Ok(request), "what is read can be written");
            read += 1;
        }
        let mut body = replies[which].1.clone();
        mutate(&mut random, &mut body);
        if let Ok(reply) = Reply::take_body(opcode, Bytes::from(body)) {
            let mut again = Vec::new();
            reply.put_body(&mut again);
            assert_eq!(Reply::take_body(opcode, again.into()), Ok(reply), "what is read can be written");
        }
    }
    assert!(read > 1000, "mutations that nothing survives test only the first check");
}

/// Where bodies of older senders end: bytes before the end of today's.
const LATER: &[(&str, usize)] = &[
    ("Register", 10),
    ("Register", 2),
    ("Register", 1),
    ("Claim", 1),
    ("GetConfig", 2),
    ("GetConfig", 1),
    ("ReadQuota", 9),
    ("SetQuota", 28),
    ("SetQuota", 19),
    ("SetQuota", 18),
    ("SetQuota", 9),
    ("SetQuota", 8),
    ("HoldSpace", 9),
    ("SwapLayouts", 9),
    ("Create", 151),
    ("SetAttr", 7),
    ("SetAttr", 2),
    ("SetSize", 9),
    ("SetSize", 8),
    ("Write", 25),
    ("Write", 24),
    ("WriteParts", 25),
    ("WriteParts", 24),
    ("ReadDir", 8),
    ("AllocateObject", 24),
    ("CopyObject", 24),
    ("Destroy", 24),
];

#[test]
fn truncated_bodies_are_refused() {
    for ((_, bytes), (name, request)) in
        vectors::parse(vectors::REQUESTS).into_iter().zip(samples::requests())
    {
        for len in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..len]);
            let read = Request::take_body(request.opcode(), cut);
            if LATER.contains(&(name, bytes.len() - len)) {
                assert!(read.is_ok_and(|read| read != request), "{name} of an older sender");
                continue;
            }
            assert!(read.is_err(), "{name}, {len} bytes");
        }
    }
}

#[test]
fn damaged_headers_never_panic() {
    let mut random = Random::new(2);
    let good = samples::header().encode().to_vec();
    for _ in 0..100_000 {
        let mut bytes = good.clone();
        mutate(&mut random, &mut bytes);
        assert!(bytes == good || bytes.starts_with(&good) || Header::decode(&bytes).is_err());
        // With a right checksum the other checks have their turn.
        if bytes.len() >= good.len() {
            let crc = crc32c(&bytes[..good.len() - 4]);
            bytes[good.len() - 4..good.len()].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = Header::decode(&bytes) {
                assert_eq!(header.encode(), bytes[..good.len()]);
            }
        }
    }
}

#[test]
fn damaged_batches_never_panic() {
    let mut random = Random::new(4);
    let mut read = 0;
    for _ in 0..50_000 {
        for (_, header, members) in samples::batches() {
            let mut body = batch::encode(&members);
            mutate(&mut random, &mut body);
            if let Ok(members) = batch::decode(&header, Bytes::from(body.clone())) {
                assert_eq!(batch::encode(&members), body, "what is read can be written");
                read += 1;
            }
        }
    }
    assert!(read > 1000, "mutations that nothing survives test only the first check");
}

#[test]
fn damaged_records_and_handshakes_never_panic() {
    let mut random = Random::new(3);
    let records = vectors::parse(vectors::RECORDS);
    let messages = vectors::parse(vectors::HANDSHAKE);
    let fsname = "weft".parse().expect("a file system name");
    let versions = Versions { min: 1, max: 1 };
    let (key, nonce) = ([0x11; 32], [0x33; 32]);
    let config = AcceptorConfig {
        server_key: None,
        client_key: Some(&key),
        fsname: &fsname,
        versions,
        features: 0,
        protection: Protection::Frames,
        nonce,
    };
    let start = InitiatorConfig {
        key: &key,
        kind: KeyKind::Client,
        fsname: &fsname,
        versions,
        features: 0,
        protection: Protection::Frames,
        nonce,
    };
    for _ in 0..20_000 {
        let mut record = records[random.below(records.len())].1.clone();
        mutate(&mut random, &mut record);
        if let Ok(record) = ReplyRecord::decode(record.into()) {
            let _ = record.result();
        }
        let mut message = messages[random.below(messages.len())].1.clone();
        mutate(&mut random, &mut message);
        let (initiator, hello) = Initiator::start(start);
        assert!(initiator.reply(&message).is_err(), "a damaged HelloReply proves nothing");
        let _ = Acceptor::start(config, &message);
        let (acceptor, _) = Acceptor::start(config, &hello).expect("this Hello is in order");
        assert!(acceptor.finish(&message).is_err(), "a damaged Proof proves nothing");
    }
}

/// A struct within another one may have grown since: what this version does not know is skipped, and what follows is read.
#[test]
fn structs_within_messages_may_grow() {
    let entry = samples::entry();
    let mut plain = Vec::new();
    Reply::GetAttr(entry.clone()).put_body(&mut plain);
    // The attributes come first, preceded by their length.
    let len = u32::from_le_bytes(plain[..4].try_into().expect("four bytes"));
    let mut grown = (len + 3).to_le_bytes().to_vec();
    grown.extend_from_slice(&plain[4..4 + len as usize]);
    grown.extend_from_slice(b"new");
    grown.extend_from_slice(&plain[4 + len as usize..]);
    let opcode = Reply::GetAttr(entry.clone()).opcode();
    assert_eq!(Reply::take_body(opcode, grown.into()), Ok(Reply::GetAttr(entry)));
}

#[test]
fn what_is_of_an_unknown_kind_is_kept_or_refused_by_its_name() {
    let mut entry = samples::entry();
    let layout = entry.layout.as_mut().expect("of a file");
    layout.components[0].pattern = Pattern::Unknown(77);
    let mut body = Vec::new();
    Reply::GetAttr(entry.clone()).put_body(&mut body);
    let opcode = Reply::GetAttr(entry.clone()).opcode();
    assert_eq!(Reply::take_body(opcode, body.into()), Ok(Reply::GetAttr(entry)));
    let mut target = Vec::new();
    TargetId::ost(3).put(&mut target);
    target[0] = 9;
    let error = Reader::new(target.into()).take::<TargetId>().expect_err("nobody knows it");
    assert_eq!(error.to_string(), "unknown kind of target 9");
}
