//! Which requests of a connection are carried out now, which wait, and when reading stops.
//!
//! One synchronous decision, from counts alone. Requests that let others go on (connecting, syncing, closing) have
//! room of their own: a connection full of requests that wait must not keep out the one that they wait for. Requests
//! that wait for others by their nature have room of their own too, and never stop the reading.

use proto::wire::Request;

use crate::limits;

/// What is under way for one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) running: usize,
    pub(super) running_bytes: usize,
    pub(super) parked: usize,
    pub(super) parked_bytes: usize,
    pub(super) reserved: usize,
    pub(super) waiting: usize,
}

/// How a request counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// With its bytes of bulk.
    Ordinary(usize),
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
            Request::Connect(_) | Request::Disconnect(_) | Request::Sync(_) | Request::Close(_) => {
                Class::Reserved
            }
            Request::CancelRanges(_) | Request::CancelBits(_) | Request::FlockCancel(_) => Class::Reserved,
            request if request.waits() => Class::Waiting,
            _ => Class::Ordinary(bulk_bytes),
        }
    }
}

/// Decides about one more request.
pub(super) fn admit(load: &Load, class: Class) -> Verdict {
    let bytes = match class {
        Class::Ordinary(bytes) => bytes,
        Class::Reserved if load.reserved < limits::RESERVED_MAX => return Verdict::Run,
        Class::Reserved => return Verdict::Stop,
        // Whoever they wait for may be behind them on this connection: it must be read on.
        Class::Waiting if load.waiting < limits::WAITING_MAX => return Verdict::Run,
        Class::Waiting => return Verdict::Refuse,
    };
    // What is parked comes first. A lone request runs whatever its size.
    let free = load.running < limits::RUNNING_MAX
        && (load.running == 0 || load.running_bytes + bytes <= limits::RUNNING_BYTES_MAX);
    if load.parked == 0 && free {
        return Verdict::Run;
    }
    let space = load.parked < limits::PARKED_MAX && load.parked_bytes + bytes <= limits::PARKED_BYTES_MAX;
    if space { Verdict::Park } else { Verdict::Stop }
}

/// Whether the first parked request, with `bytes` of bulk, may run now.
pub(super) fn may_unpark(load: &Load, bytes: usize) -> bool {
    load.running < limits::RUNNING_MAX
        && (load.running == 0 || load.running_bytes + bytes <= limits::RUNNING_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_requests_run_then_park_then_stop() {
        let mut load = Load::default();
        let one = Class::Ordinary(4096);
        assert_eq!(admit(&load, one), Verdict::Run);
        load.running = limits::RUNNING_MAX;
        assert_eq!(admit(&load, one), Verdict::Park);
        load.parked = limits::PARKED_MAX;
        assert_eq!(admit(&load, one), Verdict::Stop);
        assert_eq!(admit(&load, Class::Reserved), Verdict::Run, "a Sync passes a full connection");
        load.reserved = limits::RESERVED_MAX;
        assert_eq!(admit(&load, Class::Reserved), Verdict::Stop);
    }

    #[test]
    fn what_waits_takes_no_room_and_is_refused_in_the_end() {
        let load = Load { waiting: limits::WAITING_MAX - 1, ..Load::default() };
        assert_eq!(admit(&load, Class::Waiting), Verdict::Run);
        let load = Load { waiting: limits::WAITING_MAX, ..Load::default() };
        assert_eq!(admit(&load, Class::Waiting), Verdict::Refuse);
        assert_eq!(admit(&load, Class::Ordinary(1)), Verdict::Run);
        let load = Load { running: limits::RUNNING_MAX, parked: limits::PARKED_MAX, ..Load::default() };
        assert_eq!(admit(&load, Class::Waiting), Verdict::Run);
    }

    #[test]
    fn bytes_count() {
        let mut load = Load { running: 1, running_bytes: limits::RUNNING_BYTES_MAX, ..Load::default() };
        assert_eq!(admit(&load, Class::Ordinary(0)), Verdict::Run);
        assert_eq!(admit(&load, Class::Ordinary(1)), Verdict::Park);
        assert!(!may_unpark(&load, 1));
        load.running = 0;
        assert!(may_unpark(&load, 1), "a lone request runs whatever its size");
    }

    #[test]
    fn nobody_overtakes_what_is_parked() {
        let load = Load { running: 1, parked: 1, ..Load::default() };
        assert_eq!(admit(&load, Class::Ordinary(0)), Verdict::Park);
    }
}
