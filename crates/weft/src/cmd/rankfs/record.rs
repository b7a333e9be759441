//! Whose an image is: a record in an extended attribute of the image, which comes and goes with it. So a rank costs the MDT no further file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, getxattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Name of the attribute.
const NAME: &str = "user.weft.rankfs";
/// Bytes of a record at most.
const BYTES_MAX: usize = 4096;
/// Of the record.
const VERSION: u32 = 1;
/// Where schedulers tell a process its job, and its rank in it.
const JOBS: [&str; 4] = ["WEFT_JOB", "SLURM_JOB_ID", "PJM_JOBID", "PBS_JOBID"];
const RANKS: [&str; 5] = ["WEFT_RANK", "SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"];

/// Whose an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of the record's form.
    pub version: u32,
    /// The job that it was made for. An image without one belongs to whoever made it.
    pub job: Option<String>,
    /// The rank in the job.
    pub rank: Option<u32>,
    /// The machine that made it.
    pub node: String,
    /// Which time that machine was up.
    pub boot: String,
    /// The process that the image ends with.
    pub owner: Option<Owner>,
    /// It stays when its job has ended.
    pub kept: bool,
    /// Its content is being copied into it. If that was broken off, it is of no use.
    #[serde(default)]
    pub is_partial: bool,
}

/// A process of a machine; its number may be another one's later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks since the machine came up.
    pub started: u64,
    /// The PID namespace in which it has its number, by its inode; 0 if that is not known.
    #[serde(default)]
    pub namespace: u64,
}

/// This machine, while it is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Another one after each start.
    pub boot: String,
}

impl Node {
    /// The one that this process runs on.
    pub fn this() -> Node {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Node { name, boot: boot.trim().to_owned() }
    }

    /// Whether an image was made on it. In a container it may have another name.
    pub fn has_made(&self, record: &Record) -> bool {
        record.node == self.name || (!self.boot.is_empty() && record.boot == self.boot)
    }
}

impl Owner {
    /// This process.
    pub fn this() -> Option<Owner> {
        let pid = std::process::id();
        started(pid).map(|started| Owner { pid, started, namespace: namespace() })
    }

    /// Whether the process is there still; none if it cannot be seen from here, as it is in another container.
    pub fn lives(self) -> Option<bool> {
        let is_seen = self.namespace == 0 || self.namespace == namespace();
        is_seen.then(|| started(self.pid) == Some(self.started))
    }
}

/// The PID namespace of this process.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// When a process was started; none if there is no such process, or it only waits to be asked for its status.
fn started(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name of the program may have spaces and brackets in it.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    match words.first()? {
        &"Z" | &"X" => None,
        _ => words.get(19)?.parse().ok(),
    }
}

impl Record {
    /// Of an image that is made now.
    pub fn new(job: Option<String>, rank: Option<u32>, owner: Option<Owner>, kept: bool) -> Record {
        let Node { name, boot } = Node::this();
        Record { version: VERSION, job, rank, node: name, boot, owner, kept, is_partial: false }
    }

    /// Keeps it with its image.
    pub fn keep(&self, image: &File) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        Ok(fsetxattr(image, NAME, &text, XattrFlags::empty())?)
    }

    /// That of an image. None if it has none, or one that this program does not know.
    pub fn of(path: &Path) -> io::Result<Option<Record>> {
        let mut text = vec![0; BYTES_MAX];
        parse(getxattr(path, NAME, &mut text[..]).map(|length| &text[..length]))
    }

    /// That of an open image.
    pub fn of_file(image: &File) -> io::Result<Option<Record>> {
        let mut text = vec![0; BYTES_MAX];
        parse(fgetxattr(image, NAME, &mut text[..]).map(|length| &text[..length]))
    }

    /// Whether a terminal can show it: a record is its image's owner's to write.
    fn is_printable(&self) -> bool {
        let words = [self.job.as_deref().unwrap_or_default(), &self.node, &self.boot];
        words.iter().all(|word| word.len() <= BYTES_MAX && !word.contains(char::is_control))
    }

    /// Who has it, for a person.
    pub fn whose(&self) -> String {
        let rank = self.rank.map_or(String::new(), |rank| format!("rank {rank} of "));
        let job = self.job.as_ref().map_or("no job".to_owned(), |job| format!("job {job}"));
        format!("{rank}{job}, made on {}", self.node)
    }
}

fn parse(text: Result<&[u8], Errno>) -> io::Result<Option<Record>> {
    match text {
        Ok(text) => {
            let record = serde_json::from_slice::<Record>(text).ok();
            Ok(record.filter(|record| record.version == VERSION && record.is_printable()))
        }
        Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The job that the scheduler says this process belongs to.
pub fn job_of_environment() -> Option<String> {
    JOBS.iter().find_map(|name| std::env::var(name).ok()).filter(|job| is_plain(job))
}

/// The rank that the scheduler says this process is.
pub fn rank_of_environment() -> Option<u32> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The user and the group of this process.
pub fn own_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Whether a job's name can be part of a file's name.
pub fn is_plain(job: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@[]".contains(c);
    !job.is_empty() && job.len() <= 100 && !job.starts_with('.') && job.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_apart() {
        let this = Owner::this().expect("a process");
        assert_eq!(this.lives(), Some(true));
        assert_eq!(Owner { started: this.started + 1, ..this }.lives(), Some(false));
        assert_eq!(Owner { pid: u32::MAX, ..this }.lives(), Some(false));
        assert_eq!(Owner { namespace: this.namespace + 1, ..this }.lives(), None);
        assert_eq!(Owner { namespace: 0, ..this }.lives(), Some(true));
        let stat = |state| format!("7 (a) b) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0");
        assert_eq!(parse_stat(&stat("S")), Some(4711));
        assert_eq!(parse_stat(&stat("Z")), None);
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = Record::new(Some("12".into()), Some(3), Owner::this(), false);
        let text = serde_json::to_vec(&record).expect("a text");
        assert!(text.len() < 1000);
        assert_eq!(parse(Ok(&text)).expect("a record"), Some(record.clone()));
        let other = String::from_utf8(text).expect("text").replace("\"version\":1", "\"version\":2");
        assert_eq!(parse(Ok(other.as_bytes())).expect("no error"), None);
        assert_eq!(parse(Ok(b"\xff")).expect("no error"), None);
        assert_eq!(parse(Err(Errno::NODATA)).expect("no error"), None);
        assert!(parse(Err(Errno::IO)).is_err());
        assert!(record.whose().starts_with("rank 3 of job 12, made on "));
    }

    #[test]
    fn machines_are_told_apart() {
        let record = |node: &str, boot: &str| Record {
            node: node.to_owned(),
            boot: boot.to_owned(),
            ..Record::new(None, None, None, false)
        };
        let node = |boot: &str| Node { name: "n1".to_owned(), boot: boot.to_owned() };
        for (node, record, expected) in [
            (node("b"), record("n1", "b"), true),
            (node("b"), record("n1", "before"), true),
            (node("b"), record("a-container", "b"), true),
            (node("b"), record("n2", "c"), false),
            (node(""), record("n2", ""), false),
        ] {
            assert_eq!(node.has_made(&record), expected, "{node:?} {record:?}");
        }
    }

    #[test]
    fn jobs_with_odd_names_are_none() {
        for (job, fine) in [
            ("12", true),
            ("12.host", true),
            ("12[3]", true),
            ("", false),
            ("../x", false),
            ("..", false),
            ("a b", false),
        ] {
            assert_eq!(is_plain(job), fine, "{job}");
        }
    }
}
