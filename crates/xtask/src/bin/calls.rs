//! Measures single system calls on a directory: how many a second, and the median time of one.
//!
//! `calls DIR [THREADS] [SECONDS]`: every thread has a directory of its own, each phase lasts so long. Prints one line
//! for each phase: name, calls a second of all threads, MiB a second, median in microseconds.

// A tool of the developers, never a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes of the file that is read and written, small enough to stay in caches.
const FILE_BYTES: u64 = 64 << 20;
/// Sizes of an I/O; 47,008 is a record that is aligned to nothing.
const SIZES: [usize; 3] = [4096, 47_008, 1 << 20];

enum Phase {
    Create,
    Open,
    Stat,
    Write(usize),
    Read(usize),
}

impl Phase {
    fn all() -> Vec<Phase> {
        let calls = [Phase::Create, Phase::Open, Phase::Stat];
        let transfers = SIZES.iter().flat_map(|bytes| [Phase::Write(*bytes), Phase::Read(*bytes)]);
        calls.into_iter().chain(transfers).collect()
    }

    fn name(&self) -> String {
        match self {
            Phase::Create => "create+close".into(),
            Phase::Open => "open+close".into(),
            Phase::Stat => "stat".into(),
            Phase::Write(bytes) => format!("write {bytes}"),
            Phase::Read(bytes) => format!("read {bytes}"),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Phase::Write(bytes) | Phase::Read(bytes) => *bytes,
            _ => 0,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |index: usize, usual: f64| arguments.get(index).map_or(Some(usual), |text| text.parse().ok());
    let (Some(dir), Some(threads), Some(seconds)) = (arguments.first(), number(1, 1.0), number(2, 1.0))
    else {
        eprintln!("usage: calls DIR [THREADS] [SECONDS]");
        return ExitCode::from(2);
    };
    match measure(Path::new(dir), threads as usize, Duration::from_secs_f64(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("calls: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(dir: &Path, threads: usize, time: Duration) -> io::Result<()> {
    let dirs: Vec<PathBuf> = (0..threads).map(|index| dir.join(format!("calls{index}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir)?;
        let file = File::create(dir.join("data"))?;
        let block = vec![7; 1 << 20];
        for at in (0..FILE_BYTES).step_by(block.len()) {
            file.write_all_at(&block, at)?;
        }
        file.sync_all()?;
    }
    for phase in Phase::all() {
        let start = Barrier::new(threads);
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let workers: Vec<_> =
                dirs.iter().map(|dir| scope.spawn(|| work(&phase, dir, time, &start))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker that ends"))
                .collect::<io::Result<_>>()
        })?;
        // Between two looks at the clock lies one call, so the rest is the loop's.
        let mut times: Vec<u64> = taken.into_iter().flatten().collect();
        times.sort_unstable();
        let rate = times.len() as f64 / time.as_secs_f64();
        let median = times.get(times.len() / 2).copied().unwrap_or(0) as f64 / 1e3;
        let mib = rate * phase.bytes() as f64 / f64::from(1 << 20);
        println!("{:<14} {rate:>9.0}/s {mib:>8.0} MiB/s {median:>8.1} us", phase.name());
    }
    for dir in &dirs {
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Calls until `time` is over; how long each took, in nanoseconds.
fn work(phase: &Phase, dir: &Path, time: Duration, start: &Barrier) -> io::Result<Vec<u64>> {
    let data = dir.join("data");
    let file = OpenOptions::new().read(true).write(true).open(&data)?;
    let mut buffer = vec![3; phase.bytes()];
    let blocks = FILE_BYTES / (phase.bytes() as u64).max(1);
    let mut times = Vec::with_capacity(1 << 20);
    start.wait();
    let end = Instant::now() + time;
    for index in 0u64.. {
        let before = Instant::now();
        if before >= end {
            break;
        }
        // Every block in turn, in an order that no read-ahead follows.
        let at = (index * 7919 % blocks.max(1)) * phase.bytes() as u64;
        match phase {
            Phase::Create => drop(File::create_new(dir.join(format!("f{index}")))?),
            Phase::Open => drop(File::open(&data)?),
            Phase::Stat => fs::metadata(&data).map(|_| ())?,
            Phase::Write(_) => file.write_all_at(&buffer, at)?,
            Phase::Read(_) => file.read_exact_at(&mut buffer, at)?,
        }
        times.push(before.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
