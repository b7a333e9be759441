//! What a program asks of its own process and machine: to be told to end, where it can be reached, and to run another program.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::Node;
use crate::sync::Notify;
use crate::wait::unless;

/// Ends the process as a write to a pipe that nobody reads any more ends other tools: `lctl get_param | head`. Rust's runtime has such
/// writes fail instead.
#[allow(unsafe_code)]
pub fn end_by_closed_pipe() -> ! {
    // SAFETY: the default action of a signal is no function that could be called at the wrong time.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    // The signal is blocked: the status is what a shell makes of it.
    std::process::exit(128 + libc::SIGPIPE)
}

/// The signals that tell a process to end in order: SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    count: AtomicU64,
    now: Notify,
}

impl Signals {
    /// Takes the signals from now on, instead of ending the process at once. Call before any other thread is started:
    /// threads inherit it. Takes a thread until the process ends.
    #[allow(unsafe_code)]
    pub fn catch() -> io::Result<Signals> {
        let set = signal_set(&[libc::SIGTERM, libc::SIGINT]);
        // SAFETY: `set` is an initialised signal set, and no old set is asked for.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let told = Arc::new(Told::default());
        let teller = told.clone();
        std::thread::Builder::new().name("weft-signals".into()).spawn(move || {
            loop {
                let mut signal = 0;
                // SAFETY: both point to initialised values that live across the call. It fails only for signals that
                // do not exist.
                unsafe { libc::sigwait(&raw const set, &raw mut signal) };
                teller.count.fetch_add(1, Ordering::AcqRel);
                teller.now.notify_waiters();
            }
        })?;
        Ok(Signals { told })
    }

    /// Waits for the first of the signals; at once if it has come.
    pub async fn wait(&self) {
        // Listens before it looks, so that nothing is missed between.
        let mut now = std::pin::pin!(self.told.now.notified());
        now.as_mut().enable();
        if self.count() == 0 {
            now.await;
        }
    }

    /// How many have come.
    pub fn count(&self) -> u64 {
        self.told.count.load(Ordering::Acquire)
    }
}

#[allow(unsafe_code)]
pub(super) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a signal set is plain memory for which zeros are a value; sigemptyset and sigaddset only write into it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Waits until the thread of process `parent` that started this process has ended: even if the others of that process have not,
/// which may wait in the kernel for what this process is there to do. Takes no notice of signals that end programs. To be
/// called by the only thread.
#[allow(unsafe_code)]
pub fn until_parent_ends(parent: u32) -> io::Result<()> {
    use rustix::process::{getppid, set_parent_process_death_signal};
    let death = Signal::USR1;
    let told = signal_set(&[death.as_raw(), libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]);
    // SAFETY: `told` is an initialised signal set, and no old set is asked for.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const told, std::ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // Not one of the terminal's or the service's group, whose signals are for the parent. It has a group already if it leads it.
    let _ = rustix::process::setsid();
    set_parent_process_death_signal(Some(death))?;
    let is_there = || getppid().is_some_and(|pid| pid.as_raw_nonzero().get().cast_unsigned() == parent);
    if !is_there() || is_zombie(parent) {
        return Ok(());
    }
    loop {
        let mut signal = 0;
        // SAFETY: both point to initialised values that live across the call.
        unsafe { libc::sigwait(&raw const told, &raw mut signal) };
        if signal == death.as_raw() || !is_there() {
            return Ok(());
        }
    }
}

/// Whether the first thread of a process has ended.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| matches!(rest.split_whitespace().next(), None | Some("Z" | "X")))
}

/// Addresses of this machine's interfaces that are up, in the order of the interfaces.
#[allow(unsafe_code)]
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a place for one pointer; the list that it points to afterwards is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which is not freed before the loop ends.
    while let Some(entry) = unsafe { next.as_ref() } {
        if entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0 {
            // SAFETY: the address of an entry is null or as long as its family says.
            addresses.extend(unsafe { address(entry.ifa_addr) });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and no reference into it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
#[allow(unsafe_code)]
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the contract above, and every socket address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is this type. It need not be aligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is this type. It need not be aligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// A program to be run. What it prints comes out where this process's log does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its file, or its name in the PATH.
    pub file: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What is added to the environment.
    pub environment: Vec<(String, String)>,
}

/// Why a program has not done its work.
#[derive(Debug)]
pub enum RunError {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ended with another status than 0, or by a signal.
    Status(ExitStatus),
    /// It took too long and was killed, with all that it had started.
    TooLong,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotStarted(error) => write!(f, "cannot be started: {error}"),
            RunError::Status(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "ended with status {code}"),
                (None, Some(signal)) => write!(f, "was ended by signal {signal}"),
                (None, None) => write!(f, "ended in an unknown way"),
            },
            RunError::TooLong => write!(f, "took too long and was killed"),
        }
    }
}

/// A program that runs; killed with all that it has started when nobody waits for it any more.
struct Group {
    group: Pid,
    /// Taken when its number may be somebody else's from then on.
    child: Arc<Mutex<Option<Child>>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.child.lock().is_some() {
            // It may just have ended by itself.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Runs a program to its end, for at most `time_max`.
pub async fn run(node: &Node, program: &Program, time_max: Duration) -> Result<(), RunError> {
    let child = Command::new(&program.file)
        .args(&program.arguments)
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(RunError::NotStarted)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| RunError::NotStarted(io::Error::other("it has no process id")))?;
    let running = Group { group: pid, child: Arc::new(Mutex::new(Some(child))) };
    let child = running.child.clone();
    let ended = node.offload(move || {
        // Its number stays its own until it is asked for its status.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        child.lock().take().map(|mut child| child.wait())
    });
    let too_long = node.sleep_until(node.now() + time_max);
    match unless(too_long, ended).await {
        None => Err(RunError::TooLong),
        Some(Some(Ok(status))) if status.success() => Ok(()),
        Some(Some(Ok(status))) => Err(RunError::Status(status)),
        Some(Some(Err(error))) => Err(RunError::NotStarted(error)),
        Some(None) => Err(RunError::NotStarted(io::Error::other("its status is unknown"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback() {
        let addresses = addresses().expect("the interfaces");
        assert!(addresses.iter().any(IpAddr::is_loopback), "{addresses:?}");
    }

    fn shell(script: &str) -> Program {
        let environment = vec![("WORD".to_owned(), "seven".to_owned())];
        Program {
            file: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into(), "x".into()],
            environment,
        }
    }

    #[test]
    fn programs_run_to_their_end_or_not() {
        let node = Node::start(2).expect("a node");
        let run = |program: Program, time| node.block_on(run(&node, &program, Duration::from_millis(time)));
        run(shell("test $WORD = seven && test $0 = x"), 20_000).expect("it succeeds");
        let failed = run(shell("exit 3"), 20_000).expect_err("it fails");
        assert_eq!(failed.to_string(), "ended with status 3");
        let killed = run(shell("kill -9 $$"), 20_000).expect_err("it is killed");
        assert_eq!(killed.to_string(), "was ended by signal 9");
        let missing = Program { file: "/nowhere/at-all".into(), ..shell("") };
        assert!(matches!(run(missing, 20_000), Err(RunError::NotStarted(_))));
        // It has children of its own, which end with it.
        assert!(matches!(run(shell("sleep 600 & sleep 600"), 100), Err(RunError::TooLong)));
    }
}
