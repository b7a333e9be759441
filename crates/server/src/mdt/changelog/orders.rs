//! Who reads the changelog: registrations, and how far each reader is.

use proto::wire::messages as msg;
use proto::wire::messages::{
    CHANGELOG_BYTES_MAX, CHANGELOG_CLEAR, CHANGELOG_DEREGISTER, CHANGELOG_LIST, CHANGELOG_REGISTER,
};
use proto::{Code, Transno};
use rpc::{Peer, Role};
use service::code_of;
use store::{Batch, Change, Need};

use super::{Changelog, State, USERS_MAX, User};

impl Changelog {
    /// Records behind one.
    pub fn read(&self, read: &msg::ReadChangelog) -> Result<msg::ChangelogPage, Code> {
        let records = self.page(read.behind, read.bytes_max.min(CHANGELOG_BYTES_MAX))?;
        Ok(msg::ChangelogPage { records })
    }

    /// Gives an order about who reads.
    pub async fn order(&self, peer: &Peer, order: &msg::OrderChangelog) -> Result<msg::ChangelogState, Code> {
        if order.order == CHANGELOG_LIST {
            return Ok(self.shown());
        }
        if peer.role != Role::Server && order.order != CHANGELOG_CLEAR {
            return Err(Code::Forbidden);
        }
        // While clients replay, the target draws no transno of its own.
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        let need = if order.order == CHANGELOG_REGISTER { Need::Growth } else { Need::Release };
        self.store.room(need).await.map_err(|error| code_of(&error))?;
        self.store.look_up_time().await;
        let transno = match order.order {
            CHANGELOG_REGISTER => self.register(order.number),
            CHANGELOG_DEREGISTER => self.deregister(order.user),
            CHANGELOG_CLEAR => self.clear(order.user, order.number),
            _ => Err(Code::NotSupported),
        }?;
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        self.cleared.notify_one();
        Ok(self.shown())
    }

    fn register(&self, number: u64) -> Result<Transno, Code> {
        let mut state = self.state.lock();
        if state.users.values().any(|user| user.number == number) {
            return Ok(self.store.last_transno());
        }
        if state.users.len() >= USERS_MAX {
            return Err(Code::TooBig);
        }
        let id = state.kept.next_user;
        let before = state.kept;
        state.kept.next_user = id.checked_add(1).ok_or(Code::TooBig)?;
        let user = User { index: state.kept.last, number, seen: self.rt.now() };
        let transno = self.commit_state(&state, State::change_of(id, Some(&user)));
        if transno.is_err() {
            state.kept = before;
            return transno;
        }
        state.users.insert(id, user);
        self.update_wanted(&state);
        tracing::info!(user = format!("cl{id}"), "the changelog is read by one more");
        transno
    }

    fn deregister(&self, id: u32) -> Result<Transno, Code> {
        let mut state = self.state.lock();
        if !state.users.contains_key(&id) {
            return Err(Code::NotFound);
        }
        let transno = self.commit_state(&state, State::change_of(id, None))?;
        state.users.remove(&id);
        self.update_wanted(&state);
        tracing::info!(user = format!("cl{id}"), "the changelog is read by one less");
        Ok(transno)
    }

    fn clear(&self, id: u32, until: u64) -> Result<Transno, Code> {
        let mut state = self.state.lock();
        let last = state.kept.last;
        let until = if until == 0 { last } else { until };
        let user = state.users.get(&id).ok_or(Code::NotFound)?;
        if until > last {
            return Err(Code::Invalid);
        }
        let user = User { index: user.index.max(until), number: user.number, seen: self.rt.now() };
        let transno = self.commit_state(&state, State::change_of(id, Some(&user)))?;
        state.users.insert(id, user);
        Ok(transno)
    }

    /// Commits a change of one reader together with the state.
    pub(super) fn commit_state(&self, state: &State, change: Change) -> Result<Transno, Code> {
        let changes = vec![change, state.change()];
        self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))
    }

    fn shown(&self) -> msg::ChangelogState {
        let (state, now) = (self.state.lock(), self.rt.now());
        let users = state.users.iter().map(|(id, user)| msg::ChangelogUser {
            user: *id,
            index: user.index,
            number: user.number,
            idle_s: (now - user.seen).as_secs(),
        });
        msg::ChangelogState {
            last: state.kept.last,
            oldest: state.kept.oldest,
            mask: state.kept.mask,
            users: users.collect(),
        }
    }
}
