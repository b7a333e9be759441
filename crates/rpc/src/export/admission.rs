//! Which requests of a connection are carried out now, which wait, and when reading stops.
//!
//! One synchronous decision, from counts alone. A request may wait for other clients, and these for what comes behind
//! it on the same connection, so there are lanes with room of their own: for requests that let others go on
//! (connecting, syncing, closing), for those that never wait for anybody, for those that may have to, and for those
//! that wait by their nature. While the client is being called back, a full lane does not stop the reading: its
//! answer may be the next frame.

use proto::wire::Request;

use crate::limits;

/// What is under way for one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) plain: Lane,
    pub(super) contending: Lane,
    pub(super) reserved: usize,
    pub(super) waiting: usize,
}

/// Requests that run, or wait for their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) running: usize,
    pub(super) running_bytes: usize,
    pub(super) parked: usize,
    pub(super) parked_bytes: usize,
}

/// How a request counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// It goes on by itself; with its bytes of bulk.
    Plain(usize),
    /// It may have to wait until other clients were called back; with its bytes of bulk.
    Contending(usize),
    /// It lets others go on.
    Reserved,
    /// It may take as long as others like.
    Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Carry it out.
    Run,
    /// It waits for its turn; reading goes on.
    Park,
    /// Read nothing more before something is done.
    Stop,
    /// The client may ask again later.
    Refuse,
}

impl Class {
    pub(super) fn of(request: &Request, bulk_bytes: usize) -> Class {
        match request {
            request if request.is_reserved() => Class::Reserved,
            request if request.waits() => Class::Waiting,
            request if request.contends() => Class::Contending(bulk_bytes),
            _ => Class::Plain(bulk_bytes),
        }
    }
}

impl Lane {
    fn may_run(&self, bytes: usize) -> bool {
        // A lone request runs whatever its size.
        self.running < limits::RUNNING_MAX
            && (self.running == 0 || self.running_bytes + bytes <= limits::RUNNING_BYTES_MAX)
    }

    fn admit(&self, bytes: usize) -> Verdict {
        // What is parked comes first.
        if self.parked == 0 && self.may_run(bytes) {
            return Verdict::Run;
        }
        let space = self.parked < limits::PARKED_MAX && self.parked_bytes + bytes <= limits::PARKED_BYTES_MAX;
        if space { Verdict::Park } else { Verdict::Stop }
    }

    /// Whether the first parked request, with `bytes` of bulk, may run now.
    pub(super) fn may_unpark(&self, bytes: usize) -> bool {
        self.may_run(bytes)
    }

    pub(super) fn park(&mut self, bytes: usize) {
        self.parked += 1;
        self.parked_bytes += bytes;
    }

    pub(super) fn unpark(&mut self, bytes: usize) {
        self.parked -= 1;
        self.parked_bytes -= bytes;
    }

    fn enter(&mut self, bytes: usize) {
        self.running += 1;
        self.running_bytes += bytes;
    }

    fn leave(&mut self, bytes: usize) {
        self.running -= 1;
        self.running_bytes -= bytes;
    }
}

impl Load {
    /// Decides about one more request; `calling` says whether the client is being called back.
    pub(super) fn admit(&self, class: Class, calling: bool) -> Verdict {
        let verdict = match class {
            // It will be done, and then reading goes on.
            Class::Plain(bytes) => return self.plain.admit(bytes),
            Class::Contending(bytes) => self.contending.admit(bytes),
            Class::Reserved if self.reserved < limits::RESERVED_MAX => Verdict::Run,
            Class::Reserved => Verdict::Stop,
            Class::Waiting if self.waiting < limits::WAITING_MAX => Verdict::Run,
            Class::Waiting => Verdict::Refuse,
        };
        if calling && verdict == Verdict::Stop { Verdict::Refuse } else { verdict }
    }

    pub(super) fn enter(&mut self, class: Class) {
        match class {
            Class::Plain(bytes) => self.plain.enter(bytes),
            Class::Contending(bytes) => self.contending.enter(bytes),
            Class::Reserved => self.reserved += 1,
            Class::Waiting => self.waiting += 1,
        }
    }

    pub(super) fn leave(&mut self, class: Class) {
        match class {
            Class::Plain(bytes) => self.plain.leave(bytes),
            Class::Contending(bytes) => self.contending.leave(bytes),
            Class::Reserved => self.reserved -= 1,
            Class::Waiting => self.waiting -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Lane =
        Lane { running: limits::RUNNING_MAX, running_bytes: 0, parked: limits::PARKED_MAX, parked_bytes: 0 };

    #[test]
    fn requests_run_then_park_then_stop() {
        let mut load = Load::default();
        let one = Class::Plain(4096);
        assert_eq!(load.admit(one, false), Verdict::Run);
        load.plain.running = limits::RUNNING_MAX;
        assert_eq!(load.admit(one, false), Verdict::Park);
        load.plain.parked = limits::PARKED_MAX;
        assert_eq!(load.admit(one, false), Verdict::Stop);
        assert_eq!(load.admit(Class::Reserved, false), Verdict::Run, "a Sync passes a full connection");
        load.reserved = limits::RESERVED_MAX;
        assert_eq!(load.admit(Class::Reserved, false), Verdict::Stop);
    }

    #[test]
    fn who_waits_for_others_does_not_keep_out_who_does_not() {
        let load = Load { contending: FULL, ..Load::default() };
        assert_eq!(load.admit(Class::Contending(0), false), Verdict::Stop);
        assert_eq!(load.admit(Class::Contending(0), true), Verdict::Refuse, "an answer may be behind it");
        assert_eq!(load.admit(Class::Plain(0), false), Verdict::Run);
        let load = Load { plain: FULL, reserved: limits::RESERVED_MAX, ..Load::default() };
        assert_eq!(load.admit(Class::Plain(0), true), Verdict::Stop, "something will be done");
        assert_eq!(load.admit(Class::Reserved, true), Verdict::Refuse);
    }

    #[test]
    fn what_waits_takes_no_room_and_is_refused_in_the_end() {
        let load = Load { waiting: limits::WAITING_MAX - 1, ..Load::default() };
        assert_eq!(load.admit(Class::Waiting, false), Verdict::Run);
        let load = Load { waiting: limits::WAITING_MAX, ..Load::default() };
        assert_eq!(load.admit(Class::Waiting, false), Verdict::Refuse);
        assert_eq!(load.admit(Class::Contending(1), false), Verdict::Run);
        let load = Load { contending: FULL, ..Load::default() };
        assert_eq!(load.admit(Class::Waiting, false), Verdict::Run);
    }

    #[test]
    fn bytes_count() {
        let mut lane = Lane { running: 1, running_bytes: limits::RUNNING_BYTES_MAX, ..Lane::default() };
        assert_eq!(lane.admit(0), Verdict::Run);
        assert_eq!(lane.admit(1), Verdict::Park);
        assert!(!lane.may_unpark(1));
        lane.running = 0;
        assert!(lane.may_unpark(1), "a lone request runs whatever its size");
    }

    #[test]
    fn nobody_overtakes_what_is_parked() {
        let lane = Lane { running: 1, parked: 1, ..Lane::default() };
        assert_eq!(lane.admit(0), Verdict::Park);
    }
}
