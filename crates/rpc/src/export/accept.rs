//! The servers' side of connections: accepts them, and finds out whose they are.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::Addr;
use rt::net::{Conn, Listener};

use super::connection::Connection;
use super::door::{Door, Seldom};
use crate::event::{Either, race};
use crate::hub::Hub;
use crate::limits;
use crate::tcp::handshake::{self, Opened};

/// How many connections a process has taken, and who waits to become one.
pub(crate) struct Acceptance {
    connections: AtomicUsize,
    strangers: Door,
    greeted: Door,
    log: DoorLog,
}

/// Lines that strangers can cause.
#[derive(Default)]
struct DoorLog {
    too_many: Seldom,
    crowd: Seldom,
    turned_away: Seldom,
    silent: Seldom,
}

impl Default for Acceptance {
    fn default() -> Acceptance {
        Acceptance {
            connections: AtomicUsize::new(0),
            strangers: Door::new(limits::STRANGERS_MAX, limits::STRANGERS_OF_ADDRESS_MAX),
            greeted: Door::new(limits::GREETED_MAX, limits::GREETED_OF_ADDRESS_MAX),
            log: DoorLog::default(),
        }
    }
}

/// One of a bounded number; gives its place back when dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize, max: usize) -> Option<Place<'a>> {
        let place = Place(count);
        (count.fetch_add(1, Ordering::SeqCst) < max).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Hub {
    /// Accepts connections of peers that hold a key; returns where it listens.
    pub async fn listen(&self, addr: &Addr) -> io::Result<Addr> {
        let listener = self.rt().net().listen(addr).await?;
        let addr = listener.addr();
        self.rt().spawn(accept_loop(self.clone(), listener));
        Ok(addr)
    }
}

/// Takes connections until the hub closes.
async fn accept_loop(hub: Hub, mut listener: Listener) {
    loop {
        match race(hub.ended().wait(), listener.accept()).await {
            Either::First(()) => return,
            Either::Second(Ok(conn)) => hub.rt().spawn_apart(serve(hub.clone(), conn)),
            Either::Second(Err(error)) => {
                tracing::warn!(%error, "cannot take connections");
                hub.rt().sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Lets a peer prove that it holds a key. Whoever says nothing gives its place to the next who comes.
async fn greet(hub: &Hub, conn: &mut Conn) -> Option<Opened> {
    let Acceptance { strangers, greeted, log, .. } = &hub.carried().acceptance;
    let (peer, now) = (conn.peer.clone(), || hub.rt().now());
    let handshake = async {
        let (place, crowded) = strangers.enter(&peer);
        if crowded && let Some(times) = log.crowd.due(now()) {
            tracing::warn!(%peer, times, "too many strangers at the door: the oldest had to go");
        }
        let heard = match race(place.sent_away.wait(), handshake::hear(hub, conn)).await {
            Either::First(()) => return None,
            Either::Second(heard) => heard,
        };
        drop(place);
        let acceptor = match heard {
            Ok(acceptor) => acceptor,
            Err(error) => return Some(Err(error)),
        };
        let (place, _) = greeted.enter(&peer);
        match race(place.sent_away.wait(), handshake::accept(conn, acceptor)).await {
            Either::First(()) => None,
            Either::Second(opened) => Some(opened),
        }
    };
    match race(hub.ended().wait(), hub.rt().timeout(limits::HANDSHAKE_TIME_MAX, handshake)).await {
        Either::First(()) | Either::Second(Some(None)) => None,
        Either::Second(Some(Some(Ok(opened)))) => Some(opened),
        Either::Second(Some(Some(Err(error)))) => {
            if let Some(times) = log.turned_away.due(now()) {
                tracing::warn!(%peer, %error, times, "a peer was turned away");
            }
            None
        }
        Either::Second(None) => {
            if let Some(times) = log.silent.due(now()) {
                tracing::warn!(%peer, times, "a peer did not say who it is");
            }
            None
        }
    }
}

async fn serve(hub: Hub, mut conn: Conn) {
    let acceptance = &hub.carried().acceptance;
    let Some(_connection) = Place::take(&acceptance.connections, limits::CONNECTIONS_MAX) else {
        if let Some(times) = acceptance.log.too_many.due(hub.rt().now()) {
            tracing::warn!(peer = %conn.peer, times, "too many connections");
        }
        return;
    };
    if let Some(opened) = greet(&hub, &mut conn).await {
        Connection::serve(&hub, conn, opened).await;
    }
}
