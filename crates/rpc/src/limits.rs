//! Every bound of this crate, with its name.

use std::time::Duration;

pub use proto::session::limits::{
    BACKOFF_MAX, BACKOFF_MIN, LOST_RANGES_MAX, REPLAY_RESEND_MAX, RESEND_MAX, RESEND_MIN, RESEND_WAITING,
    SILENCE_MAX,
};

/// Requests that one import has under way, changing ones and others, but for those that wait.
pub const REQUESTS_MAX: usize = 1024;
/// Requests that wait until others let them go on: so many of one import, and so many of one connection.
pub const WAITING_MAX: usize = 4096;
/// Changes of one import that were answered and are not durable.
pub const RETAINED_COUNT_MAX: usize = 8192;
/// Bytes of them.
pub const RETAINED_BYTES_MAX: usize = 256 << 20;
/// Calls of one [`crate::Import::batch`] under way; more wait until some of these have ended. As many as there are slots.
pub const TOGETHER_MAX: usize = proto::limits::SLOTS_MAX as usize;

/// Largest epoch of a client's session. Those of servers are larger.
pub const CLIENT_EPOCH_MAX: u64 = 1 << 62;
/// A client that lives comes back within this time when its target can be reached again.
pub const RETURN_TIME: Duration = Duration::from_secs(5);
/// Time to connect and to authenticate.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for the answer to a Connect at first; then the next address is tried. Each time that none came the next one has twice as much, up to
/// [`CONNECT_TIME_MAX`]: a client that loses two answers of the MGS one after the other renews its lease in time all the same, and a server that
/// is slow to answer, because thousands come back, is not asked more and more.
pub const CONNECT_TIME_MIN: Duration = Duration::from_secs(3);
/// Time for the answer to a Connect at most.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// With more bulk than this (bytes), the target is asked first whether it has the request.
pub const RESENT_UNASKED_MAX: usize = 4096;
/// A server that reads nothing more from a connection, because too much is under way, says so often that it lives.
pub const EARLY_REPLY_EVERY: Duration = Duration::from_secs(5);
/// Time to say goodbye to a target.
pub const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// Callbacks of one session under way; more wait for their turn.
pub const CALLBACKS_MAX: usize = 4096;
/// Requests that restate, of one session, under way.
pub const RESTATES_MAX: usize = 256;

/// Connections that one process takes.
pub const CONNECTIONS_MAX: usize = 262_144;
/// Connections whose peers have not said anything yet that proves a key; the oldest goes for the next.
pub const STRANGERS_MAX: usize = 1024;
/// The same from one address.
pub const STRANGERS_OF_ADDRESS_MAX: usize = 64;
/// Connections whose peers have said a first word with a key behind it, perhaps somebody else's, and not the last one.
pub const GREETED_MAX: usize = 4096;
/// The same from one address.
pub const GREETED_OF_ADDRESS_MAX: usize = 1024;
/// A line about strangers comes into the log so often at most, with the count of those that it stands for.
pub const STRANGERS_LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Pause after the listener failed, for example for want of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Requests of one connection that are carried out at the same time: so many of those that go on by themselves, and so
/// many of those that may have to wait for other clients. The same holds for the three bounds below.
pub const RUNNING_MAX: usize = 1024;
/// Bytes of bulk of them.
pub const RUNNING_BYTES_MAX: usize = 128 << 20;
/// Requests of one connection that wait for their turn; then its reading stops.
pub const PARKED_MAX: usize = 1024;
/// Bytes of bulk of them.
pub const PARKED_BYTES_MAX: usize = 64 << 20;
/// Requests beyond all others for what lets others go on: connecting, syncing, closing.
pub const RESERVED_MAX: usize = 256;
