//! Whether a thread has run since it was answered.
//!
//! What the kernel makes of an answer it does in the thread that asked, and tells nobody. A thread that was answered is ready to run, and
//! stays so until it runs. So nothing has to be noted with the answer: a thread that waits again afterwards has run; one that is ready
//! is watched from the first look on.

use std::time::Duration;

use rt::Time;

use crate::proc;

/// How long a thread is waited for that needs nothing but a processor.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far a thread was: nanoseconds of a processor, and how often it was given one.
pub type Progress = (u64, u64);

/// A thread whose answer has reached the kernel.
#[derive(Debug)]
pub struct Answered {
    thread: u32,
    /// When it was looked at first, and how far it was then.
    seen: Option<(Time, Progress)>,
}

impl Answered {
    /// `thread` is the kernel's number, and not 0.
    pub fn new(thread: u32) -> Answered {
        Answered { thread, seen: None }
    }

    /// Its number.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether it has run. One that is gone has, and one that gets no processor for long is not waited for.
    pub fn has_run(&mut self, now: Time) -> bool {
        let look = ready(self.thread);
        self.saw(look, now)
    }

    /// `look`: how far it is, if it is ready to run.
    fn saw(&mut self, look: Option<Progress>, now: Time) -> bool {
        let Some(progress) = look else { return true };
        let (since, before) = *self.seen.get_or_insert((now, progress));
        before != progress || now - since > PATIENCE
    }
}

/// How far a thread is that is ready to run, or runs; `None` if it waits, or is gone, or the kernel does not count.
pub fn ready(thread: u32) -> Option<Progress> {
    let progress = proc::read(thread, "schedstat").ok()?;
    let stat = proc::bytes(thread, "stat").ok()?;
    // The name, in brackets, may have any bytes.
    let (_, fields) = stat.split_at(stat.iter().rposition(|byte| *byte == b')')? + 1);
    if fields.trim_ascii_start().first() != Some(&b'R') {
        return None;
    }
    let mut numbers = progress.split_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    // Threads are looked at.
    #![allow(clippy::disallowed_methods)]

    use super::*;

    #[test]
    fn who_is_ready_has_run_when_it_is_further() {
        let now = Time::default();
        let mut answered = Answered::new(5);
        assert!(!answered.saw(Some((10, 1)), now), "nothing is known yet");
        assert!(!answered.saw(Some((10, 1)), now + PATIENCE));
        assert!(answered.saw(Some((10, 2)), now), "it was given a processor");
        assert!(answered.saw(Some((11, 1)), now), "it had one all the time");
        assert!(answered.saw(None, now), "it waits for something else");
        assert!(answered.saw(Some((10, 1)), now + 2 * PATIENCE), "nobody waits for ever");
    }

    #[test]
    fn threads_are_seen() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(ready(own).is_some(), "it runs");
        let mut running = Answered::new(own);
        while !running.has_run(Time::default()) {}
        let (tell, told) = std::sync::mpsc::channel();
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
            let _ = waits.recv();
        });
        let waiting = told.recv().expect("its number");
        while ready(waiting).is_some() {
            std::thread::yield_now();
        }
        assert!(Answered::new(waiting).has_run(Time::default()), "it waits for something else");
        drop(go);
        thread.join().expect("it ends");
        assert!(Answered::new(waiting).has_run(Time::default()), "it is gone");
    }
}
