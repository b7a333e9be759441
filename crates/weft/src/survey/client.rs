//! All layers together, through a mount: as many files as there are workers, as each process of an application has one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use fuse::session::MountEntry;
use proto::wire::messages::ReadParameters;

use super::scratch::Scratch;
use super::{Bounds, DEPTHS, Data, Measure, PIECE, Speed, Way};
use crate::control;
use crate::failure::Failure;
use crate::lctl::reach::{self, Reach};
use crate::mountpoint;

/// Locks of data that the client keeps, and with them what it has cached.
const LOCKS: &str = "ldlm.namespaces.*-osc-*.lru_size";

/// Measures it, in the directory `dir` of a mount.
///
/// # Errors
/// It is in no mount of weft, or its caches cannot be emptied, or an operation fails.
pub fn measure(dir: &Path, bounds: &Bounds<'_>, data: &Data) -> Result<Vec<Speed>, Failure> {
    let mount = mountpoint::containing(dir)?.ok_or_else(|| {
        Failure::new(format!("{} is in no weft file system; name a directory of a mount", dir.display()))
    })?;
    // Each depth writes files of its own.
    let scratch = Scratch::new(dir, bounds.bytes.saturating_mul(DEPTHS.len() as u64))?;
    let said = |error: io::Error| control::describe(&error);
    let open = |depth: u64, worker: u64, flags: &OpenOptions| {
        flags.open(scratch.path().join(format!("{depth}.{worker}"))).map_err(said)
    };
    let all = |depth: u64, flags: &OpenOptions| -> Result<Vec<File>, Failure> {
        let files = (0..depth).map(|worker| open(depth, worker, flags)).collect::<Result<_, _>>();
        files.map_err(|why| Failure::new(format!("{}: {why}", dir.display())))
    };
    let at = |depth: u64, piece: u64| piece / depth * PIECE;
    let mut speeds: Vec<Speed> = Vec::new();
    for depth in DEPTHS {
        let files = all(depth, OpenOptions::new().write(true).create(true))?;
        let write = |piece: u64| {
            let file = &files[(piece % depth) as usize];
            file.write_all_at(&data.of(piece), at(depth, piece)).map_err(said)
        };
        let durable = || files.iter().try_for_each(File::sync_data).map_err(said);
        speeds.push(Measure { what: "client: write", way: Way::Write, depth }.run(bounds, write, durable)?);
    }
    for (run, depth) in DEPTHS.into_iter().enumerate() {
        // What the client or the kernel still has would be read from memory.
        forget(&mount)?;
        let files = all(depth, OpenOptions::new().read(true).custom_flags(libc::O_DIRECT))?;
        let pieces = speeds.get(run).map_or(1, |speed| (speed.bytes / PIECE).max(1));
        let bounds = &Bounds { bytes: pieces * PIECE, ..*bounds };
        let read = |piece: u64| {
            let mut buf = rt::buf::AlignedBuf::for_overwrite(PIECE as usize);
            let file = &files[(piece % depth) as usize];
            file.read_exact_at(buf.as_mut(), at(depth, piece)).map_err(said)
        };
        speeds.push(Measure { what: "client: read", way: Way::Read, depth }.run(bounds, read, || Ok(()))?);
    }
    Ok(speeds)
}

/// Has the client give its locks of data back, which it does when all that is under them is written and forgotten.
fn forget(mount: &MountEntry) -> Result<(), Failure> {
    let read = ReadParameters { patterns: vec![LOCKS.to_owned()], skip: 0, names_only: true };
    let told = Reach::new(None)?.parameters_of_mounts(&read);
    for (entry, parameters) in told.into_iter().filter(|(entry, _)| entry == mount) {
        for parameter in parameters {
            reach::set_at_mount(&entry, &parameter.name, "clear").map_err(|silence| {
                Failure::new(format!(
                    "the caches of {} cannot be emptied: {}; root and whom the mount belongs to can",
                    entry.path.display(),
                    silence.why
                ))
            })?;
        }
    }
    Ok(())
}
