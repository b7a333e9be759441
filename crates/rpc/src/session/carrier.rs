//! What brings the frames of a session to its target.
//!
//! Another one is another variant, and nothing in the machine.

use std::sync::Arc;

use proto::session::Message;
use proto::session::machine::Outgoing;
use proto::wire::Header;
use rt::Time;

use super::Link;
use super::driver::Driver;
use super::lo::Lo;

/// Something that brings requests to a target.
#[derive(Clone)]
pub(crate) enum Carrier {
    /// The target is in this process.
    Lo(Arc<Lo>),
    /// A connection.
    Tcp(Arc<Link>),
}

impl Carrier {
    /// Sends a request; its answer is an event of `driver`. It may wait for others if it may travel `together` with them.
    pub(crate) fn send(&self, driver: &Driver, header: Header, message: &Arc<Message>, together: bool) {
        match self {
            Carrier::Lo(lo) => lo.carry(header, message),
            Carrier::Tcp(link) if together => {
                driver.hub.carried().gathering.send(link, driver.outward(header), message)
            }
            Carrier::Tcp(link) => link.send(driver.outward(header), message),
        }
    }

    /// Sends requests, in few frames if they may travel `together`.
    pub(crate) fn send_all(&self, driver: &Driver, outgoing: Vec<Outgoing>, together: bool) {
        match self {
            Carrier::Tcp(link) if together => link.send_all(outgoing),
            _ => outgoing
                .iter()
                .for_each(|(header, message)| self.send(driver, header.clone(), message, false)),
        }
    }

    /// Sends a request again, or asks whether it has arrived.
    pub(crate) fn send_again(&self, driver: &Driver, header: Header, message: &Arc<Message>) {
        match self {
            Carrier::Lo(_) => self.send(driver, header, message, false),
            Carrier::Tcp(link) => link.ask_or_send(driver.outward(header), message),
        }
    }

    /// Whether nothing gets lost on the way: then nothing has to be sent again.
    pub(crate) fn is_lossless(&self) -> bool {
        matches!(self, Carrier::Lo(_))
    }

    /// When the other side was heard last, if there is one.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        match self {
            Carrier::Lo(_) => None,
            Carrier::Tcp(link) => Some(link.heard_at()),
        }
    }

    /// Why it cannot be used any more, in a sentence.
    pub(crate) fn broken(&self) -> Option<String> {
        match self {
            Carrier::Tcp(link) if link.ended().is_ended() => {
                Some(format!("{}: the connection broke", link.addr()))
            }
            Carrier::Lo(_) | Carrier::Tcp(_) => None,
        }
    }

    /// Waits until it cannot be used any more.
    pub(crate) async fn ended(&self) {
        match self {
            Carrier::Lo(_) => std::future::pending().await,
            Carrier::Tcp(link) => link.ended().wait().await,
        }
    }

    /// The other side says nothing any more.
    pub(crate) fn give_up(&self) {
        if let Carrier::Tcp(link) = self {
            link.end("the other side says nothing any more");
        }
    }

    /// Session `session` goes on elsewhere, or not at all.
    pub(crate) fn leave(&self, driver: &Driver, session: u64) {
        match self {
            Carrier::Lo(_) => driver.hub.sessions().lost_here((driver.target, session)),
            Carrier::Tcp(link) => link.leave(driver.target, session),
        }
    }
}
