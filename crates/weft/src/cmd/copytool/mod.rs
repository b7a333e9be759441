//! `weft copytool`: copies files to an archive and back, as the coordinator of the MDT says (`docs/hsm.md#copytools`).

mod copies;
mod posix;
mod s3;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::hsm::{Archive, Copytool, CopytoolOptions, Done};
use mounting::{Source, connect::connect};
use proto::hsm::ARCHIVE_MAX;
use proto::wire::messages::HSM_AGENT_BYTES_MAX;
use rpc::{Hub, Keys, Role};
use rt::os::process::Signals;
use rt::wait::unless;

use super::serve::host_name;
use crate::failure::{Failure, Outcome};
use crate::{keys, mountpoint, serving};
use posix::Posix;
use s3::S3;

/// Most letters of a name: each has at most four bytes.
const NAME_CHARS_MAX: usize = HSM_AGENT_BYTES_MAX / 4;

/// Copy files to an archive and back, as "lfs hsm_archive" and those who read released files ask for.
#[derive(clap::Args)]
pub struct Arguments {
    /// The directory of the archive, on any file system, or s3://BUCKET/PREFIX
    #[arg(long, short = 'p', value_name = "DIRECTORY|s3://BUCKET/PREFIX")]
    hsm_root: PathBuf,
    #[command(flatten)]
    s3: s3::Options,
    /// Make an archive of the directory or prefix, which is empty
    #[arg(long)]
    init: bool,
    /// Number of the archive; several times for several [default: all]
    #[arg(long, short = 'A', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ARCHIVE_MAX)))]
    archive: Vec<u32>,
    /// Files that are copied at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// Name of the copytool, another one for each [default: HOST:DIRECTORY]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// File with the key of the file system [default: as for "weft mount"]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// A mount point, or MGS:/FILESYSTEM as for "weft mount"
    #[arg(value_name = "MOUNTPOINT|SOURCE")]
    source: String,
}

/// Runs the command, until a signal ends it.
pub fn run(arguments: &Arguments) -> Outcome {
    let source = source(&arguments.source)?;
    let root = &arguments.hsm_root;
    let bucket = arguments.s3.bucket(root)?;
    if bucket.is_none() {
        check_directory(arguments)?;
    }
    let key = keys::resolve(arguments.key.as_deref(), &source.fsname, Role::Client)?;
    let keys = Keys { server: None, client: Some(keys::read(&key)?) };
    let signals = serving::catch_signals()?;
    let (node, rt) = serving::start_runtime()?;
    node.block_on(async {
        let hub = serving::hub(&rt, &source.fsname, keys, None);
        let serving = Serving { arguments, source: &source, hub: &hub, signals: &signals };
        match bucket {
            None => serving.run(Posix::open(&rt, root, arguments.init)?).await,
            Some(bucket) => {
                let archive = S3::new(&rt, &node, &arguments.s3, bucket)?;
                let opening = async {
                    match arguments.init {
                        true => archive.init().await,
                        false => archive.open().await,
                    }
                };
                // A server may not answer for a while.
                match unless(signals.wait(), opening).await {
                    Some(opened) => opened?,
                    None => return Ok(0),
                }
                serving.run(archive).await
            }
        }
    })
}

/// What a copytool works with, wherever the archive is.
struct Serving<'a> {
    arguments: &'a Arguments,
    source: &'a Source,
    hub: &'a Hub,
    signals: &'a Signals,
}

impl Serving<'_> {
    async fn run(self, archive: impl Archive) -> Outcome {
        let Serving { arguments, source, hub, signals } = self;
        let name = arguments.name.clone().unwrap_or_else(|| default_name(&arguments.hsm_root));
        let client = connect(hub, source, &mounting::Options::default()).await?;
        let options = CopytoolOptions {
            agent: name.clone(),
            archives: arguments.archive.clone(),
            parallel: arguments.parallel as usize,
        };
        out!("copytool {name} serves {source}");
        let counts = Arc::new(Counts::default());
        let tool = Copytool::new(client.clone(), archive, options, {
            let counts = counts.clone();
            move |done, result| counts.add(done, result)
        });
        let running = tool.run();
        let ended = unless(signals.wait(), running).await;
        let unmounted = client.unmount().await;
        hub.close().await;
        out!("{}", counts.text());
        ended.unwrap_or(Ok(())).and(unmounted).map_err(|error| Failure::new(error.to_string()))?;
        Ok(0)
    }
}

/// An archive in a directory: it is not in what it archives, and nothing is said about S3.
fn check_directory(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(option) = arguments.s3.first() {
        return Err(Failure::usage(format!("{option} is for --hsm-root s3://BUCKET/PREFIX")));
    }
    if let Ok(Some(entry)) = mountpoint::containing(&arguments.hsm_root) {
        let root = arguments.hsm_root.display();
        let mount = entry.path.display();
        return Err(Failure::new(format!(
            "{root} is in the weft file system at {mount}; an archive has to be elsewhere"
        )));
    }
    Ok(())
}

/// What the copytool has done.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    fn add(&self, done: Done, result: &client::Result<()>) {
        let Done { fid, action, bytes } = done;
        match result {
            Ok(()) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                tracing::info!(%fid, %action, bytes, "done");
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                err!("{action} of {fid}: {error}");
            }
        }
    }

    fn text(&self) -> String {
        let [done, failed, bytes] =
            [&self.done, &self.failed, &self.bytes].map(|n| n.load(Ordering::Relaxed));
        format!("{done} actions done, {failed} failed, {bytes} bytes copied")
    }
}

fn default_name(root: &Path) -> String {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let name = format!("{}:{}", host_name(), root.display());
    // The directory may be called anything.
    name.chars().map(|letter| if is_shown(letter) { letter } else { '_' }).take(NAME_CHARS_MAX).collect()
}

/// Whether a letter may stand in the name of a copytool: lines that people read have it.
fn is_shown(letter: char) -> bool {
    !letter.is_control() && !letter.is_whitespace()
}

/// A name that the MDT takes.
fn name(text: &str) -> Result<String, String> {
    match text.chars().all(is_shown) && !text.is_empty() && text.len() <= NAME_CHARS_MAX {
        true => Ok(text.to_owned()),
        false => Err(format!("a name has at most {NAME_CHARS_MAX} letters, and no blanks")),
    }
}

/// The file system that is meant: of a mount point, that which is mounted there.
fn source(text: &str) -> Result<Source, Failure> {
    let Some(entry) =
        mountpoint::containing(Path::new(text)).ok().flatten().filter(|_| text.starts_with('/'))
    else {
        return Ok(Source::parse(text)?);
    };
    let status = mountpoint::status(&entry)
        .map_err(|error| Failure::new(format!("{text}: {}", crate::control::describe(&error))))?;
    let nids = status.mgs.join(":");
    if status.mgs.iter().all(|nid| nid.ends_with("@lo")) {
        return Err(Failure::new(format!(
            "the file system at {text} can be reached through its mount alone; start it with \"weft up --listen ADDRESS\""
        )));
    }
    Ok(Source::parse(&format!("{nids}:/{}", status.fsname))?)
}
