//! What one machine does of it: `weft burst on-node`.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::session::MountEntry;
use mounting::Source;
use proto::{FsName, Nid, TargetId};
use rpc::{Keys, Role};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::order::{HELLO, Mount, Order, Report, Serve, Step};
use crate::cmd::format::{self, NewTarget};
use crate::cmd::{down, mount};
use crate::control::describe;
use crate::daemon::{self, Place};
use crate::failure::{Failure, Outcome};
use crate::mountpoint::{self, State};
use crate::{keys, servers, serving};

/// Most bytes of an order.
const ORDER_BYTES_MAX: u64 = 1 << 20;
/// The file with the number of the start that made the directory.
const START: &str = "start";
/// The file that says what is mounted.
const RECORD: &str = "burst.json";

/// Bits of a mode: others, or a group, may make and remove names.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// They may not touch those of others.
const STICKY: u32 = 0o1000;

/// Which mount belongs to the file system.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    source: String,
    mountpoint: PathBuf,
    /// The mount point was made for it.
    made: bool,
}

/// Runs the command.
pub fn run() -> Outcome {
    // What is sent before somebody waits for the answer is not read.
    let _ = writeln!(io::stdout(), "{HELLO}");
    let mut line = String::new();
    let mut input = BufReader::new(io::stdin());
    let read = Read::take(&mut input, ORDER_BYTES_MAX).read_line(&mut line);
    let order: Order = match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
        Some(order) => order,
        None => {
            return Err(Failure::new(
                "this is no order of \"weft burst\" of this version; install the same weft on all machines",
            ));
        }
    };
    end_in_time(input, Duration::from_secs(order.wait_s));
    let done = carry_out(&order);
    report(order.number, done.as_ref().err().map(|failure| failure.message.clone()));
    Ok(u8::from(done.is_err()))
}

fn report(number: u64, error: Option<String>) {
    let line = serde_json::to_string(&Report { number, error }).unwrap_or_default();
    // Whoever asked may be gone.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Ends this process when whoever gave the order is gone, or does not wait any more. What it has begun is found by the next order.
fn end_in_time(mut input: impl Read + Send + 'static, wait: Duration) {
    std::thread::spawn(move || {
        // Nothing comes but the end.
        let _ = io::copy(&mut input, &mut io::sink());
        std::process::exit(1)
    });
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        std::process::exit(1)
    });
}

fn carry_out(order: &Order) -> Result<(), Failure> {
    let fsname: FsName = order.fsname.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    if !order.data.is_absolute() {
        return Err(Failure::usage("--data needs a path that begins with /"));
    }
    let failed = |error: io::Error| Failure::new(format!("{}: {}", order.data.display(), describe(&error)));
    // However it is written, it is one place.
    let data = match order.data.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && matches!(order.step, Step::Remove) => {
            return Ok(());
        }
        data => data.map_err(failed)?,
    };
    let status = fs::metadata(&data).map_err(failed)?;
    if status.mode() & WRITABLE_BY_OTHERS != 0 && status.mode() & STICKY == 0 {
        return Err(Failure::new(format!(
            "others can exchange what lies in {}; take their right to write away, or name another directory with --data",
            data.display()
        )));
    }
    let lock = data.join(format!(".weft-burst-{fsname}.lock"));
    let place = Burst { at: data.join(format!("weft-burst-{fsname}")), start: order.start, fsname };
    if matches!(order.step, Step::Remove) {
        // A start may wait for a server that waits for an MGS that is gone.
        place.end_processes()?;
    }
    let _turn = turn(&lock).map_err(failed)?;
    match &order.step {
        Step::Serve(serve) => place.serve(serve),
        Step::Mount(wanted) => place.mount(wanted),
        Step::Unmount => place.unmount(Way::Orderly),
        Step::Remove => place.remove(),
    }
}

/// One order after the other. The file goes with the last one, so whoever has waited looks whether it still is the file.
fn turn(path: &Path) -> io::Result<Turn> {
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let (held, named) = (file.metadata()?, fs::symlink_metadata(path));
        if held.uid() != own_ids().0 {
            return Err(io::Error::other("another user's file system of this name is there"));
        }
        if named.is_ok_and(|named| named.ino() == held.ino()) {
            return Ok(Turn { path: path.to_owned(), _held: file });
        }
    }
}

struct Turn {
    path: PathBuf,
    _held: File,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What one machine has of the file system: all of it lies in one directory.
struct Burst {
    at: PathBuf,
    /// The start that the order is about.
    start: Option<u64>,
    fsname: FsName,
}

/// How a mount ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// What was written is sent first.
    Orderly,
    /// Nobody waits for it.
    Detached,
}

impl Burst {
    fn key(&self, role: Role) -> PathBuf {
        keys::path(&self.at, &self.fsname, role)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(format!("{}: {}", self.at.display(), describe(error)))
    }

    fn serve(&self, serve: &Serve) -> Result<(), Failure> {
        let made = DirBuilder::new().mode(0o700).create(&self.at);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::new(format!(
                "{} is there: a file system of this name was not stopped; run \"weft burst stop\", or name another with --fsname",
                self.at.display()
            )),
            _ => self.failed(&error),
        })?;
        let start = self.start.unwrap_or_default().to_string();
        fs::write(self.at.join(START), start).map_err(|error| self.failed(&error))?;
        refuse_used(&serve.nid)?;
        for (role, key) in [(Role::Server, &serve.server_key), (Role::Client, &serve.client_key)] {
            let file = File::options().write(true).create_new(true).mode(0o600).open(self.key(role));
            let written = file.and_then(|mut file| writeln!(file, "{key}"));
            written.map_err(|error| self.failed(&error))?;
        }
        let directories = self.format(serve)?;
        let mut arguments: Vec<OsString> = vec!["serve".into()];
        arguments.extend(directories.into_iter().map(PathBuf::into_os_string));
        arguments.extend(["--listen", &serve.nid, "--server", &serve.server, "--key"].map(OsString::from));
        arguments.push(self.key(Role::Server).into());
        if let Some(mb) = serve.mem_limit_mb {
            arguments.extend(["--mem-limit-mb".into(), mb.to_string().into()]);
        }
        daemon::launch(&arguments, &self.at.join("serve.log"))
    }

    /// Makes the targets of this machine.
    fn format(&self, serve: &Serve) -> Result<Vec<PathBuf>, Failure> {
        let mgs = serve.mgs.as_ref().unwrap_or(&serve.nid);
        let mgs: Nid = mgs.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let mut targets = Vec::new();
        if serve.mgs.is_none() {
            targets.extend([TargetId::MGS, TargetId::mdt(0)]);
        }
        targets.extend(serve.osts.iter().copied().map(TargetId::ost));
        let (node, rt) = serving::start_runtime()?;
        let mut directories = Vec::new();
        for target in targets {
            let directory = self.at.join(target.to_string());
            let mgs = if target == TargetId::MGS { Vec::new() } else { vec![mgs.clone()] };
            let new = NewTarget { fsname: self.fsname.clone(), target, mgs, service: Vec::new() };
            node.block_on(format::format(&rt, &directory, new))?;
            directories.push(directory);
        }
        Ok(directories)
    }

    fn mount(&self, wanted: &Mount) -> Result<(), Failure> {
        if !self.is_meant()? {
            return Err(Failure::new("it was stopped while it was started"));
        }
        let source = Source::parse(&format!("{}:/{}", wanted.mgs, self.fsname))?;
        // The root directory of a new file system is the superuser's.
        let own = own_ids();
        if let Some(owner) = wanted.owner.or((own.0 != 0).then_some(own)).filter(|_| wanted.gives_root) {
            self.give_root(&source, owner)?;
        }
        let made = !wanted.mountpoint.exists();
        if made {
            fs::create_dir(&wanted.mountpoint).map_err(|error| {
                Failure::new(format!("{} cannot be made: {}", wanted.mountpoint.display(), describe(&error)))
            })?;
        }
        let mountpoint = mountpoint::absolute(&wanted.mountpoint)?;
        let record = Record { source: source.to_string(), mountpoint: mountpoint.clone(), made };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        fs::write(self.at.join(RECORD), text).map_err(|error| self.failed(&error))?;
        let mut options = mount::MountOptions::parse(&wanted.options, mount::Unknown::Refused)?;
        options.client.key = Some(self.key(Role::Client));
        mount::mount(mount::Request { source, mountpoint, options, place: Place::Background }).map(drop)
    }

    fn give_root(&self, source: &Source, owner: (u32, u32)) -> Result<(), Failure> {
        let keys = Keys { server: None, client: Some(keys::read(&self.key(Role::Client))?) };
        let (node, rt) = serving::start_runtime()?;
        node.block_on(async {
            let hub = serving::hub(&rt, &self.fsname, keys, None);
            let client = mounting::connect::connect(&hub, source, &mounting::Options::default()).await?;
            let given = serving::give_root(&client, owner).await;
            let ended = client.unmount().await;
            hub.close().await;
            given.and(ended.map_err(|error| Failure::new(error.to_string())))
        })
    }

    fn unmount(&self, way: Way) -> Result<(), Failure> {
        if !self.is_meant()? {
            return Ok(());
        }
        let Some(record) = self.record()? else { return Ok(()) };
        let path = &record.mountpoint;
        let is_here = |entry: &MountEntry| entry.path == *path;
        let mounts = fuse::session::mounts().map_err(|error| self.failed(&error))?;
        // Something else may be mounted there, instead of it or over it.
        match mounts.iter().rfind(|entry| is_here(entry)) {
            Some(entry) if entry.source == record.source => {}
            Some(entry) if mounts.iter().any(|one| is_here(one) && one.source == record.source) => {
                return Err(Failure::new(format!(
                    "{} ({}) is mounted over it at {}; take that away first",
                    entry.source,
                    entry.kind,
                    path.display()
                )));
            }
            _ => return Ok(()),
        }
        let gone = |error: io::Error| Failure::new(format!("{}: {}", path.display(), describe(&error)));
        if way == Way::Detached {
            return fuse::session::detach(path).map_err(gone);
        }
        match mountpoint::state(path)? {
            State::Up(_) => down::stop(path),
            State::Dead => fuse::session::detach(path).map_err(gone),
            State::Silent => Err(mountpoint::silent(path)),
            State::Free | State::Foreign(_) => Ok(()),
        }
    }

    fn remove(&self) -> Result<(), Failure> {
        if !self.is_meant()? {
            // It goes if it is there and empty.
            let _ = fs::remove_dir(&self.at);
            return Ok(());
        }
        self.unmount(Way::Detached)?;
        let record = self.record()?;
        self.end_processes()?;
        // The files of those that were killed go.
        servers::all()?;
        fs::remove_dir_all(&self.at).map_err(|error| self.failed(&error))?;
        if let Some(record) = record.filter(|record| record.made) {
            // Somebody may use it for something else by now.
            let _ = fs::remove_dir(record.mountpoint);
        }
        Ok(())
    }

    fn end_processes(&self) -> Result<(), Failure> {
        if !self.is_meant()? {
            return Ok(());
        }
        self.processes().into_iter().try_for_each(|(pid, process)| kill(pid, process))
    }

    /// The processes that serve or mount it, also those that have only begun: each was told of a key in the directory.
    fn processes(&self) -> Vec<(u32, OwnedFd)> {
        let keys = [Role::Server, Role::Client].map(|role| self.key(role).into_os_string());
        let is_of_it = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| keys.iter().any(|key| key.as_bytes() == word))
        };
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        // Opened before it is looked at: another process may get the number.
        let opened = pids.filter_map(|pid| {
            let named = Pid::from_raw(i32::try_from(pid).ok()?)?;
            Some((pid, pidfd_open(named, PidfdFlags::empty()).ok()?))
        });
        opened.filter(|(pid, _)| is_of_it(*pid)).collect()
    }

    /// Whether the directory is there and the order is about it. What somebody else has made is an error.
    fn is_meant(&self) -> Result<bool, Failure> {
        match fs::symlink_metadata(&self.at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failed(&error)),
            Ok(status) if status.is_dir() && status.uid() == own_ids().0 => {}
            Ok(_) => {
                return Err(Failure::new(format!(
                    "{} is no directory of this user; it is left alone",
                    self.at.display()
                )));
            }
        }
        let made = fs::read_to_string(self.at.join(START));
        match (made, self.start) {
            (Ok(made), Some(start)) => Ok(made == start.to_string()),
            (Ok(_), None) => Ok(true),
            // A start that was killed before it wrote its number has made nothing else.
            (Err(_), _) if is_empty(&self.at) => Ok(false),
            (Err(_), _) => Err(Failure::new(format!(
                "{} was not made by \"weft burst\"; it is left alone",
                self.at.display()
            ))),
        }
    }

    fn record(&self) -> Result<Option<Record>, Failure> {
        match fs::read(self.at.join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| Failure::new(format!("{}: {error}", self.at.join(RECORD).display()))),
        }
    }
}

fn own_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A server that does not get its address waits for the one before it, and says so in a log that nobody sees.
fn refuse_used(nid: &str) -> Result<(), Failure> {
    let nid: Nid = nid.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let at = rpc::dialled(&nid).map_err(|error| Failure::usage(error.to_string()))?;
    match std::net::TcpListener::bind(&at.0) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(format!(
            "{} cannot be listened at: {}; name another port with --port, or the machine's address in the list",
            at.0,
            describe(&error)
        ))),
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// Ends a process whose data is thrown away, and waits for that.
fn kill(pid: u32, process: OwnedFd) -> Result<(), Failure> {
    match pidfd_send_signal(&process, Signal::KILL) {
        Ok(()) => down::wait(Some(process), pid),
        Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => {
            Err(Failure::new(format!("process {pid} cannot be ended: {}", describe(&error.into()))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn order(data: &Path, step: Step) -> Order {
        Order { fsname: "b".into(), data: data.to_owned(), start: None, number: 1, wait_s: 60, step }
    }

    #[test]
    fn only_its_own_directory_is_removed() {
        let data = tempfile::tempdir().expect("a directory");
        let (at, other) = (data.path().join("weft-burst-b"), data.path().join("other"));
        fs::create_dir(&other).expect("a directory");
        fs::write(other.join("file"), "x").expect("a file");
        // Nothing there is nothing to do, as often as it is asked.
        assert_eq!(carry_out(&order(data.path(), Step::Remove)), Ok(()));
        std::os::unix::fs::symlink(&other, &at).expect("a link");
        let refused = carry_out(&order(data.path(), Step::Remove)).expect_err("it is a link");
        assert!(refused.message.contains("left alone"), "{}", refused.message);
        assert!(other.join("file").exists());
        fs::remove_file(&at).expect("the link");
        // What lies there was made by somebody else.
        fs::create_dir(&at).expect("a directory");
        fs::write(at.join("file"), "x").expect("a file");
        let refused = carry_out(&order(data.path(), Step::Remove)).expect_err("it is foreign");
        assert!(refused.message.contains("left alone") && at.join("file").exists(), "{}", refused.message);
        fs::remove_file(at.join("file")).expect("the file");
        assert_eq!(carry_out(&order(data.path(), Step::Unmount)), Ok(()));
        assert_eq!(carry_out(&order(data.path(), Step::Remove)), Ok(()));
        assert!(!at.exists(), "it was empty");
        fs::create_dir(&at).expect("a directory");
        // A start that fails takes away only what it has made itself.
        fs::write(at.join(START), "7").expect("a file");
        let of_start = |start| Order { start: Some(start), ..order(data.path(), Step::Remove) };
        assert_eq!(carry_out(&of_start(8)), Ok(()));
        assert!(at.exists());
        assert_eq!(carry_out(&of_start(7)), Ok(()));
        assert!(!at.exists() && other.exists());
        assert_eq!(fs::read_dir(data.path()).expect("it is there").count(), 1, "no lock is left");
        // However it is written.
        fs::create_dir(&at).expect("a directory");
        fs::write(at.join(START), "7").expect("a file");
        assert_eq!(carry_out(&order(&other.join(".."), Step::Remove)), Ok(()));
        assert!(!at.exists());
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        let refused = carry_out(&order(data.path(), Step::Remove)).expect_err("anybody may exchange it");
        assert!(refused.message.contains("others can exchange"), "{}", refused.message);
    }

    #[test]
    fn orders_that_lead_elsewhere_are_refused() {
        for fsname in ["../b", "", "toolongname"] {
            let bad = Order { fsname: fsname.into(), ..order(Path::new("/d"), Step::Remove) };
            assert!(carry_out(&bad).is_err(), "{fsname}");
        }
        assert!(carry_out(&order(Path::new("d"), Step::Remove)).is_err());
    }
}
