//! Makes a target with very many objects or inodes, without their data, and opens it: how long does that take?
//!
//! `cargo run --release -p weft-store --example large_target -- objects|inodes|open|again DIR [COUNT]`
//!
//! The keys are those of `docs/disk.md#objects` and `docs/disk-mdt.md#keys`. Data files are as long as they would be and have no blocks.

// A tool of the developers, never a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout)]

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::{ClientId, Fid, TargetId};
use rt::Rt;
use weft_store::object::OBJECTS;
use weft_store::recount::sum_again;
use weft_store::sums::{INODE_OWNERS, INODES};
use weft_store::{Batch, Change, Label, Need, Objects, Store, Sums};

/// Changes of one commit.
const CHANGES_PER_COMMIT: usize = 3000;
/// Blocks of a data file of 256 MiB.
const FILE_BLOCKS: u64 = 65_536;
const BLOCK: u64 = 4096;
/// Files of a directory.
const FILES_PER_DIRECTORY: u64 = 10_000;

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let node = rt::os::Node::start(2)?;
    let rt = Rt::os(node.clone());
    match arguments.as_slice() {
        ["objects", path, count] => {
            let count = count.parse()?;
            node.block_on(fill(&rt, path, TargetId::ost(0), count, object))?;
            for seq in 0..count.div_ceil(FILE_BLOCKS) {
                let name = format!("data/{:016x}-{seq:08x}", 1);
                File::create(Path::new(path).join(name))?.set_len(FILE_BLOCKS * BLOCK)?;
            }
        }
        ["inodes", path, count] => {
            node.block_on(fill(&rt, path, TargetId::mdt(0), count.parse()?, inode))?;
        }
        ["open", path] => node.block_on(open(&rt, path))?,
        ["again", path] => {
            let began = Instant::now();
            let wrong = node.block_on(sum_again(&rt, path))?;
            println!("{} sums put right in {:.2} s", wrong.len(), began.elapsed().as_secs_f64());
        }
        _ => return Err("objects DIR COUNT, inodes DIR COUNT, open DIR or again DIR".into()),
    }
    node.stop(Duration::from_secs(60));
    Ok(())
}

fn fid(number: u64) -> Fid {
    Fid { seq: Fid::SEQ_NORMAL_START + number / 100_000, oid: (1 + number % 100_000) as u32, ver: 0 }
}

/// Makes the target in `path` and `count` of what `make` makes.
async fn fill(rt: &Rt, path: &str, target: TargetId, count: u64, make: fn(u64, &mut Batch)) -> Done {
    let label = Label {
        fsname: "weft".parse()?,
        target,
        uuid: ClientId(u128::from(rt.random_u64())),
        mgs: vec!["127.0.0.1@tcp".parse()?],
        service: Vec::new(),
    };
    Store::format(rt, path, &label).await?;
    fs::create_dir_all(Path::new(path).join("data"))?;
    let store = Store::open(rt, path).await?;
    let began = Instant::now();
    let mut batch = Batch::default();
    for number in 0..count {
        make(number, &mut batch);
        if batch.changes.len() >= CHANGES_PER_COMMIT || number + 1 == count {
            store.room(Need::Growth).await?;
            store.commit(std::mem::take(&mut batch))?;
        }
    }
    store.close().await?;
    println!("{count} made in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn add(sums: &mut Sums, key: &[u8]) {
    sums.add(key, 1);
}

fn key(prefix: u8, parts: &[&[u8]]) -> Bytes {
    [&[prefix][..], &parts.concat()].concat().into()
}

/// An object with one block.
fn object(number: u64, batch: &mut Batch) {
    let (layout, stripe, offset) = (fid(number).to_key(), [0; 4], [0; 8]);
    let record: Vec<u8> = [[BLOCK, BLOCK, 1].map(u64::to_le_bytes).concat(), vec![0; 24]].concat();
    let (file, at) = ((number / FILE_BLOCKS) as u32, number % FILE_BLOCKS * BLOCK);
    let extent: Vec<u8> = [
        &(BLOCK as u32).to_le_bytes()[..],
        &file.to_le_bytes(),
        &1_u64.to_le_bytes(),
        &at.to_le_bytes(),
        &0_u32.to_le_bytes(),
    ]
    .concat();
    let Batch { changes, sums, .. } = batch;
    add(sums, &key(b'U', &[&1_u64.to_be_bytes(), &file.to_be_bytes()]));
    add(sums, &OBJECTS.key());
    changes.push(Change { key: key(b'O', &[&layout, &stripe]), value: Some(record.into()) });
    changes.push(Change { key: key(b'E', &[&layout, &stripe, &offset]), value: Some(extent.into()) });
}

/// A file with a layout of one stripe, its entry and its link.
fn inode(number: u64, batch: &mut Batch) {
    let own = fid(number + 1).to_key();
    let directory = fid(number / FILES_PER_DIRECTORY * FILES_PER_DIRECTORY + 1).to_key();
    let name = format!("file-{number:08}");
    let hash = proto::shards::mix(0, number) >> 1 | 16;
    let mut record = vec![0; 184];
    record[0] = 2;
    record[4..8].copy_from_slice(&0o100_644_u32.to_le_bytes());
    record[8..12].copy_from_slice(&1_u32.to_le_bytes());
    record[24..32].copy_from_slice(&number.to_le_bytes());
    record[116] = 99;
    record[117..121].copy_from_slice(&63_u32.to_le_bytes());
    let entry: Vec<u8> = [&[1][..], &own, &[8]].concat();
    let Batch { changes, sums, .. } = batch;
    add(sums, &INODES.key());
    for kind in [0, 1] {
        add(sums, &INODE_OWNERS.key(kind, 0));
    }
    if number == 0 {
        changes.push(Change { key: INODE_OWNERS.marker(), value: Some(Bytes::new()) });
    }
    changes.push(Change { key: key(0x10, &[&own]), value: Some(record.into()) });
    let entry_key = key(0x11, &[&directory, &hash.to_be_bytes(), name.as_bytes()]);
    changes.push(Change { key: entry_key, value: Some(entry.into()) });
    changes.push(Change { key: key(0x12, &[&own, &directory, name.as_bytes()]), value: Some(Bytes::new()) });
}

async fn open(rt: &Rt, path: &str) -> Done {
    let began = Instant::now();
    let store = Store::open(rt, path).await?;
    println!("store opened in {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    if Store::read_label(rt, path).await?.target.kind == proto::TargetKind::Ost {
        let objects = Objects::open(rt, store.clone()).await?;
        println!("objects opened in {:.2} s", began.elapsed().as_secs_f64());
        println!("{:?}", objects.space().await?);
        objects.close().await?;
    } else {
        let count = store.sum(&INODES.key())?;
        println!("{count} inodes, known in {:.4} s", began.elapsed().as_secs_f64());
    }
    let began = Instant::now();
    store.close().await?;
    println!("closed in {:.2} s", began.elapsed().as_secs_f64());
    Ok(())
}
