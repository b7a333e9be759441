//! What protecting frames costs: `seal_speed`.
//!
//! Prints GB/s and nanoseconds of one core for a checksum of bulk, for the code over a frame, and for encryption of one.

use std::hint::black_box;

use proto::auth::{Acceptor, AcceptorConfig, Initiator, InitiatorConfig, KeyKind, Versions};
use proto::seal::{ConnectionKeys, Order, Protection};
use proto::wire::header::{HEADER_BYTES, crc32c};
use rt::Rt;
use rt::os::Node;

/// Bytes that each measurement goes through.
const BYTES: usize = 2 << 30;

fn keys(protection: Protection) -> ConnectionKeys {
    let fsname: proto::FsName = "weft".parse().expect("a file system name");
    let versions = Versions { min: 1, max: 1 };
    let (initiator, hello) = Initiator::start(InitiatorConfig {
        key: &[1; 32],
        kind: KeyKind::Client,
        fsname: &fsname,
        versions,
        features: 0,
        protection,
        nonce: [2; 32],
    });
    let config = AcceptorConfig {
        server_key: None,
        client_key: Some(&[1; 32]),
        fsname: &fsname,
        versions,
        features: 0,
        protection,
        nonce: [3; 32],
    };
    let (acceptor, reply) = Acceptor::start(config, &hello).expect("the keys are the same");
    let (_, proof) = initiator.reply(&reply).expect("the keys are the same");
    acceptor.finish(&proof).expect("the keys are the same").1
}

fn measure(rt: &Rt, name: &str, bytes: usize, mut work: impl FnMut()) {
    let count = BYTES / bytes.max(4096);
    (0..count / 8).for_each(|_| work());
    let start = rt.now();
    (0..count).for_each(|_| work());
    let each = (rt.now() - start).as_secs_f64() / count as f64;
    println!("{name:<24} {bytes:>8} bytes {:>8.2} GB/s {:>10.0} ns", bytes as f64 / each / 1e9, each * 1e9);
}

fn main() {
    let node = Node::start(1).expect("a runtime starts");
    let rt = Rt::os(node.clone());
    let head = [7; HEADER_BYTES];
    for bytes in [0, 4096, 65_536, 1 << 20] {
        let bulk = vec![9; bytes];
        if bytes > 0 {
            measure(&rt, "crc32c of bulk", bytes, || {
                black_box(crc32c(black_box(&bulk)));
            });
        }
        for protection in [Protection::Heads, Protection::Frames] {
            let (mut sealer, _) = keys(protection).for_initiator(protection, Order::Kept);
            measure(&rt, &format!("seal, {protection:?}"), bytes, || {
                black_box(sealer.authenticate(&head, &[black_box(&bulk[..])]).expect("there are numbers"));
            });
        }
        let (mut sealer, _) = keys(Protection::Encrypted).for_initiator(Protection::Encrypted, Order::Kept);
        let (mut head, mut bulk) = (head, bulk.clone());
        measure(&rt, "seal, Encrypted", bytes, || {
            black_box(sealer.encrypt(&mut head, black_box(&mut bulk)).expect("there are numbers"));
        });
    }
    node.stop(std::time::Duration::from_secs(1));
}
