//! Questions and orders to the process behind a mount.
//!
//! They go through its control socket, which that process answers alone. Whoever does not find it (another user, or somebody
//! with other directories) asks through the mount: in a process of its own, because one that asks a mount whose process does not
//! answer waits in the kernel where no signal reaches it. It is left behind then.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fuse::control::{self, Configuration, Target};
use fuse::session::MountEntry;
use fuse::socket::{self, Question};
use serde::de::DeserializeOwned;

use crate::servers;

/// How long a mount may take to answer a question. It gives each of its servers 3 s.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// After how long it is told that an order takes its time.
const TELL_WAIT: Duration = Duration::from_secs(5);
/// The hidden sub-command of the process that asks through a mount.
pub const COMMAND: &str = "ask-mount";
/// What it is to do.
pub const GET: &str = "get";
/// The same.
pub const SET: &str = "set";
/// The same.
pub const RESOLVE: &str = "resolve";

/// How long an answer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// So long.
    Question(Duration),
    /// As long as it takes: what was ordered is under way, and the user is told so.
    Order,
}

/// Asks for a document.
pub fn get<T: DeserializeOwned>(mount: &MountEntry, attribute: &str) -> io::Result<T> {
    get_within(mount, attribute, ANSWER_WAIT)
}

/// The same, for `wait` at most.
pub fn get_within<T: DeserializeOwned>(mount: &MountEntry, attribute: &str, wait: Duration) -> io::Result<T> {
    let bytes = ask(mount, Question::Get(attribute), Patience::Question(wait))?;
    serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks for text.
pub fn text(mount: &MountEntry, attribute: &str) -> io::Result<String> {
    let bytes = ask(mount, Question::Get(attribute), Patience::Question(ANSWER_WAIT))?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks for bytes.
pub fn bytes(mount: &MountEntry, attribute: &str) -> io::Result<Vec<u8>> {
    ask(mount, Question::Get(attribute), Patience::Question(ANSWER_WAIT))
}

/// Sets what the process sets at once.
pub fn set(mount: &MountEntry, attribute: &str, value: &[u8]) -> io::Result<()> {
    ask(mount, Question::Set(attribute, value), Patience::Question(ANSWER_WAIT)).map(|_| ())
}

/// Orders something that takes as long as it takes.
pub fn order(mount: &MountEntry, attribute: &str) -> io::Result<()> {
    ask(mount, Question::Set(attribute, b""), Patience::Order).map(|_| ())
}

/// How a mount is asked, for who has to know it: by one way more comes in an answer than by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// At its socket.
    Socket,
    /// Through the kernel.
    Attribute,
}

/// Asks for bytes by one way, for as long as it takes.
pub fn bytes_by(mount: &MountEntry, way: Way, attribute: &str) -> io::Result<Vec<u8>> {
    ask_by(mount, way, Question::Get(attribute))
}

/// Sets something by one way.
pub fn set_by(mount: &MountEntry, way: Way, attribute: &str, value: &[u8]) -> io::Result<()> {
    ask_by(mount, way, Question::Set(attribute, value)).map(|_| ())
}

/// Whether nobody listens for this user at the mount's socket.
pub fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotConnected
}

/// All targets that the mount knows of, however many.
pub fn configuration(mount: &MountEntry) -> io::Result<Configuration> {
    all_targets(|attribute| get(mount, attribute))
}

/// The same, page by page.
pub(crate) fn all_targets(page: impl Fn(&str) -> io::Result<Configuration>) -> io::Result<Configuration> {
    let mut all = page(control::CONFIG)?;
    while let (true, Some(last)) = (all.more, all.targets.last().map(Target::id)) {
        let next = page(&format!("{}.{last}", control::CONFIG))?;
        // Each is behind the one before, so there is an end.
        all.more = next.more && next.targets.first().is_some_and(|first| first.id() > last);
        all.targets.extend(next.targets);
    }
    Ok(all)
}

/// The absolute path of `path` without symbolic links. The parts of it may lie in mounts.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let bytes = in_child(path, RESOLVE, OsStr::new(""), b"", Patience::Question(ANSWER_WAIT))?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn ask(mount: &MountEntry, question: Question<'_>, patience: Patience) -> io::Result<Vec<u8>> {
    match at_socket(mount, question, patience) {
        Some(answer) => answer,
        None => at_attribute(mount, question, patience),
    }
}

fn ask_by(mount: &MountEntry, way: Way, question: Question<'_>) -> io::Result<Vec<u8>> {
    match way {
        Way::Socket => at_socket(mount, question, Patience::Order)
            .unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into())),
        Way::Attribute => at_attribute(mount, question, Patience::Order),
    }
}

/// The answer through the kernel.
fn at_attribute(mount: &MountEntry, question: Question<'_>, patience: Patience) -> io::Result<Vec<u8>> {
    let (kind, name, value) = match question {
        Question::Get(name) => (GET, name, &[][..]),
        Question::Set(name, value) => (SET, name, value),
    };
    in_child(&mount.path, kind, OsStr::new(name), value, patience)
}

/// The answer of the process itself; `None` if nobody listens for this user.
fn at_socket(mount: &MountEntry, question: Question<'_>, patience: Patience) -> Option<io::Result<Vec<u8>>> {
    let path = socket::path(&servers::directory().ok()?, mount.device);
    let wait_max = match patience {
        Patience::Question(wait) => wait,
        Patience::Order => ANSWER_WAIT,
    };
    let mut asked = match socket::ask(&path, question, wait_max) {
        Ok(asked) => asked,
        // Its queue is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(Err(silent(wait_max))),
        Err(_) => return None,
    };
    let answer = wait(mount, patience, |wait| asked.answer(wait));
    match answer {
        // The process has gone, or is asked by too many.
        Err(error) if is_cut(&error) => None,
        answer => Some(answer),
    }
}

fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Waits with `look`, which gives `None` for an answer that is not there after the time that it is given.
fn wait(
    mount: &MountEntry,
    patience: Patience,
    mut look: impl FnMut(Duration) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<Vec<u8>> {
    if let Patience::Question(wait) = patience {
        return look(wait)?.ok_or_else(|| silent(wait));
    }
    if let Some(answer) = look(TELL_WAIT)? {
        return Ok(answer);
    }
    err!("{}: not done yet; waiting", mount.path.display());
    loop {
        if let Some(answer) = look(TELL_WAIT)? {
            return Ok(answer);
        }
    }
}

/// What [`is_silent`] knows.
fn silent(wait: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", wait.as_secs()))
}

/// Whether there was no answer in time.
pub fn is_silent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// Has a process of its own do it with `path`, and leaves it behind if it does not come back.
fn in_child(path: &Path, kind: &str, name: &OsStr, value: &[u8], patience: Patience) -> io::Result<Vec<u8>> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("weft")
        .args([OsStr::new(COMMAND), OsStr::new(kind), path.as_os_str(), name])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Whoever reads what this process says must not wait for that one.
        .stderr(Stdio::null())
        .spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (sender, receiver) = mpsc::sync_channel(1);
    let value = value.to_vec();
    std::thread::Builder::new().spawn(move || {
        let mut said = Vec::new();
        let talked = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(&value));
        let read = stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut said));
        // Nobody may wait any more.
        let _ = sender.send(talked.and(read).map(|_| said));
    })?;
    let look = |wait| match receiver.recv_timeout(wait) {
        Ok(said) => said.map(Some),
        Err(_) => Ok(None),
    };
    let entry = MountEntry { path: path.to_owned(), ..MountEntry::default() };
    let said = match wait(&entry, patience, look) {
        Ok(said) => said,
        Err(error) => {
            // It may be beyond the reach of signals: its end is waited for elsewhere, by a process that goes on asking.
            let _ = child.kill();
            let _ = std::thread::Builder::new().spawn(move || child.wait());
            return Err(error);
        }
    };
    child.wait()?;
    match said.split_first_chunk() {
        Some((error, value)) => match i32::from_le_bytes(*error) {
            0 => Ok(value.to_vec()),
            error => Err(io::Error::from_raw_os_error(error)),
        },
        None => Err(io::Error::other("the process that was to ask has ended")),
    }
}

/// What the process in between does: its answer, an error number and the value.
pub fn for_another(kind: &str, path: &Path, name: &OsStr) -> Vec<u8> {
    let done = match kind {
        GET => crate::control::get_bytes(path, name),
        SET => {
            let mut value = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut value);
            read.and_then(|_| crate::control::set(path, name.as_bytes(), &value)).map(|()| Vec::new())
        }
        _ => path.canonicalize().map(|path| path.into_os_string().into_vec()),
    };
    match done {
        Ok(value) => [&0i32.to_le_bytes()[..], &value].concat(),
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes().to_vec(),
    }
}
