//! Damaged messages: refused or read as something else, never worse.

use bytes::Bytes;
use proto::auth::{Acceptor, AcceptorConfig, Initiator, InitiatorConfig, KeyKind, Versions};
use proto::seal::Protection;
use proto::session::ReplyRecord;
use proto::wire::header::crc32c;
use proto::wire::{Header, Reply, Request, batch};

use crate::random::{Random, mutate};
use crate::{samples, vectors};

#[test]
fn damaged_bodies_never_panic() {
    let mut random = Random(1);
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
const LATER: &[(&str, usize)] =
    &[("Register", 9), ("Register", 1), ("GetConfig", 1), ("Write", 1), ("WriteParts", 1), ("Destroy", 20)];

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
    let mut random = Random(2);
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
    let mut random = Random(4);
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
    let mut random = Random(3);
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
