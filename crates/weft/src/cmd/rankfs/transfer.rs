//! `weft rankfs export` and `import`: an image as a file that others have, and back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

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

/// Refuses what an export must not take the place of: an image, which somebody may use, and what is no file.
pub fn may_export_to(to: &Path) -> Result<(), Failure> {
    let status = match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        status => status.map_err(|error| image::failed(to, "cannot be looked at", &error))?,
    };
    let refused = |why: &str| {
        Err(Failure::usage(format!("{} {why}; export to another name", image::plain(&to.to_string_lossy()))))
    };
    if status.is_symlink() {
        return refused("is a symbolic link");
    }
    if !status.is_file() {
        return refused("is no file");
    }
    let file = File::open(to).map_err(|error| image::failed(to, "cannot be opened", &error))?;
    let record = Record::of_file(&file).map_err(|error| image::failed(to, "cannot be read", &error))?;
    if let Some(record) = record {
        return refused(&format!("is an image ({})", record.whose()));
    }
    match image::lock_within(&file, Access::Shared, Duration::ZERO) {
        Ok(false) => refused("is in use"),
        // Some file systems have no locks, and no images.
        Ok(true) | Err(_) => Ok(()),
    }
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
    may_export_to(to)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_takes_the_place_of_files_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), b"of before").expect("written");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("made");
        fs::write(at("used"), b"").expect("written");
        let used = File::open(at("used")).expect("it is there");
        assert!(image::lock_within(&used, Access::Alone, Duration::ZERO).expect("an answer"));
        for (name, may) in [("none", true), ("file", true), ("link", false), (".", false), ("used", false)] {
            assert_eq!(may_export_to(&at(name)).is_ok(), may, "{name}");
        }
        assert!(may_export_to(Path::new("/dev/null")).is_err());
        let image = File::open(at("file")).expect("it is there");
        // A file system without attributes has no images.
        if Record::new(None, None, None, false).keep(&image).is_ok() {
            assert!(may_export_to(&at("file")).is_err());
        }
    }
}
