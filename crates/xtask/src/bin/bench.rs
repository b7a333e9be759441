//! Measures directories beside each other: sequential write with fsync and cold read by several processes, and
//! creating, looking at and deleting empty files. One run, the directories in turn, medians and ratios.
//!
//! `bench [--procs 4] [--rounds 3] [--mib 512] [--files 20000] LABEL=DIR LABEL=DIR ...`; the last one is what the
//! others are divided by. Caches are dropped before the cold read, which needs root.

// A tool of the developers, never a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Instant;

const BLOCK_BYTES: usize = 1 << 20;
const PHASES: [Phase; 5] = [Phase::Write, Phase::Read, Phase::Create, Phase::Stat, Phase::Unlink];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Write,
    Read,
    Create,
    Stat,
    Unlink,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Write => "write+fsync",
            Phase::Read => "cold-read",
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Unlink => "unlink",
        }
    }

    fn from_name(name: &str) -> Option<Phase> {
        PHASES.into_iter().find(|phase| phase.name() == name)
    }

    fn unit(self) -> &'static str {
        match self {
            Phase::Write | Phase::Read => "MiB/s",
            _ => "/s",
        }
    }
}

#[derive(Clone, Debug)]
struct Load {
    procs: usize,
    rounds: usize,
    mib: usize,
    files: usize,
}

impl Load {
    /// Work of one phase of all processes: MiB or files.
    fn amount(&self, phase: Phase) -> f64 {
        let each = if matches!(phase, Phase::Write | Phase::Read) { self.mib } else { self.files };
        (each * self.procs) as f64
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("--worker") => worker(&args[1..]),
        _ => parse(&args).and_then(|(load, places)| measure(&load, &places)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> io::Error {
    io::Error::other("usage: bench [--procs N] [--rounds N] [--mib N] [--files N] LABEL=DIR LABEL=DIR ...")
}

fn parse(args: &[String]) -> io::Result<(Load, Vec<(String, PathBuf)>)> {
    let mut load = Load { procs: 4, rounds: 3, mib: 512, files: 20_000 };
    let mut places = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if let Some(option) = arg.strip_prefix("--") {
            let value = rest.next().and_then(|v| v.parse().ok()).filter(|n| *n > 0).ok_or_else(usage)?;
            match option {
                "procs" => load.procs = value,
                "rounds" => load.rounds = value,
                "mib" => load.mib = value,
                "files" => load.files = value,
                _ => return Err(usage()),
            }
        } else {
            let (label, dir) = arg.split_once('=').ok_or_else(usage)?;
            places.push((label.to_owned(), PathBuf::from(dir)));
        }
    }
    if places.is_empty() { Err(usage()) } else { Ok((load, places)) }
}

fn measure(load: &Load, places: &[(String, PathBuf)]) -> io::Result<()> {
    let mut rates = vec![vec![Vec::new(); PHASES.len()]; places.len()];
    for round in 0..load.rounds {
        for (place, (_, dir)) in places.iter().enumerate() {
            let work = dir.join(format!("bench-{}-{round}", std::process::id()));
            fs::create_dir_all(&work)?;
            for (index, phase) in PHASES.into_iter().enumerate() {
                if phase == Phase::Read {
                    drop_caches();
                }
                let secs = run_phase(load, &work, phase)?;
                rates[place][index].push(load.amount(phase) / secs);
            }
            fs::remove_dir_all(&work)?;
        }
    }
    print_table(load, places, &mut rates);
    Ok(())
}

fn drop_caches() {
    let sync = Command::new("sync").status();
    let dropped = fs::write("/proc/sys/vm/drop_caches", "3");
    if sync.is_err() || dropped.is_err() {
        eprintln!("bench: the page cache could not be dropped (root is needed): the read below is not cold");
    }
}

/// Seconds from the common start until the last process is done.
fn run_phase(load: &Load, work: &Path, phase: Phase) -> io::Result<f64> {
    let program = std::env::current_exe()?;
    let mut workers: Vec<(Child, ChildStdin)> = Vec::new();
    for number in 0..load.procs {
        let mut child = Command::new(&program)
            .args([
                "--worker",
                phase.name(),
                &number.to_string(),
                &load.mib.to_string(),
                &load.files.to_string(),
            ])
            .arg(work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("no pipe to a process"))?;
        workers.push((child, stdin));
    }
    for (child, _) in &mut workers {
        let ready = child.stdout.as_mut().ok_or_else(|| io::Error::other("no pipe from a process"))?;
        ready.read_exact(&mut [0])?;
    }
    let start = Instant::now();
    for (_, stdin) in &mut workers {
        stdin.write_all(b"g")?;
    }
    for (child, _) in &mut workers {
        if !child.wait()?.success() {
            return Err(io::Error::other(format!("a process of phase {} failed", phase.name())));
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn worker(args: &[String]) -> io::Result<()> {
    let [phase, number, mib, files, work] = args else { return Err(usage()) };
    let phase = Phase::from_name(phase).ok_or_else(usage)?;
    let mib: usize = mib.parse().map_err(|_| usage())?;
    let files: usize = files.parse().map_err(|_| usage())?;
    let data = Path::new(work).join(format!("data.{number}"));
    let dir = Path::new(work).join(format!("dir.{number}"));
    if phase == Phase::Create {
        fs::create_dir(&dir)?;
    }
    let mut block = vec![0u8; BLOCK_BYTES];
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (at.wrapping_mul(2_654_435_761) >> 11) as u8;
    }
    io::stdout().write_all(b"r")?;
    io::stdout().flush()?;
    io::stdin().read_exact(&mut [0])?;
    match phase {
        Phase::Write => {
            let mut file = File::create(&data)?;
            for _ in 0..mib {
                file.write_all(&block)?;
            }
            file.sync_all()?;
        }
        Phase::Read => {
            let mut file = File::open(&data)?;
            let mut bytes = 0;
            loop {
                match file.read(&mut block)? {
                    0 => break,
                    n => bytes += n,
                }
            }
            if bytes != mib * BLOCK_BYTES {
                return Err(io::Error::other("a file came back with another size"));
            }
        }
        Phase::Create => {
            for n in 0..files {
                drop(OpenOptions::new().write(true).create_new(true).open(dir.join(format!("file.{n}")))?);
            }
        }
        Phase::Stat => {
            for n in 0..files {
                fs::metadata(dir.join(format!("file.{n}")))?;
            }
        }
        Phase::Unlink => {
            for n in 0..files {
                fs::remove_file(dir.join(format!("file.{n}")))?;
            }
        }
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_table(load: &Load, places: &[(String, PathBuf)], rates: &mut [Vec<Vec<f64>>]) {
    println!(
        "{} processes, {} MiB and {} empty files each, {} rounds; median [min-max]; ratio to {}",
        load.procs,
        load.mib,
        load.files,
        load.rounds,
        places.last().map_or("", |(label, _)| label)
    );
    for (index, phase) in PHASES.into_iter().enumerate() {
        let base = rates.last_mut().map_or(1.0, |last| median(&mut last[index]));
        for (place, (label, _)) in places.iter().enumerate() {
            let values = &mut rates[place][index];
            let middle = median(values);
            println!(
                "{:<12} {:<10} {:>10.0} {:<5} [{:.0}-{:.0}]  ratio {:.2}",
                phase.name(),
                label,
                middle,
                phase.unit(),
                values[0],
                values[values.len() - 1],
                middle / base
            );
        }
    }
}
