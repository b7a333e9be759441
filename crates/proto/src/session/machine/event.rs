//! What a session's machine is told, and what it says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::code::Code;
use crate::ids::{Transno, Xid};
use crate::nid::Nid;
use crate::session::client::Outcome;
use crate::session::message::Message;
use crate::wire::header::Room;
use crate::wire::messages::{Connect, Connected};
use crate::wire::{Header, Reply};

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The target refused; nothing was changed.
    #[error("refused: {0}")]
    Refused(Code),
    /// The session is over: the process is stopping, or the target threw the client out.
    #[error("the session with the target is over")]
    Closed,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Answered<R> {
    /// What the target answered.
    pub reply: R,
    /// The reply's bulk.
    pub bulk: Vec<Bytes>,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// The session in which the target answered: what it granted holds in this one only.
    pub session: u64,
}

/// A reply as it came in.
#[derive(Debug)]
pub struct Incoming {
    /// Number of the request.
    pub xid: Xid,
    /// Epoch of the session, as the target knows it.
    pub session_epoch: u64,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// Every change up to here is durable.
    pub last_committed: Transno,
    /// How much the client may write before it sends it.
    pub room: Room,
    /// What was answered.
    pub result: Result<Reply, Code>,
    /// The reply's bulk.
    pub bulk: Vec<Bytes>,
}

/// A request that is about to be sent.
pub type Outgoing = (Header, Arc<Message>);

/// What happened.
#[derive(Debug)]
pub enum Event<W> {
    /// Somebody wants a request sent, and waits for the answer; with an era, in that one only. The answer is one of
    /// [`Output::Send`], [`Output::NotOpen`] and [`Output::Full`].
    Call {
        /// The request.
        message: Arc<Message>,
        /// Who waits.
        waiter: W,
        /// See [`super::Known::era`].
        era: Option<u64>,
    },
    /// Who waited for an answer, also to something that was stated again, has gone.
    Gone(Xid),
    /// Somebody needs the session.
    Need,
    /// Changes up to here are to be made durable; with 0, all that were answered so far.
    Commit(Transno),
    /// What is kept for a replay is to be made durable soon, if there is any.
    CommitKept,
    /// Replies came, in one frame.
    Replies(Vec<Incoming>),
    /// The target says that a request is under way.
    UnderWay {
        /// Its number.
        xid: Xid,
        /// Epoch of the session, as the target knows it.
        session_epoch: u64,
    },
    /// The target has not got a request, or answered it and the answer was lost: it wants it again.
    Wanted {
        /// Its number.
        xid: Xid,
        /// Epoch of the session, as the target knows it.
        session_epoch: u64,
    },
    /// It is time to look at requests without an answer.
    Due {
        /// When the other side was heard last; `None` without a connection.
        heard: Option<Duration>,
    },
    /// Where the target may be reached from now on, best first.
    Addresses(Vec<Nid>),
    /// The target is not to be asked from now on, and callers are told why; `None`: it is, again.
    Barred(Option<Code>),
    /// The target has an owner of this epoch: a session with one of before is over, even if that one still says something.
    Owner(u64),
    /// What carried the open session's requests does so no more: the connection broke, the target is not served in this
    /// process any more.
    Broken,
    /// The session is to be opened anew, to see whether the target still knows the client.
    Look,
    /// The session is over, as somebody else than the target has said.
    Forget,
    /// The session is not needed as far as its user knows. If nothing is under way or kept it rests from now on: see
    /// [`super::Machine::phase`].
    Unneeded,
    /// It is needed after all.
    Needed {
        /// The connection has broken meanwhile, and nobody was told.
        broken: bool,
    },
    /// The target is to be told goodbye.
    Goodbye {
        /// The Disconnect.
        message: Arc<Message>,
        /// Who waits for the answer.
        waiter: W,
    },
    /// The goodbye was answered, or not in time.
    Rested {
        /// Its number, if it was sent.
        goodbye: Option<Xid>,
    },
    /// The session ends here.
    Close,
    /// After [`Step::Seek`]: whether this process serves the target.
    Sought {
        /// It does.
        here: bool,
    },
    /// After [`Step::Dial`]: there is a way to the target.
    Reached,
    /// The last step did not succeed, and with it this way to the target.
    Failed(Failure),
    /// After [`Step::Dial`]: the target is elsewhere, and the attempt is over.
    Elsewhere,
    /// After [`Step::Connect`]: the answer.
    Connected(Result<Connected, Code>),
    /// After [`Step::Restate`]: the client has stated again what it holds.
    Restated,
    /// After [`Step::Open`]: the session lives on what was reached.
    Opened {
        /// Which is in this process.
        here: bool,
    },
}

/// What is to be done, at once and in this order.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is large, the usual output, and soon moved to who waits"
)]
pub enum Output<W> {
    /// Send a request. If the carrier loses it, the machine sends it again.
    Send {
        /// Its header.
        header: Header,
        /// What it is.
        message: Arc<Message>,
        /// It may travel with others in one frame.
        together: bool,
    },
    /// Send requests that may travel in one frame if `together` says so.
    SendAll {
        /// The requests.
        outgoing: Vec<Outgoing>,
        /// They may travel in one frame.
        together: bool,
    },
    /// Send a request again, or ask first whether it has arrived if there is much to send.
    Again {
        /// Its header.
        header: Header,
        /// What it is.
        message: Arc<Message>,
    },
    /// The request cannot be sent now: the session is not open, or in another era.
    NotOpen,
    /// The request cannot be sent now: [`Output::Room`] comes.
    Full,
    /// Tell somebody the answer.
    Answer {
        /// Who waits.
        waiter: W,
        /// The answer.
        result: Result<Answered<Reply>, Code>,
    },
    /// These get no answer.
    Drop(Vec<W>),
    /// Whoever waits for the session, or for room in it, looks again.
    Room,
    /// The commit mark moved.
    Advanced,
    /// Start a task that asks for [`Step`]s.
    Connect,
    /// That task looks again.
    Stir,
    /// Whoever tries to reach the target begins anew, at once.
    Moved,
    /// The session of this number goes on over another carrier, or not at all.
    Leave(u64),
    /// Give the connection up: the other side says nothing any more.
    Silent,
    /// Start the task that asks for commits ([`super::Commits::next_sync`]).
    Sync,
    /// Say that no more replays come: send a Sync of everything that was answered.
    EndOfReplays,
    /// Start a task that looks at requests without an answer ([`super::Machine::watch_until`]).
    Watch,
    /// That task has to look at its time again.
    Earlier,
    /// Something that an operator may want to know.
    Note(Note),
}

/// What an operator may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The target has an owner of this epoch.
    OwnerChanged(u64),
    /// The target is not reached, for a reason that is new.
    Unreached(String),
    /// The session is being opened.
    Connected {
        /// What the target knew.
        outcome: Outcome,
        /// Changes that are replayed.
        replays: usize,
        /// Requests that are sent again.
        resends: usize,
    },
    /// Somebody else has the client's secret, and has taken its session over.
    TakenOver(String),
    /// The target does not know changes any more.
    Lost {
        /// Those in (first, second].
        range: Option<(Transno, Transno)>,
        /// Requests of which nobody knows whether they happened.
        unknown: usize,
    },
    /// A replay was refused: the change is lost.
    ReplayRefused(Transno, Code),
}

/// Why an attempt to open the session failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It is worth trying again.
    Again(String),
    /// Whoever waits has to know: trying again changes nothing by itself.
    Refused(Code, String),
}

/// What the task that opens a session does next.
#[derive(Debug)]
pub enum Step<W> {
    /// Carry these out, over what was reached.
    Do(Vec<Output<W>>),
    /// Tell the client that its connection is lost.
    TellLost,
    /// Tell the client that its session goes on.
    TellOpen,
    /// Tell the client that its session is another one.
    TellSessionLost,
    /// Wait for `least`, and for a random part of `spread`, which keeps clients apart that lost the same server; not any
    /// longer when [`Output::Moved`] comes.
    Pause {
        /// At least so long.
        least: Duration,
        /// And at random up to so much longer.
        spread: Duration,
    },
    /// See whether this process serves the target: [`Event::Sought`].
    Seek,
    /// Connect to this address: [`Event::Reached`], [`Event::Failed`] or [`Event::Elsewhere`].
    Dial(Nid),
    /// Ask for the session over what was reached; the carrier fills in features and proof: [`Event::Connected`] or
    /// [`Event::Failed`].
    Connect(Connect),
    /// Wait until then, or until [`Output::Stir`] comes; [`Event::Failed`] if what was reached breaks.
    Wait(Duration),
    /// Let the client state again what it holds: [`Event::Restated`] or [`Event::Failed`].
    Restate,
    /// What was reached is not used any more for the session of this number.
    Leave(u64),
    /// The session lives on what was reached: [`Event::Opened`] or, if that has broken, [`Event::Failed`].
    Open,
    /// The target does not want this client: tell these. The task ends.
    GiveUp {
        /// Why.
        code: Code,
        /// The same in a sentence.
        problem: String,
        /// Who waits.
        waiters: Vec<W>,
    },
    /// The task ends.
    Done,
}
