//! Feeds damaged messages to every decoder for a while: `fuzz_decode SECONDS SEED`.
//!
//! Starts from the golden vectors, keeps what decodes differently than before as further starting points, and
//! prints how far it came. A panic is the finding; its seed and round are printed before.

extern crate weft_proto as proto;

#[path = "../tests/wire/random.rs"]
mod random;

use bytes::Bytes;
use proto::session::ReplyRecord;
use proto::wire::header::{HEADER_BYTES, crc32c};
use proto::wire::{Header, Reply, Request, batch};
use random::{Random, mutate};

/// Starting points that are kept beside the vectors.
const CORPUS_MAX: usize = 4096;
/// Rounds between two looks at the clock.
const ROUNDS: u64 = 10_000;

fn vectors() -> Vec<Vec<u8>> {
    let files = [
        include_str!("../vectors/header.hex"),
        include_str!("../vectors/batches.hex"),
        include_str!("../vectors/requests.hex"),
        include_str!("../vectors/replies.hex"),
        include_str!("../vectors/records.hex"),
    ];
    let lines = files.iter().flat_map(|file| file.lines()).filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let digits: Vec<u8> = line
                .split_once(' ')
                .map_or("", |(_, digits)| digits)
                .chars()
                .filter_map(|c| c.to_digit(16).map(|digit| digit as u8))
                .collect();
            digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect()
        })
        .collect()
}

/// Decodes `bytes` as everything; says whether something took them.
fn decode(opcode: u16, bytes: &[u8]) -> bool {
    let shared = Bytes::copy_from_slice(bytes);
    let mut taken = false;
    if let Ok(request) = Request::take_body(opcode, shared.clone()) {
        let mut again = Vec::new();
        request.put_body(&mut again);
        assert_eq!(Request::take_body(opcode, again.into()), Ok(request), "what is read can be written");
        taken = true;
    }
    if let Ok(reply) = Reply::take_body(opcode, shared.clone()) {
        let mut again = Vec::new();
        reply.put_body(&mut again);
        assert_eq!(Reply::take_body(opcode, again.into()), Ok(reply), "what is read can be written");
        taken = true;
    }
    if let Ok(record) = ReplyRecord::decode(shared.clone()) {
        let _ = record.result();
    }
    if bytes.len() >= HEADER_BYTES {
        let mut header = bytes[..HEADER_BYTES].to_vec();
        let crc = crc32c(&header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        if let Ok(decoded) = Header::decode(&header) {
            assert_eq!(decoded.encode().as_slice(), header);
            let body = shared.slice(HEADER_BYTES..);
            if let Ok(members) = batch::decode(&decoded, body.clone()) {
                assert_eq!(batch::encode(&members), body, "what is read can be written");
                taken = true;
            }
        }
    }
    taken
}

// The clock bounds the run and nothing else depends on it.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().ok());
    let (Some(Some(seconds)), Some(Some(seed))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: fuzz_decode SECONDS SEED");
        std::process::exit(2);
    };
    println!("fuzz_decode: seed {seed}, {seconds} s");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut random = Random::new(seed);
    let mut corpus = vectors();
    let (mut rounds, mut taken) = (0u64, 0u64);
    while std::time::Instant::now() < end {
        for _ in 0..ROUNDS {
            let mut bytes = corpus[random.below(corpus.len())].clone();
            mutate(&mut random, &mut bytes);
            bytes.truncate(4096);
            let opcode = random.below(70) as u16;
            if decode(opcode, &bytes) {
                taken += 1;
                if corpus.len() < CORPUS_MAX {
                    corpus.push(bytes);
                } else if random.below(64) == 0 {
                    let at = random.below(corpus.len());
                    corpus[at] = bytes;
                }
            }
        }
        rounds += ROUNDS;
    }
    println!("fuzz_decode: {rounds} rounds, {taken} messages were taken, nothing panicked");
}
