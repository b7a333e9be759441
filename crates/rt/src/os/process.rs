//! What a program asks of its own process and machine: to be told to end, and where it can be reached.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Notify;

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
fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
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
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback() {
        let addresses = addresses().expect("the interfaces");
        assert!(addresses.iter().any(IpAddr::is_loopback), "{addresses:?}");
    }
}
