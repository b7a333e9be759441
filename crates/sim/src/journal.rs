//! What a write costs whose metadata is committed with it, on disks whose heads have to move.
//!
//! The experiment of Oral et al., "Efficient object storage journaling in a distributed parallel file system" (FAST'10): a disk
//! that writes one stream at full speed and loses 8 ms whenever the next write is somewhere else; on it an OST, and clients that
//! write long streams. The old way (`sync_journal=1`) answers a write when its metadata is durable, the new one when
//! its data has been given to the disk. Both are compared with as many bytes written to the bare disk. This disk does one
//! thing at a time, in the order in which it was asked, and its cache is off, as those of the paper's controllers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Limits;
use proto::Fid;
use rt::Rt;
use rt::sim::{Handle, Options, Sim, Span, Stats};

use crate::cluster::{Cluster, Shape};
use crate::scenario::{node, on};
use crate::workload::{READ_WRITE, root};

/// How large the experiment is.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Clients of the OST; each writes one file.
    pub clients: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Write requests that a client has under way at an OST.
    pub in_flight: u32,
}

/// How metadata is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// No file system: the clients' streams, written to the disk one after the other.
    Raw,
    /// Each write is answered when its metadata is durable.
    Sync,
    /// Each write is answered when its data has been given to the disk.
    Async,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// From the first write to when the last byte was durable.
    pub took: Duration,
    /// MiB of the files.
    pub mib: f64,
    /// Pieces that were written to the disk.
    pub pieces: u64,
    /// Those of at most 8 KiB.
    pub small: u64,
    /// Pieces that did not begin where the one before them ended.
    pub seeks: u64,
}

impl Outcome {
    /// MiB per second.
    pub fn rate(&self) -> f64 {
        self.mib / self.took.as_secs_f64()
    }

    /// Small pieces per MiB of the files.
    pub fn small_per_mib(&self) -> f64 {
        self.small as f64 / self.mib
    }
}

/// The three beside each other.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// The setup.
    pub setup: Setup,
    /// [`Way::Raw`].
    pub raw: Outcome,
    /// [`Way::Sync`].
    pub sync: Outcome,
    /// [`Way::Async`].
    pub asynchronous: Outcome,
}

/// What one RAID tier of the paper's disks writes as a stream: 5,608 MB/s by 28 of them.
const BYTES_PER_SECOND: u64 = 200_000_000;
/// What a move of the heads costs.
const SEEK_NS: u64 = 8_000_000;
/// Bytes of one write request.
const WRITE_BYTES: usize = 1 << 20;
const MIB: f64 = (1 << 20) as f64;

/// Runs the same streams in all three ways.
pub fn compare(setup: Setup) -> Comparison {
    Comparison {
        setup,
        raw: run(setup, Way::Raw),
        sync: run(setup, Way::Sync),
        asynchronous: run(setup, Way::Async),
    }
}

/// Runs the streams in one way.
pub fn run(setup: Setup, way: Way) -> Outcome {
    let mut options = Options::seed(1);
    options.disk.bytes_per_second = Some(BYTES_PER_SECOND);
    options.disk.seek_ns = SEEK_NS;
    (options.disk.write, options.disk.sync) = (Span::micros(0, 0), Span::micros(0, 0));
    let sim = Sim::new(options);
    let handle = sim.handle();
    let took = sim.run(async {
        match way {
            Way::Raw => write_raw(&handle, setup).await,
            Way::Sync | Way::Async => write_files(&handle, setup, way).await,
        }
    });
    let (took, before) = took;
    let now = handle.node_stats(SERVER);
    let mib = (setup.file_bytes * u64::from(setup.clients)) as f64 / MIB;
    Outcome {
        took,
        mib,
        pieces: now.pieces - before.pieces,
        small: now.pieces_small - before.pieces_small,
        seeks: now.seeks - before.seeks,
    }
}

/// Whose disk it is.
const SERVER: &str = "oss0";

async fn write_raw(handle: &Handle, setup: Setup) -> (Duration, Stats) {
    let (rt, bytes) = (handle.rt(SERVER), setup.file_bytes * u64::from(setup.clients));
    let stream = on(handle, SERVER, async move { stream_to_disk(&rt, bytes).await });
    let before = (handle.now(), handle.node_stats(SERVER));
    stream.await.expect("nobody crashes");
    (handle.now() - before.0, before.1)
}

async fn stream_to_disk(rt: &Rt, bytes: u64) {
    let dir = rt.disk().create_dir("/raw").await.expect("a directory can be made");
    let file = dir.create("stream").await.expect("a file can be made");
    let block = Bytes::from(vec![7; WRITE_BYTES]);
    for offset in (0..bytes).step_by(WRITE_BYTES) {
        file.write_at(offset, vec![block.clone()]).await.expect("the disk works");
    }
    file.sync().await.expect("the disk works");
}

async fn write_files(handle: &Handle, setup: Setup, way: Way) -> (Duration, Stats) {
    let cluster = Cluster::new(handle.clone(), Shape { osts: 1, osts_per_oss: 1 });
    cluster.format().await;
    cluster.start_servers();
    let mut files = Vec::new();
    for number in 0..setup.clients {
        let limits = Limits {
            dirty_bytes_max: u64::from(setup.in_flight + 1) * WRITE_BYTES as u64,
            rpc_bytes_max: WRITE_BYTES as u32,
            rpcs_in_flight_max: setup.in_flight,
            ..Limits::default()
        };
        let (_, client) = cluster.mount_within(&node(number as usize), limits).await;
        let name = format!("stream{number}");
        let made = client.files().create(&root(), Fid::ROOT, name.as_bytes(), 0o100_644, READ_WRITE).await;
        let (_, file) = made.expect("a file of a new name can be made");
        // The first bytes make sessions, objects and the first data files.
        client.files().write(file, 0, &[7; 4096]).await.expect("the disk has room");
        client.files().fsync(file).await.expect("the disk works");
        files.push((client, file));
    }
    if way == Way::Sync {
        cluster.set_parameter("sync_journal", "1");
    }
    handle.rt("clock").sleep(Duration::from_secs(5)).await;
    let before = (handle.now(), handle.node_stats(SERVER));
    let mut streams = Vec::new();
    let block: Arc<Vec<u8>> = Arc::new(vec![7; WRITE_BYTES]);
    for (number, (client, file)) in files.into_iter().enumerate() {
        let block = block.clone();
        streams.push(on(handle, &node(number), async move {
            for offset in (0..setup.file_bytes).step_by(WRITE_BYTES) {
                let written = client.files().write(file, offset, &block).await;
                assert_eq!(written, Ok(WRITE_BYTES as u32), "the disk has room");
            }
            client.files().fsync(file).await.expect("the disk works");
        }));
    }
    for stream in streams {
        stream.await.expect("nobody crashes");
    }
    (handle.now() - before.0, before.1)
}

impl Comparison {
    /// Percent of the bare disk's rate.
    pub fn percent(&self, of: &Outcome) -> f64 {
        of.rate() * 100.0 / self.raw.rate()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { clients, file_bytes, in_flight } = self.setup;
        writeln!(
            f,
            "{clients} clients, {} MiB by each, {in_flight} writes of 1 MiB of each in flight",
            file_bytes >> 20
        )?;
        writeln!(f, "               MiB/s  of raw   paper  seeks/MiB  writes <=8 KiB per MiB")?;
        let rows = [
            ("raw disk", &self.raw, "100 %"),
            ("sync_journal=1", &self.sync, "24.9 %"),
            ("sync_journal=0", &self.asynchronous, "93.1 %"),
        ];
        for (name, outcome, paper) in rows {
            writeln!(
                f,
                "{name:<14} {:>5.0} {:>5.1} % {paper:>7} {:>10.3} {:>10.3}",
                outcome.rate(),
                self.percent(outcome),
                outcome.seeks as f64 / outcome.mib,
                outcome.small_per_mib()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
