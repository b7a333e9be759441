//! Many clients of one file system in one process, without mounts: rates of metadata operations, and what a light client sees of a storm.
//!
//! - `clients NID:/FSNAME KEY rates CLIENTS OPERATIONS`: each client makes its share of empty files in a directory of its own, looks up what its
//!   neighbour made, and removes its own again, one at a time, all asked of the MDT. Prints for each phase how many a second all did together.
//! - `clients NID:/FSNAME KEY storm CLIENTS FILES`: each client makes so many files in a directory of its own and removes them, ahead of the
//!   MDT, as applications do.
//! - `clients NID:/FSNAME KEY look ENTRIES SECONDS`: one client lists a directory of so many files that another one made and keeps changing,
//!   with their attributes, again and again: median, p99 and longest of a listing, in microseconds.
//! - `clients NID:/FSNAME KEY start CLIENTS MIB`: one client writes a program of so many MiB; all others look it up, open it and read it at the
//!   same time, as the ranks of a job do at its start.

// A tool of the developers, never a part of weft.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Behind, Caller, Client, OpenFlags};
use proto::Fid;
use rpc::{Hub, Key, Keys};
use rt::Rt;
use rt::wait::join_all;
use weft_mounting::{Failure, Options, Result, Source, connect, keys};

const DIR_MODE: u32 = 0o40755;
const WRITING: OpenFlags = OpenFlags {
    read: false,
    write: true,
    append: false,
    exclusive: true,
    truncate: false,
    execute: false,
    sync: false,
    no_atime: false,
};
const READING: OpenFlags = OpenFlags { read: true, write: false, exclusive: false, ..WRITING };
const PROGRAM: &[u8] = b"program";
/// Clients that connect at a time.
const CONNECTING: usize = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let &[source, key, what, first, second] = &words[..] else {
        eprintln!(
            "usage: clients NID:/FSNAME KEY rates CLIENTS OPERATIONS | storm CLIENTS FILES | look ENTRIES SECONDS"
        );
        return ExitCode::FAILURE;
    };
    let (Ok(first), Ok(second)) = (first.parse(), second.parse()) else {
        eprintln!("clients: {first} or {second} is no number");
        return ExitCode::FAILURE;
    };
    match run(source, key, (what, first, second)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("clients: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(source: &str, key: &str, (what, first, second): (&str, usize, usize)) -> Result<()> {
    let place = Place { source: Source::parse(source)?, key: keys::read(Path::new(key))? };
    let failed = |error: std::io::Error| Failure::new(error.to_string());
    let node =
        rt::os::Node::start(std::thread::available_parallelism().map_err(failed)?.get()).map_err(failed)?;
    let rt = Rt::os(node.clone());
    node.block_on(async {
        match what {
            "rates" => rates(&rt, &place, first, second).await,
            "storm" => storm(&rt, &place, first, second).await,
            "look" => look(&rt, &place, first, Duration::from_secs(second as u64)).await,
            "start" => start(&rt, &place, first, second as u64).await,
            other => Err(Failure::new(format!("{other} is neither rates, storm, look nor start"))),
        }
    })
}

struct Place {
    source: Source,
    key: Key,
}

/// A client with a directory of its own.
struct Member {
    hub: Hub,
    client: Arc<Client>,
    dir: Fid,
}

fn described(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// The directory of a client.
fn dir_name(number: usize) -> String {
    format!("clients-{}-{number}", std::process::id())
}

impl Member {
    async fn join(rt: &Rt, place: &Place, number: usize) -> Result<Member> {
        let keys = Keys { server: None, client: Some(place.key.clone()) };
        let hub = connect::hub(rt, &place.source.fsname, keys, None);
        let client = connect::connect(&hub, &place.source, &Options::default()).await?;
        let root = Caller::root();
        let name = dir_name(number);
        let made = client.names().make(&root, Fid::ROOT, name.as_bytes(), DIR_MODE, 0, Default::default());
        let dir = made.await.map_err(described)?.attr.fid;
        Ok(Member { hub, client, dir })
    }

    async fn create(&self, number: usize) -> Result<()> {
        let name = format!("f{number}");
        let (_, handle) = self
            .client
            .files()
            .create(&Caller::root(), self.dir, name.as_bytes(), 0o644, WRITING)
            .await
            .map_err(described)?;
        self.client.files().release(handle).await;
        Ok(())
    }

    /// Writes the file that all are to read.
    async fn write_program(&self, mib: u64) -> Result<()> {
        let files = self.client.files();
        let (_, handle) =
            files.create(&Caller::root(), self.dir, PROGRAM, 0o755, WRITING).await.map_err(described)?;
        for at in 0..mib {
            let data: Vec<u8> = (0..1u32 << 20)
                .map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8 ^ at as u8)
                .collect();
            files.write(handle, at << 20, &data).await.map_err(described)?;
        }
        files.release(handle).await;
        self.client.sync_all().await.map_err(described)
    }

    /// Reads the program of another one, as its start does.
    async fn start(&self, dir: Fid, mib: u64) -> Result<()> {
        let (caller, files) = (Caller::root(), self.client.files());
        let fid = self.client.names().lookup(&caller, dir, PROGRAM).await.map_err(described)?.attr.fid;
        let handle = files.open(&caller, fid, READING).await.map_err(described)?;
        let mut read = 0;
        for at in 0..mib << 3 {
            let got = files.read(handle, at << 17, 1 << 17).await.map_err(described)?;
            read += got.into_iter().map(|piece| piece.len() as u64).sum::<u64>();
        }
        files.release(handle).await;
        if read == mib << 20 {
            Ok(())
        } else {
            Err(Failure::new(format!("{read} bytes were read of {mib} MiB")))
        }
    }

    async fn look_up(&self, dir: Fid, number: usize) -> Result<()> {
        self.client
            .names()
            .lookup(&Caller::root(), dir, format!("f{number}").as_bytes())
            .await
            .map_err(described)?;
        Ok(())
    }

    async fn remove(&self, number: usize) -> Result<()> {
        let name = format!("f{number}");
        self.client.names().unlink(&Caller::root(), self.dir, name.as_bytes()).await.map_err(described)
    }

    async fn leave(&self, number: usize) -> Result<()> {
        let name = dir_name(number);
        self.client.names().rmdir(&Caller::root(), Fid::ROOT, name.as_bytes()).await.map_err(described)?;
        self.end().await
    }

    async fn end(&self) -> Result<()> {
        self.client.unmount().await.map_err(described)?;
        self.hub.close().await;
        Ok(())
    }
}

async fn join(rt: &Rt, place: &Place, count: usize, ahead: bool) -> Result<Vec<Arc<Member>>> {
    let mut members = Vec::new();
    while members.len() < count {
        let some = members.len()..count.min(members.len() + CONNECTING);
        for member in join_all(some.map(|number| Member::join(rt, place, number))).await {
            let member = member?;
            member.client.admin().set_metadata_writeback(ahead);
            members.push(Arc::new(member));
        }
    }
    Ok(members)
}

/// Runs one future for each client, each as a task of its own, and waits for all.
async fn each<F>(rt: &Rt, count: usize, work: impl Fn(usize) -> F) -> Result<Duration>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let begin = Instant::now();
    let mut ends = Vec::new();
    for number in 0..count {
        let (done, end) = rt::sync::oneshot::channel();
        let working = work(number);
        rt.spawn_apart(async move { drop(done.send(working.await)) });
        ends.push(end);
    }
    for end in ends {
        end.await.unwrap_or_else(|_| Err(Failure::new("a task ended")))?;
    }
    Ok(begin.elapsed())
}

async fn leave(members: &[Arc<Member>]) -> Result<()> {
    for (some, of) in members.chunks(CONNECTING).enumerate() {
        let leaving = of.iter().enumerate().map(|(at, member)| member.leave(some * CONNECTING + at));
        join_all(leaving).await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

async fn rates(rt: &Rt, place: &Place, count: usize, operations: usize) -> Result<()> {
    // One client's files are looked up by another one, too.
    let members = Arc::new(join(rt, place, count.max(2), false).await?);
    let share = operations.div_ceil(count);
    for (name, phase) in [("create", Phase::Create), ("look up", Phase::LookUp), ("remove", Phase::Remove)] {
        // What each does first is not like the rest: its neighbour's directory is called back.
        let mut took = Duration::ZERO;
        for files in [0..1, 1..share + 1] {
            let all = members.clone();
            let working = each(rt, count, move |number| {
                let (member, next) = (all[number].clone(), all[(number + 1) % all.len()].clone());
                let files = files.clone();
                async move {
                    for file in files {
                        match phase {
                            Phase::Create => member.create(file).await?,
                            Phase::LookUp => next.look_up(member.dir, file).await?,
                            Phase::Remove => member.remove(file).await?,
                        }
                    }
                    Ok(())
                }
            });
            took = working.await?;
        }
        println!("{name:8} {count:5} clients {:9.0} /s", (share * count) as f64 / took.as_secs_f64());
    }
    leave(&members).await
}

#[derive(Clone, Copy)]
enum Phase {
    Create,
    LookUp,
    Remove,
}

async fn storm(rt: &Rt, place: &Place, count: usize, files: usize) -> Result<()> {
    let members = join(rt, place, count, true).await?;
    let all = members.clone();
    let took = each(rt, count, move |number| {
        let member = all[number].clone();
        async move {
            for file in 0..files {
                member.create(file).await?;
            }
            for file in 0..files {
                member.remove(file).await?;
            }
            Ok(())
        }
    });
    let took = took.await?;
    println!(
        "storm    {count:5} clients {:9.0} /s made and removed",
        (files * count) as f64 / took.as_secs_f64()
    );
    leave(&members).await
}

async fn start(rt: &Rt, place: &Place, count: usize, mib: u64) -> Result<()> {
    let members = join(rt, place, count, false).await?;
    // The program was there before the job: whoever wrote it is gone.
    let writer = Member::join(rt, place, count).await?;
    writer.write_program(mib).await?;
    let dir = writer.dir;
    writer.end().await?;
    let all = members.clone();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(described)?;
    let took = each(rt, count, move |number| {
        let member = all[number].clone();
        async move { member.start(dir, mib).await }
    });
    let took = took.await?;
    println!(
        "start    {count:5} clients {:9.3} s, {:.0} MiB/s",
        took.as_secs_f64(),
        (mib * count as u64) as f64 / took.as_secs_f64()
    );
    std::io::stdin().read_line(&mut line).map_err(described)?;
    let names = members[0].client.names();
    names.unlink(&Caller::root(), dir, PROGRAM).await.map_err(described)?;
    names.rmdir(&Caller::root(), Fid::ROOT, dir_name(count).as_bytes()).await.map_err(described)?;
    leave(&members).await
}

async fn look(rt: &Rt, place: &Place, entries: usize, time: Duration) -> Result<()> {
    let members = join(rt, place, 2, false).await?;
    let (writer, reader) = (&members[0], &members[1]);
    for file in 0..entries {
        writer.create(file).await?;
    }
    let (begin, mut took) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        // So that the reader's copy of the directory does not answer.
        writer.create(entries).await?;
        writer.remove(entries).await?;
        let started = Instant::now();
        list(reader, writer.dir, entries).await?;
        took.push(started.elapsed().as_micros());
        rt.sleep(Duration::from_millis(5)).await;
    }
    took.sort_unstable();
    let at = |part: usize| took[(took.len() * part / 1000).min(took.len() - 1)];
    println!(
        "look     {} listings of {entries}: median {} us, p99 {} us, longest {} us",
        took.len(),
        at(500),
        at(990),
        at(1000)
    );
    for file in 0..entries {
        writer.remove(file).await?;
    }
    leave(&members).await
}

async fn list(reader: &Member, dir: Fid, entries: usize) -> Result<()> {
    let (mut behind, mut seen) = (Behind::START, 0);
    loop {
        let page = reader.client.names().read_dir(dir, &behind, true).await.map_err(described)?;
        for entry in &page.entries {
            reader.client.names().getattr(entry.fid).await.map_err(described)?;
        }
        seen += page.entries.len();
        let Some(next) = page.next() else { break };
        behind = next;
    }
    if seen == entries {
        Ok(())
    } else {
        Err(Failure::new(format!("{seen} of {entries} entries are listed")))
    }
}
