//! `weft rankfs`: a file system for each rank of a job, in one file of the shared one.
//!
//! Whatever a rank does inside, the MDT sees one file that is made, opened, and removed. What is inside is seen on one machine only.

pub mod attached;
mod based;
mod gc;
mod image;
mod inside;
mod json;
mod paged;
pub mod record;
mod served;
mod spread;
mod transfer;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::attached::How;
use self::image::{Access, Shape};
use self::record::Record;
use crate::failure::{Failure, Outcome};
use crate::{size, table};

/// Give each rank of a job a file system of its own, in one file of the shared one.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Create(Create),
    Mount(Mount),
    Umount(Umount),
    Run(inside::Arguments),
    Export(transfer::Export),
    Import(transfer::Import),
    List(List),
    Gc(gc::Arguments),
}

/// What an image is made with.
#[derive(clap::Args)]
struct Making {
    /// How much it can have in it: the file is sparse, and takes space as it is written
    #[arg(long, value_name = "SIZE")]
    size: String,
    /// Take all of the space now: a full shared file system is told of here, and not to the rank
    #[arg(long)]
    reserve: bool,
    /// Bytes for each file that there is room for
    #[arg(long, value_name = "BYTES", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1024..=4_194_304))]
    bytes_per_inode: u32,
    /// The job that it is for, with which it ends [default: what the scheduler's environment says]
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// The rank in the job [default: what the environment says]
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Put all of the image on one OST: the images of N ranks after each other on the same, those of the next N on the next
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_ost: Option<u32>,
    /// The user that its top directory belongs to, in numbers; and that "run" has the program run as
    #[arg(long, value_name = "UID:GID")]
    owner: Option<String>,
}

impl Making {
    fn job(&self) -> Result<Option<String>, Failure> {
        match &self.job {
            None => Ok(record::job_of_environment()),
            Some(job) if record::is_plain(job) => Ok(Some(job.clone())),
            Some(job) => {
                Err(Failure::usage(format!("\"{job}\" is no name of a job; use letters, digits and . _ - @")))
            }
        }
    }

    fn owner(&self) -> Result<Option<(u32, u32)>, Failure> {
        let Some(text) = &self.owner else { return Ok(None) };
        let numbers =
            text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let bad = || Failure::usage(format!("\"{text}\" is no owner; write for example --owner 1000:1000"));
        numbers.map(Some).ok_or_else(bad)
    }

    /// Of the image of a rank that is to be at `path`.
    fn shape(&self, path: &Path, rank: Option<u32>) -> Result<Shape, Failure> {
        let owner = self.owner()?.unwrap_or_else(record::own_ids);
        let ost = match (self.ranks_per_ost, rank) {
            (None, _) => None,
            (Some(ranks), Some(rank)) => {
                let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
                Some(spread::ost_of(directory.unwrap_or(Path::new(".")), rank, ranks)?)
            }
            (Some(_), None) => return Err(Failure::usage("--ranks-per-ost needs a rank; give --rank N")),
        };
        Ok(Shape {
            size: size::bytes(&self.size).map_err(Failure::usage)?,
            is_reserved: self.reserve,
            bytes_per_inode: u64::from(self.bytes_per_inode),
            owner,
            ost,
        })
    }
}

/// Make an image. Its name ends with .rankfs.
#[derive(clap::Args)]
struct Create {
    /// The file that is made
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    making: Making,
    /// It stays when its job has ended
    #[arg(long)]
    keep: bool,
}

/// Mount an image. Nobody else can, on any machine, until it is unmounted.
#[derive(clap::Args)]
struct Mount {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Where
    #[arg(value_name = "DIR")]
    at: PathBuf,
    /// Only to read: any number of machines can at the same time
    #[arg(long)]
    read_only: bool,
    /// Give the space of removed files back at once
    #[arg(long)]
    discard: bool,
}

/// Unmount an image, and have all of it reach the servers.
#[derive(clap::Args)]
struct Umount {
    /// The image, or where it is mounted
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Show the images of a directory: whose they are, and whether they are in use.
#[derive(clap::Args)]
struct List {
    /// Where the images are
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print an array of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Create(arguments) => create(arguments),
        Command::Mount(arguments) => mount(arguments),
        Command::Umount(arguments) => umount(arguments),
        Command::Run(arguments) => inside::run(arguments),
        Command::Export(arguments) => transfer::export(arguments),
        Command::Import(arguments) => transfer::import(arguments),
        Command::List(arguments) => list(arguments),
        Command::Gc(arguments) => gc::run(arguments),
    }
}

fn create(arguments: &Create) -> Outcome {
    let making = &arguments.making;
    let rank = making.rank.or_else(record::rank_of_environment);
    let record = Record::new(making.job()?, rank, None, arguments.keep);
    image::create(&arguments.image, making.shape(&arguments.image, rank)?, &record)?;
    Ok(0)
}

fn mount(arguments: &Mount) -> Outcome {
    let access = if arguments.read_only { Access::Shared } else { Access::Alone };
    let image = &arguments.image;
    let file = image::open_locked(image, access)?;
    // Who only reads cannot repair.
    match access {
        Access::Alone => image::repair_if_needed(image, &file)?,
        Access::Shared => image::refuse_damaged(image, &file)?,
    }
    let how = How { reads_only: arguments.read_only, discards: arguments.discard };
    attached::attach(image, &file, &arguments.at, how)?;
    Ok(0)
}

fn umount(arguments: &Umount) -> Outcome {
    let (image, at) = attached::find(&arguments.path)?;
    let flushed = attached::flush(&at);
    attached::detach(&at)?;
    let settled = attached::settle(&image);
    if let Err(error) = flushed {
        return Err(image::has_lost(&image, &error));
    }
    settled?;
    Ok(0)
}

/// What is told of an image.
#[derive(Serialize)]
struct Shown {
    #[serde(serialize_with = "json::path")]
    image: PathBuf,
    size: u64,
    used: u64,
    in_use: bool,
    #[serde(serialize_with = "json::paths")]
    mounted_at: Vec<PathBuf>,
    #[serde(flatten)]
    record: Option<Record>,
}

fn list(arguments: &List) -> Outcome {
    let mounts = attached::mounts_here();
    let mut shown = Vec::new();
    for path in gc::images(&arguments.directory)? {
        let failed = |error| image::failed(&path, "cannot be looked at", &error);
        let file = fs::File::open(&path).map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        let is_free = image::lock_within(&file, Access::Alone, std::time::Duration::ZERO).map_err(failed)?;
        let here = attached::devices_of(&path);
        shown.push(Shown {
            size: status.len(),
            used: status.blocks() * 512,
            in_use: !is_free,
            mounted_at: mounts
                .iter()
                .filter(|(source, _)| here.contains(source))
                .map(|(_, at)| at.clone())
                .collect(),
            record: Record::of_file(&file).map_err(failed)?,
            image: path,
        });
    }
    if arguments.json {
        let text = serde_json::to_string(&shown);
        out!("{}", text.map_err(|error| Failure::new(format!("the list cannot be written: {error}")))?);
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    crate::out::print(table::render(&["IMAGE", "SIZE", "USED", "JOB", "RANK", "NODE", "STATE"], &rows));
    Ok(0)
}

fn row(shown: &Shown) -> Vec<String> {
    let dash = || "-".to_owned();
    let record = shown.record.as_ref();
    let state = match (shown.mounted_at.first(), shown.in_use) {
        (Some(at), _) => format!("at {}", at.display()),
        (None, true) => "in use".to_owned(),
        (None, false) => "closed".to_owned(),
    };
    vec![
        shown.image.file_name().map_or_else(dash, |name| image::plain(&name.to_string_lossy())),
        super::stage::bytes_text(shown.size),
        super::stage::bytes_text(shown.used),
        record.and_then(|record| record.job.clone()).unwrap_or_else(dash),
        record.and_then(|record| record.rank).map_or_else(dash, |rank| rank.to_string()),
        record.map_or_else(dash, |record| record.node.clone()),
        state,
    ]
}
