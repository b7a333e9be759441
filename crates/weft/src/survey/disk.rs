//! The device below a directory: whole pieces past the page cache, in a file that has its space already.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rt::Rt;
use rt::os::Node;

use super::scratch::Scratch;
use super::{Bounds, DEPTHS, Data, Measure, PIECE, Speed, Way};
use crate::control;
use crate::failure::Failure;

const FILE: &str = "device";
/// File systems that keep files in memory (tmpfs and ramfs), as statfs(2) calls them.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Measures it, in `dir`.
///
/// # Errors
/// The directory cannot be used, its file system has no direct I/O, or the device fails.
pub fn measure(
    (node, rt): (&Node, &Rt),
    dir: &Path,
    bounds: &Bounds<'_>,
    data: &Data,
) -> Result<Vec<Speed>, Failure> {
    let scratch = Scratch::new(dir, bounds.bytes)?;
    refuse_cached(&scratch)?;
    let failed = |error: io::Error| Failure::new(format!("{}: {}", dir.display(), control::describe(&error)));
    let path = scratch.text()?;
    let file = node
        .block_on(async {
            let file = rt.disk().open_dir(path).await?.create(FILE).await?;
            file.allocate(0, bounds.bytes).await?;
            file.sync().await?;
            Ok(file)
        })
        .map_err(failed)?;
    let mut speeds = Vec::new();
    let said = |error: io::Error| control::describe(&error);
    for depth in DEPTHS {
        let write =
            |piece: u64| node.block_on(file.write_at(piece * PIECE, vec![data.of(piece)])).map_err(said);
        let measure = Measure { what: "disk: write", way: Way::Write, depth };
        speeds.push(measure.run(bounds, write, || node.block_on(file.sync()).map_err(said))?);
    }
    // What was not written within the time is not read.
    let written = speeds.iter().map(|speed| speed.bytes).max().unwrap_or(0);
    for depth in DEPTHS {
        let read = |piece: u64| {
            let at = piece * PIECE % written.max(PIECE);
            node.block_on(file.read_at(at, PIECE as usize)).map(drop).map_err(said)
        };
        speeds.push(Measure { what: "disk: read", way: Way::Read, depth }.run(bounds, read, || Ok(()))?);
    }
    Ok(speeds)
}

/// A file system that keeps files in memory, or takes no direct I/O, would be measured instead of a device.
fn refuse_cached(scratch: &Scratch) -> Result<(), Failure> {
    let path = scratch.path().join(FILE);
    let failed = |why: String| {
        let place = scratch.path().parent().unwrap_or(scratch.path()).display();
        Failure::new(format!("{place} {why}"))
    };
    let told = rustix::fs::statfs(scratch.path());
    if told.is_ok_and(|told| IN_MEMORY.contains(&(told.f_type as u64 & 0xffff_ffff))) {
        return Err(failed("is on a file system in memory; name a directory on a disk".to_owned()));
    }
    let opened = OpenOptions::new().write(true).create(true).custom_flags(libc::O_DIRECT).open(&path);
    opened.map(drop).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => failed(
            "is on a file system without direct I/O, so that not a device would be measured; name a directory on a disk"
                .to_owned(),
        ),
        _ => failed(format!("takes no file: {}", control::describe(&error))),
    })?;
    std::fs::remove_file(&path).map_err(|error| Failure::new(control::describe(&error)))
}
