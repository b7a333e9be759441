//! What a program asks of its own process and machine: to be told to end, and where it can be reached.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Notify;

/// The signals that tell a process to end in order: SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    already: AtomicBool,
    now: Notify,
}

impl Signals {
    /// Takes the signals from now on, instead of ending the process at once. Call before any other thread is started:
    /// threads inherit it. Takes a thread until the process ends.
    #[allow(unsafe_code)]
    pub fn catch() -> io::Result<Signals> {
        let set = signal_set();
        // SAFETY: `set` is an initialised signal set, and no old set is asked for.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let told = Arc::new(Told::default());
        let teller = told.clone();
        std::thread::Builder::new().name("weft-signals".into()).spawn(move || {
            let mut signal = 0;
            // SAFETY: both point to initialised values that live across the call. It fails only for signals that do
            // not exist.
            unsafe { libc::sigwait(&raw const set, &raw mut signal) };
            teller.already.store(true, Ordering::Release);
            teller.now.notify_waiters();
        })?;
        Ok(Signals { told })
    }

    /// Waits for the first of the signals; at once if it has come.
    pub async fn wait(&self) {
        // Listens before it looks, so that nothing is missed between.
        let mut now = std::pin::pin!(self.told.now.notified());
        now.as_mut().enable();
        if !self.told.already.load(Ordering::Acquire) {
            now.await;
        }
    }
}

#[allow(unsafe_code)]
fn signal_set() -> libc::sigset_t {
    // SAFETY: a signal set is plain memory for which zeros are a value; sigemptyset and sigaddset only write into it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        set
    }
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
