//! To which job a request of the kernel belongs (`jobid_var`, `jobid_name`).
//!
//! Schedulers put the number of a job into the environment of its processes. The kernel says which thread asks, and /proc what that has in its
//! environment, so no job has to be told anything. What was found of a thread is kept for a moment: in the meantime its next request costs
//! one look into a table. Nothing is looked up as long as nobody wants jobs.
//!
//! Whoever looks into an environment waits for the locks of its process (`mm_access` and `environ_read` in fs/proc/base.c), which a thread of
//! that process may hold until this mount has answered it: one that maps a file has its pages written back first, one that executes
//! a program gives its locks up. So threads of their own look, and are not waited for for long; and nothing is looked up for what may be asked
//! for under these locks ([`Asks`]). The memory that they read is never that of a file: the kernel refuses it (`FOLL_ANON`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use client::Setting;
use parking_lot::{Mutex, RwLock};
use proto::parameters::{ClientTree, Parameter};
use proto::{Code, JobId, Shards};
use rt::{Rt, Time};

use crate::kernel::request::{CopyRange, Lock, Operation, Read, Write};
use crate::proc;
use crate::threads::Threads;

/// How long it is taken for true what was found of a thread: it may run another program by then, or be another one with the same
/// number.
const KEEP: Duration = Duration::from_secs(1);
/// Parts of the table of threads.
const PARTS: usize = 16;
/// Threads in one part. When there are more, all that is kept there goes.
const THREADS_MAX: usize = 1024;
/// How long it is waited for what an environment says.
const PATIENCE: Duration = Duration::from_millis(50);
/// Threads that look into environments, at most: more than one only while some are kept waiting.
const LOOKERS_MAX: usize = 16;
/// Environments that are to be looked into, at most.
const LOOKS_MAX: usize = 64;
/// Longest value of `jobid_var` and of `jobid_name`, in bytes.
const TEXT_BYTES_MAX: usize = 64;
/// `jobid_name` at first, as in Lustre: `dd.0`.
const NAME: &str = "%e.%u";
const VAR_TAKES: &str =
    "write disable, procname_uid, nodelocal, or the name of an environment variable as SLURM_JOB_ID";
const NAME_TAKES: &str = "write up to 64 printable characters, with %e for the program, %u and %g for user and group, %p for the process, %h and %H for the \
     host, %j for the variable of jobid_var";

/// Where the name of a job is from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// There are no jobs.
    Disabled,
    /// Program and user.
    Program,
    /// `jobid_name`, for a node that has one job.
    Node,
    /// The environment.
    Variable(String),
}

impl Source {
    fn parse(text: &str) -> Result<Source, Code> {
        Ok(match text {
            "disable" => Source::Disabled,
            "procname_uid" => Source::Program,
            "nodelocal" => Source::Node,
            // Lustre's name of something that there is not.
            "session" => return Err(Code::Invalid),
            name => {
                let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if name.is_empty() || name.len() > TEXT_BYTES_MAX || !is_name {
                    return Err(Code::Invalid);
                }
                Source::Variable(name.to_owned())
            }
        })
    }

    fn as_str(&self) -> &str {
        match self {
            Source::Disabled => "disable",
            Source::Program => "procname_uid",
            Source::Node => "nodelocal",
            Source::Variable(name) => name,
        }
    }
}

/// What is wanted.
#[derive(Debug, Clone)]
struct Wanted {
    source: Source,
    /// A name, with codes in it.
    name: String,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The thread, as the kernel says it; 0 for the kernel itself, and for one of a PID namespace that this process does not see.
    pub thread: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// By what the job of a request is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// By the thread.
    Thread,
    /// By what is known of the thread, or else by the job that opened the handle: the thread may hold locks of its process, or be none.
    Handle(u64),
    /// It belongs to no job.
    Nobody,
}

impl Asks {
    /// How it is with `operation`.
    pub fn of(operation: &Operation<'_>) -> Asks {
        match operation {
            Operation::Read(Read { handle, .. })
            | Operation::Write(Write { handle, cached: true, .. })
            | Operation::GetLock(Lock { handle, .. })
            | Operation::SetLock { lock: Lock { handle, .. }, .. }
            | Operation::Flush { handle, .. }
            | Operation::Release { handle, .. }
            | Operation::ReleaseDir { handle }
            | Operation::Fsync { handle, .. }
            | Operation::FsyncDir { handle, .. }
            | Operation::ReadDir { handle, .. }
            | Operation::CopyRange(CopyRange { handle_out: handle, .. }) => Asks::Handle(*handle),
            Operation::Forget { .. }
            | Operation::BatchForget { .. }
            | Operation::Interrupt { .. }
            | Operation::Init(_)
            | Operation::Destroy
            | Operation::SyncFs
            | Operation::Ioctl
            | Operation::Poll
            | Operation::NotifyReply
            | Operation::Unknown(_) => Asks::Nobody,
            _ => Asks::Thread,
        }
    }
}

/// What is kept of a thread.
#[derive(Clone, Copy)]
struct Known {
    job: JobId,
    until: Time,
    /// What was wanted when that was found.
    version: u64,
}

/// What the name of a job is made of.
trait Facts {
    fn program(&self) -> Vec<u8>;
    fn variable(&self, name: &str) -> Option<Vec<u8>>;
    fn host(&self) -> Vec<u8>;
}

/// The jobs of a mount.
pub struct Jobs {
    rt: Rt,
    is_wanted: AtomicBool,
    wanted: RwLock<Arc<Wanted>>,
    /// Grows whenever something else is wanted.
    version: AtomicU64,
    threads: Shards<Mutex<BTreeMap<u32, Known>>, PARTS>,
    lookers: Lookers,
}

impl Jobs {
    /// None are wanted.
    pub fn new(rt: Rt) -> Jobs {
        let wanted = Wanted { source: Source::Disabled, name: NAME.to_owned() };
        Jobs {
            rt,
            is_wanted: AtomicBool::new(false),
            wanted: RwLock::new(Arc::new(wanted)),
            version: AtomicU64::new(0),
            threads: Shards::default(),
            lookers: Lookers::default(),
        }
    }

    /// Whether requests may belong to jobs.
    pub fn are_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// The job of a request; `job_of` says for which one a handle was opened.
    pub fn of(&self, asker: Asker, asks: Asks, job_of: impl FnOnce(u64) -> JobId) -> JobId {
        if !self.are_wanted() {
            return JobId::NONE;
        }
        match asks {
            Asks::Nobody => JobId::NONE,
            Asks::Handle(handle) => self.known(asker.thread).unwrap_or_else(|| job_of(handle)),
            Asks::Thread => self.known(asker.thread).unwrap_or_else(|| self.find(asker)),
        }
    }

    fn known(&self, thread: u32) -> Option<JobId> {
        let known = self.threads.of(&u64::from(thread)).lock().get(&thread).copied()?;
        let is_true = known.until > self.rt.now() && known.version == self.version.load(Ordering::Acquire);
        is_true.then_some(known.job)
    }

    fn find(&self, asker: Asker) -> JobId {
        let thread = asker.thread;
        if thread == 0 {
            return JobId::NONE;
        }
        let version = self.version.load(Ordering::Acquire);
        let wanted = self.wanted.read().clone();
        let job = wanted.job(asker, &Process { thread, lookers: &self.lookers });
        let mut threads = self.threads.of(&u64::from(thread)).lock();
        if threads.len() >= THREADS_MAX && !threads.contains_key(&thread) {
            threads.clear();
        }
        threads.insert(thread, Known { job, until: self.rt.now() + KEEP, version });
        job
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.write();
        let mut new = Wanted::clone(&wanted);
        change(&mut new);
        self.is_wanted.store(new.source != Source::Disabled, Ordering::Release);
        *wanted = Arc::new(new);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Registers what can be set. As in Lustre, it stands beside the mounts, and has no device in its name.
    pub fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let var = Parameter::text("jobid_var", || self.wanted.read().source.as_str().to_owned());
        tree.of_client(var.settable(VAR_TAKES, move |text: &str| -> Setting<'a> {
            let source = Source::parse(text.trim());
            Box::pin(async move {
                let source = source?;
                self.want(|wanted| wanted.source = source);
                Ok(())
            })
        }));
        let name = Parameter::text("jobid_name", || self.wanted.read().name.clone());
        tree.of_client(name.settable(NAME_TAKES, move |text: &str| -> Setting<'a> {
            let text = text.trim().to_owned();
            let is_name = !text.is_empty()
                && text.len() <= TEXT_BYTES_MAX
                && text.bytes().all(|byte| byte.is_ascii_graphic());
            Box::pin(async move {
                if !is_name {
                    return Err(Code::Invalid.into());
                }
                self.want(|wanted| wanted.name = text);
                Ok(())
            })
        }));
    }
}

impl Wanted {
    /// As in Lustre, who has not the variable in its environment has a job by `jobid_name`.
    fn job(&self, asker: Asker, facts: &impl Facts) -> JobId {
        let name = match &self.source {
            Source::Disabled => Vec::new(),
            Source::Program => filled(NAME, asker, facts, None),
            Source::Node => filled(&self.name, asker, facts, None),
            Source::Variable(variable) if self.name.contains("%j") => {
                filled(&self.name, asker, facts, Some(variable))
            }
            Source::Variable(variable) => {
                let value = facts.variable(variable).filter(|value| !value.is_empty());
                value.unwrap_or_else(|| filled(&self.name, asker, facts, None))
            }
        };
        JobId::named(&name)
    }
}

/// `name`, with what its codes stand for. An unknown code is left out.
fn filled(name: &str, asker: Asker, facts: &impl Facts, variable: Option<&str>) -> Vec<u8> {
    let (mut filled, mut rest) = (Vec::new(), name.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            filled.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'e') => filled.extend(facts.program()),
            Some(b'u') => filled.extend(asker.uid.to_string().bytes()),
            Some(b'g') => filled.extend(asker.gid.to_string().bytes()),
            Some(b'p') => filled.extend(asker.thread.to_string().bytes()),
            Some(b'h') => filled.extend(facts.host()),
            Some(b'H') => filled.extend(facts.host().into_iter().take_while(|byte| *byte != b'.')),
            Some(b'j') => {
                filled.extend(variable.and_then(|variable| facts.variable(variable)).unwrap_or_default())
            }
            Some(b'%') => filled.push(b'%'),
            _ => {}
        }
    }
    filled
}

type Look = Box<dyn FnOnce() + Send>;

/// Those who look into environments.
#[derive(Default)]
struct Lookers {
    /// Started with the first look.
    threads: OnceLock<Option<Threads<Look>>>,
    looks: Arc<AtomicUsize>,
}

impl Lookers {
    /// The value of a variable in the environment of a thread; none if that does not say in time.
    fn variable(&self, thread: u32, name: &str) -> Option<Vec<u8>> {
        let start = || Threads::start("weft-jobs", LOOKERS_MAX, |look: Look| look());
        let threads = self.threads.get_or_init(|| {
            let failed = |error| tracing::warn!(%error, "no thread looks for the jobs of processes");
            start().map_err(failed).ok()
        });
        let looks = self.looks.clone();
        if looks.fetch_add(1, Ordering::AcqRel) >= LOOKS_MAX {
            looks.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let (tell, told) = mpsc::channel();
        let name = name.to_owned();
        threads.as_ref()?.give(Box::new(move || {
            let environment = proc::bytes(thread, "environ").unwrap_or_default();
            looks.fetch_sub(1, Ordering::AcqRel);
            // Nobody waits any more if it took too long.
            let _ = tell.send(value_of(&environment, &name));
        }));
        told.recv_timeout(PATIENCE).ok()?
    }
}

/// A thread, as /proc tells of it. Of one that is gone nothing is known.
struct Process<'a> {
    thread: u32,
    lookers: &'a Lookers,
}

impl Facts for Process<'_> {
    fn program(&self) -> Vec<u8> {
        let name = proc::bytes(self.thread, "comm").unwrap_or_default();
        name.trim_ascii_end().to_vec()
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        self.lookers.variable(self.thread, name)
    }

    fn host(&self) -> Vec<u8> {
        rustix::system::uname().nodename().to_bytes().to_vec()
    }
}

/// The value of a variable in an environment: `NAME=VALUE`, each with a zero behind it.
fn value_of(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let entries = environment.split(|byte| *byte == 0);
    let mut values = entries.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next().map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts how often the environment is asked for.
    struct Told(Cell<u32>, &'static [u8]);

    impl Facts for Told {
        fn program(&self) -> Vec<u8> {
            b"Web Content".to_vec()
        }

        fn variable(&self, name: &str) -> Option<Vec<u8>> {
            self.0.set(self.0.get() + 1);
            value_of(self.1, name)
        }

        fn host(&self) -> Vec<u8> {
            b"n1.cluster".to_vec()
        }
    }

    const ASKER: Asker = Asker { thread: 77, uid: 5, gid: 6 };

    #[test]
    fn names_are_made_as_in_lustre() {
        const ENVIRONMENT: &[u8] = b"PATH=/bin\0XSLURM_JOB_ID=1\0SLURM_JOB_ID=4711\0EMPTY=\0";
        for (source, name, job, asked) in [
            ("disable", NAME, "", 0),
            ("procname_uid", "x", "Web_Content.5", 0),
            ("nodelocal", "render", "render", 0),
            ("nodelocal", "%H:%e:%u", "n1:Web_Content:5", 0),
            ("nodelocal", "%h/%g/%p/%%/%x%", "n1.cluster/6/77/%/", 0),
            ("nodelocal", "a%j", "a", 0),
            ("SLURM_JOB_ID", NAME, "4711", 1),
            ("SLURM_JOB_ID", "%j:%u", "4711:5", 1),
            ("SLURM", NAME, "Web_Content.5", 1),
            ("EMPTY", NAME, "Web_Content.5", 1),
            ("NONE", "%j:%u", ":5", 1),
        ] {
            let wanted = Wanted { source: Source::parse(source).expect("it is one"), name: name.to_owned() };
            let facts = Told(Cell::new(0), ENVIRONMENT);
            assert_eq!(wanted.job(ASKER, &facts), JobId::named(job.as_bytes()), "{source} {name}");
            assert_eq!(facts.0.get(), asked, "{source} {name}");
            assert_eq!(wanted.source.as_str(), source);
        }
        for bad in ["", "session", "A B", "A=B", &"A".repeat(65)] {
            assert_eq!(Source::parse(bad), Err(Code::Invalid), "{bad}");
        }
    }

    #[test]
    fn values_are_found_by_whole_names() {
        assert_eq!(value_of(b"AB=1\0B=2\0B=3\0", "B"), Some(b"2".to_vec()));
        assert_eq!(value_of(b"B", "B"), None);
        assert_eq!(value_of(b"", "B"), None);
    }
}
