//! The control socket of a mount: what its process says of itself, and orders to it, without a path in the mount.
//!
//! A path leads through the kernel, which may have to ask for the attributes of the mount point first, and that waits for
//! servers. The socket is answered by the process alone, as its control attributes are ([`crate::control`]), for root and for
//! whom the mount belongs to. It has the number of the mount's device in its name, which /proc/self/mountinfo tells.
//!
//! One question for each connection, numbers in little endian:
//!
//! | question | bytes | answer | bytes |
//! |---|---|---|---|
//! | length of what follows | 4 | error number, 0 for none | 4 |
//! | 0 get, 1 set | 1 | length of what follows | 4 |
//! | length of the name | 2 | the value | |
//! | the name, and the value behind it | | | |

// The socket is a file.
#![allow(clippy::disallowed_methods)]

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use proto::Fid;
use rt::Rt;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::caller;
use crate::ops::Ops;
use crate::{threads, virtuals};
use client::posix::Errno;

/// Largest question, in bytes: an attribute's name and value.
const QUESTION_BYTES_MAX: usize = 128 << 10;
/// Largest answer, in bytes: 65,536 targets take some 10 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Questions that are answered at the same time. Who comes then is sent away.
const QUESTIONS_MAX: usize = 32;
/// How long who connects may take to say what is wanted, and to take the answer.
const SAY_WAIT: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody still waits for an answer.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the socket gave an error and no connection.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

const GET: u8 = 0;
const SET: u8 = 1;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question<'a> {
    /// The value of a control attribute.
    Get(&'a str),
    /// Sets one.
    Set(&'a str, &'a [u8]),
}

/// Where the socket of the mount with this device is, in the directory of such files.
pub fn path(directory: &Path, device: u32) -> PathBuf {
    directory.join(format!("mount-{device}.sock"))
}

/// A socket that is answered until this is dropped.
pub struct Served {
    path: PathBuf,
    listener: Arc<UnixListener>,
    /// Which file it is: another process may have taken the name.
    inode: (u64, u64),
}

impl Drop for Served {
    fn drop(&mut self) {
        let is_own = std::fs::metadata(&self.path).is_ok_and(|of| (of.dev(), of.ino()) == self.inode);
        if is_own {
            // What stays behind is known by nobody listening.
            let _ = std::fs::remove_file(&self.path);
        }
        // Whoever waits for a connection gets an error.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
    }
}

/// Answers questions at `path` for the mount of `ops`. What a dead process left there is taken away.
pub fn serve(rt: Rt, ops: Arc<Ops>, path: &Path) -> io::Result<Served> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Arc::new(UnixListener::bind(path)?);
    // Nobody else gets an answer in between: who connects is looked at.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let of = std::fs::metadata(path)?;
    let served = Served { path: path.to_owned(), listener: listener.clone(), inode: (of.dev(), of.ino()) };
    let busy = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => begin(&rt, &ops, &busy, stream),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                Err(error) => {
                    tracing::debug!(%error, "nobody could connect to the control socket");
                    threads::pause(ERROR_PAUSE);
                }
            }
        }
    };
    threads::start("weft-control", accept)?;
    Ok(served)
}

/// A question that is being answered.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn begin(rt: &Rt, ops: &Arc<Ops>, busy: &Arc<AtomicUsize>, stream: UnixStream) {
    let others = busy.fetch_add(1, Ordering::AcqRel);
    let counted = Busy(busy.clone());
    if others >= QUESTIONS_MAX {
        return;
    }
    let (rt, ops) = (rt.clone(), ops.clone());
    let answer = move || {
        let _counted = counted;
        if let Err(error) = converse(&rt, &ops, stream) {
            tracing::debug!(%error, "a question at the control socket was not answered");
        }
    };
    if let Err(error) = threads::start("weft-control-1", answer) {
        tracing::debug!(%error, "no thread for a question at the control socket");
    }
}

/// Takes one question and answers it.
fn converse(rt: &Rt, ops: &Arc<Ops>, mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SAY_WAIT))?;
    stream.set_write_timeout(Some(SAY_WAIT))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return write_answer(&mut stream, Err(libc::EACCES));
    }
    let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
    let caller = caller::of_process(peer.uid.as_raw(), peer.gid.as_raw(), pid);
    let bytes = read_frame(&mut stream, QUESTION_BYTES_MAX)?;
    let Some((kind, name, value)) = decode(&bytes) else {
        return write_answer(&mut stream, Err(libc::EINVAL));
    };
    if !virtuals::is_virtual(name) {
        return write_answer(&mut stream, Err(libc::EOPNOTSUPP));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let (ops, name, value) = (ops.clone(), name.to_vec(), bytes::Bytes::copy_from_slice(value));
    rt.spawn(async move {
        let answer = match kind {
            GET => ops.get_xattr(&caller, Fid::ROOT, &name).await,
            SET => {
                let set = ops.set_xattr(&caller, Fid::ROOT, &name, value, 0).await;
                set.map(|()| bytes::Bytes::new())
            }
            _ => Err(Errno::INVALID),
        };
        // Who asked may have gone.
        let _ = sender.send(answer);
    });
    let answer = loop {
        match receiver.recv_timeout(LOOK_PAUSE) {
            Ok(answer) => break answer,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) if is_gone(&stream) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    };
    match &answer {
        Ok(value) => write_answer(&mut stream, Ok(value)),
        Err(error) => write_answer(&mut stream, Err(error.0)),
    }
}

/// Whether the peer has closed the connection.
fn is_gone(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let looked = rustix::event::poll(&mut look, Some(&now));
    looked.is_ok_and(|ready| ready > 0) && look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Kind, name and value of a question.
fn decode(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (name, value) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    Some((*kind, name, value))
}

fn encode(question: Question<'_>) -> Option<Vec<u8>> {
    let (kind, name, value) = match question {
        Question::Get(name) => (GET, name, &[][..]),
        Question::Set(name, value) => (SET, name, value),
    };
    let name_len = u16::try_from(name.len()).ok()?;
    let body = [&[kind][..], &name_len.to_le_bytes(), name.as_bytes(), value].concat();
    if body.len() > QUESTION_BYTES_MAX {
        return None;
    }
    let len = u32::try_from(body.len()).ok()?;
    Some([&len.to_le_bytes()[..], &body].concat())
}

fn read_frame(stream: &mut UnixStream, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more bytes than are taken"));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn write_answer(stream: &mut UnixStream, answer: Result<&[u8], i32>) -> io::Result<()> {
    let (error, value) = match answer {
        Ok(value) if value.len() > ANSWER_BYTES_MAX => (libc::E2BIG, &[][..]),
        Ok(value) => (0, value),
        Err(error) => (error, &[][..]),
    };
    let len = u32::try_from(value.len()).map_err(io::Error::other)?;
    stream.write_all(&[error.to_le_bytes(), len.to_le_bytes()].concat())?;
    stream.write_all(value)
}

/// A question that was asked, and whose answer may take its time.
pub struct Asked {
    stream: UnixStream,
}

/// Connects to the socket at `path` and asks. `wait` is for that alone, and for nothing that the process does.
pub fn ask(path: &Path, question: Question<'_>, wait: Duration) -> io::Result<Asked> {
    let bytes = encode(question).ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?;
    let stream = connect(path, wait)?;
    let mut stream = UnixStream::from(stream);
    stream.write_all(&bytes)?;
    Ok(Asked { stream })
}

/// A process that does not take connections lets its queue fill up; then connecting waits like sending.
fn connect(path: &Path, wait: Duration) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(wait))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Asked {
    /// Waits for the answer: `None` if there is none within `wait`.
    pub fn answer(&mut self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        self.stream.set_read_timeout(Some(wait))?;
        let mut error = [0; 4];
        match self.stream.read_exact(&mut error) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(None);
            }
            read => read?,
        }
        let bytes = read_frame(&mut self.stream, ANSWER_BYTES_MAX)?;
        match i32::from_le_bytes(error) {
            0 => Ok(Some(bytes)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_understood() {
        let bytes = encode(Question::Set("weft.process.debug", b"info")).expect("it is short");
        assert_eq!(bytes[..4], 25u32.to_le_bytes());
        assert_eq!(decode(&bytes[4..]), Some((SET, &b"weft.process.debug"[..], &b"info"[..])));
        let bytes = encode(Question::Get("weft.status")).expect("it is short");
        assert_eq!(decode(&bytes[4..]), Some((GET, &b"weft.status"[..], &b""[..])));
        for end in 0..bytes.len() - 4 {
            assert_eq!(decode(&bytes[4..4 + end]), None, "cut after {end} bytes");
        }
        assert_eq!(encode(Question::Set("a", &vec![0; QUESTION_BYTES_MAX])), None);
        assert_eq!(encode(Question::Get(&"a".repeat(1 << 16))), None);
    }

    /// A process that was stopped takes connections, as the kernel does that for it, and says nothing.
    #[test]
    fn silence_has_an_end() {
        let directory = std::env::temp_dir().join(format!("weft-socket-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = path(&directory, 57);
        let listener = UnixListener::bind(&path).expect("a socket");
        let wait = Duration::from_millis(20);
        let mut asked = ask(&path, Question::Get("weft.status"), wait).expect("the kernel connects");
        assert_eq!(asked.answer(wait).expect("no error"), None);
        let (mut stream, _) = listener.accept().expect("a connection");
        read_frame(&mut stream, QUESTION_BYTES_MAX).expect("the question");
        write_answer(&mut stream, Ok(b"late")).expect("somebody takes it");
        assert_eq!(asked.answer(Duration::from_secs(60)).expect("no error"), Some(b"late".to_vec()));
        drop(listener);
        let refused = ask(&path, Question::Get("weft.status"), wait).err().and_then(|e| e.raw_os_error());
        assert_eq!(refused, Some(libc::ECONNREFUSED));
        std::fs::remove_dir_all(&directory).expect("it goes");
    }
}
