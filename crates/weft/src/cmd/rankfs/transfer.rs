//! `weft rankfs export` and `import`: an image as a file that others have, and back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use super::image::{self, Access};
use super::record::Record;
use crate::cmd::stage::{Directory, How, copy_file};
use crate::control::describe;
use crate::failure::{Failure, Outcome};

/// Copy an image that nobody uses to a file, which has its name only when all of it is there.
#[derive(clap::Args)]
pub struct Export {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The file that is made, or replaced
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Copy a file with a file system of type ext2 in it to a new image.
#[derive(clap::Args)]
pub struct Import {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image that is made
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The job that it is for: it is removed when that has ended
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// The rank in the job
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
}

/// Exports an image.
pub fn export(arguments: &Export) -> Outcome {
    let image = &arguments.image;
    let file = image::open_locked(image, Access::Alone)?;
    image::repair_if_needed(image, &file)?;
    copy(image, &arguments.file)?;
    Ok(0)
}

/// Imports an image.
pub fn import(arguments: &Import) -> Outcome {
    let (from, to) = (&arguments.file, &arguments.image);
    let source = File::open(from).map_err(|error| image::failed(from, "cannot be opened", &error))?;
    if image::state(&source).map_err(|error| image::failed(from, "cannot be read", &error))?
        == image::State::None
    {
        return Err(Failure::new(format!(
            "{} has no file system of type ext2 in it; name an exported image",
            from.display()
        )));
    }
    let job = arguments.job.clone();
    if let Some(job) = job.as_ref().filter(|job| !super::record::is_plain(job)) {
        return Err(Failure::usage(format!("\"{job}\" is no name of a job")));
    }
    let made = image::new_file(to, None)?;
    let record = Record::new(job, arguments.rank, None, false);
    let partial = Record { is_partial: true, ..record.clone() };
    // Whole and durable before its record says so.
    let filled = partial.keep(&made).and_then(|()| fill(&source, &made));
    let filled = filled.and_then(|()| record.keep(&made)).and_then(|()| made.sync_all());
    match filled {
        Ok(()) => Ok(0),
        Err(error) => {
            // The first error says more than one of the tidying up.
            let _ = fs::remove_file(to);
            Err(image::failed(to, "cannot be filled", &error))
        }
    }
}

fn fill(source: &File, made: &File) -> io::Result<()> {
    crate::cmd::stage::copy_content(source, made, source.metadata()?.len(), &AtomicU64::new(0))?;
    made.sync_all()
}

/// Copies a closed image: temporary name, durable, then its name.
pub fn copy(image: &Path, to: &Path) -> Result<(), Failure> {
    // It may lie anywhere: not all that is full is the shared file system.
    let failed = |error: io::Error| {
        Failure::new(format!("{} cannot be exported to: {}", to.display(), describe(&error)))
    };
    if to.file_name().is_none() {
        return Err(Failure::usage(format!("{} is no name of a file", to.display())));
    }
    let (directory, name) = Directory::of(to).map_err(failed)?;
    let temporary = format!(".weft-export-{:08x}", proto::wire::header::crc32c(name.as_encoded_bytes()));
    let temporary: &OsStr = temporary.as_ref();
    let how = How { keeps_owner: rustix::process::geteuid().is_root(), reads_again: true };
    let copied = Directory::of(image)
        .and_then(|(images, image)| images.read(image))
        .and_then(|source| copy_file(&source, &directory, temporary, how, &AtomicU64::new(0)))
        .and_then(|_| directory.rename(temporary, name))
        .and_then(|()| directory.sync());
    if copied.is_err() {
        // What could not be written must not stay.
        let _ = directory.remove(temporary);
    }
    copied.map_err(failed)
}
