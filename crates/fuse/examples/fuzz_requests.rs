//! Feeds damaged requests to the parser of the kernel's protocol for a while: `fuzz_requests SECONDS SEED`.
//!
//! Starts from recorded requests. A panic is the finding; its seed and round are printed before.

// The clock bounds the run and nothing else depends on it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

extern crate weft_fuse as fuse;

#[path = "../../proto/tests/wire/random.rs"]
mod random;

use std::time::{Duration, Instant};

use fuse::kernel::abi::InHeader;
use fuse::kernel::request::{Dialect, Operation, Request};
use random::{Random, mutate};
use zerocopy::FromBytes;

/// Starting points that are kept beside the recorded ones.
const CORPUS_MAX: usize = 4096;
/// Rounds between two looks at the clock.
const ROUNDS: u64 = 10_000;

fn vectors() -> Vec<Vec<u8>> {
    let lines = include_str!("../vectors/requests.hex").lines().filter(|line| !line.starts_with('#'));
    let bytes = lines.map(|line| {
        let digits: Vec<u32> =
            line.rsplit(' ').next().unwrap_or("").chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    });
    bytes.collect()
}

/// What holds for whatever the parser takes.
fn examine(request: &Request<'_>) {
    match &request.operation {
        Operation::Lookup { name } | Operation::Unlink { name } | Operation::RmDir { name } => {
            assert!(!name.contains(&0), "a name has no NUL");
        }
        Operation::BatchForget { forgets } => {
            forgets.iter().for_each(|forget| {
                std::hint::black_box(forget);
            });
        }
        other => {
            std::hint::black_box(format!("{other:?}"));
        }
    }
}

/// Parses `bytes` as both engines would; says whether they are a request.
fn parse(bytes: &mut [u8], dialect: Dialect) -> bool {
    // A wrong length in the header is found at once, and hides everything else.
    if let Some(place) = bytes.first_chunk::<4>().copied().map(|_| bytes.len() as u32) {
        bytes[..4].copy_from_slice(&place.to_le_bytes());
    }
    let whole = Request::parse(bytes, dialect);
    if let Ok(request) = &whole {
        examine(request);
    }
    if let Ok((header, rest)) = InHeader::read_from_prefix(bytes) {
        let (fixed, payload) = rest.split_at(rest.len().min(128));
        if let Ok(request) = Request::parse_split(&header, fixed, payload, dialect) {
            examine(&request);
        }
    }
    whole.is_ok()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().ok());
    let (Some(Some(seconds)), Some(Some(seed))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: fuzz_requests SECONDS SEED");
        std::process::exit(2);
    };
    let mut corpus = vectors();
    let recorded = corpus.len();
    let mut random = Random::new(seed);
    let (mut round, mut taken) = (0u64, 0u64);
    std::panic::set_hook(Box::new(move |panic| eprintln!("seed {seed}: {panic}")));
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for _ in 0..ROUNDS {
            round += 1;
            let mut bytes = corpus[random.below(corpus.len())].clone();
            for _ in 0..=random.below(4) {
                mutate(&mut random, &mut bytes);
            }
            let dialect = Dialect { setxattr_ext: random.below(2) == 0 };
            if parse(&mut bytes, dialect) {
                taken += 1;
                if corpus.len() < CORPUS_MAX && random.below(64) == 0 {
                    corpus.push(bytes);
                }
            }
        }
    }
    println!(
        "{round} damaged requests, {taken} of them requests still, from {recorded} recorded and {} others; seed {seed}",
        corpus.len() - recorded
    );
}
