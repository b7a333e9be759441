//! The coordinator: actions of HSM that are asked for, and copytools that do them (`docs/hsm.md#actions`).
//!
//! What is asked for and not done is in the store, so that a restart loses none of it; which copytool does it is memory ([`table`]), for
//! doing it twice does no harm. What the copy of a file is worth is in its inode ([`super::ops::hsm`]).

mod show;
pub mod table;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::hsm::{ARCHIVE_MAX, Action, ActionState};
use proto::wire::Reader;
use proto::wire::messages as msg;
use proto::{Code, Fid};
use rt::Rt;
use rt::sync::{Notify, Semaphore};
use service::keys::behind;
use service::{Env, Recovery, Stop, code_of};
use store::{Batch, Change, Need, Store, StoreError};

use super::{Mdt, keys};
use table::{How, Item, Shown, Table, Taking};

/// Version of the format of an action.
const FORMAT: u8 = 1;
/// Most copytools that wait for work at the same time.
const WAITERS_MAX: usize = 256;
/// How often it is looked which copytools are silent.
const LOOK: Duration = Duration::from_secs(1);
/// The archive that has the copies of which nobody says another one.
const DEFAULT_ARCHIVE: u32 = 1;

/// Whether the coordinator does its work (`hsm_control`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    /// It does.
    Enabled,
    /// It takes requests, and gives nothing to copytools.
    Disabled,
    /// It takes no requests either.
    Stopped,
}

/// The coordinator of an MDT.
pub struct Hsm {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    state: Mutex<State>,
    /// There is more to do, or an end to what there was.
    changed: Notify,
    waiters: Semaphore,
    default_archive: AtomicU32,
    max_requests: AtomicU32,
}

struct State {
    control: Control,
    table: Table,
}

/// An action in the store: format, action, archive, file, when it was asked for.
fn encode(item: &Item) -> Bytes {
    let mut value = vec![FORMAT, item.action as u8];
    value.extend_from_slice(&item.archive.to_le_bytes());
    value.extend_from_slice(&item.fid.to_key());
    value.extend_from_slice(&item.asked_s.to_le_bytes());
    value.into()
}

fn decode(cookie: u64, value: Bytes) -> Option<Item> {
    let mut from = Reader::new(value);
    if from.take::<u8>().ok()? != FORMAT {
        return None;
    }
    let action = Action::of(from.take().ok()?)?;
    let archive = from.take().ok()?;
    let fid = Fid::from_key(&from.take_array::<16>().ok()?)?;
    Some(Item { cookie, fid, action, archive, asked_s: from.take().ok()? })
}

impl Hsm {
    /// The one in the store of `env`.
    pub fn open(env: &Env) -> Result<Hsm, StoreError> {
        // As Lustre's, so that no name is given twice.
        let first = u64::try_from(env.rt.wall().secs).unwrap_or_default() << 20;
        let mut table = Table::new(first);
        let prefix = [keys::HSM_ACTION];
        let mut from = prefix.to_vec();
        loop {
            let page = env.store.scan(&from, &behind(&prefix), 1024)?;
            let Some((last, _)) = page.last() else { break };
            from = behind(last);
            for (key, value) in page {
                let item = keys::hsm_action_of(&key).and_then(|cookie| decode(cookie, value.bytes));
                table.add(item.ok_or_else(|| StoreError::Corrupt { what: "an HSM action".into() })?);
            }
        }
        Ok(Hsm {
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            state: Mutex::new(State { control: Control::Enabled, table }),
            changed: Notify::new(),
            waiters: Semaphore::new(WAITERS_MAX),
            default_archive: AtomicU32::new(DEFAULT_ARCHIVE),
            max_requests: AtomicU32::new(msg::HSM_ACTIONS_MAX),
        })
    }

    /// The archive that is meant by `asked`, of a file that `has` a copy in one; 0 for none.
    pub fn archive(&self, asked: u32, has: u32) -> Result<u32, Code> {
        let default = || self.default_archive.load(Ordering::Relaxed);
        match [asked, has].into_iter().find(|archive| *archive != 0).unwrap_or_else(default) {
            archive if archive <= ARCHIVE_MAX => Ok(archive),
            _ => Err(Code::Invalid),
        }
    }

    /// How the action with a cookie stands, if it is one on that file.
    pub fn told(&self, fid: Fid, cookie: u64) -> Option<msg::HsmAsked> {
        let shown = self.state.lock().table.shown(cookie).filter(|shown| shown.item.fid == fid)?;
        Some(asked(&shown))
    }

    /// The first action on a file that has not ended.
    pub fn of_file(&self, fid: Fid) -> Option<Shown> {
        let state = self.state.lock();
        state.table.shown(*state.table.of_file(fid).first()?)
    }

    /// Asks for an action. Answers when it is durable.
    pub async fn ask(&self, fid: Fid, action: Action, archive: u32) -> Result<msg::HsmAsked, Code> {
        self.ready(Need::Growth).await?;
        let (cookie, transno) = {
            let mut state = self.state.lock();
            // Not TryAgain, which a session repeats by itself.
            if state.control == Control::Stopped {
                return Err(Code::Busy);
            }
            match state.table.like(fid, action) {
                Some(cookie) => (cookie, self.store.last_transno()),
                None => {
                    let cookie = state.table.next_cookie()?;
                    let item = Item { cookie, fid, action, archive, asked_s: self.rt.wall().secs };
                    let change = Change { key: keys::hsm_action(cookie), value: Some(encode(&item)) };
                    let transno = self.commit(vec![change])?;
                    state.table.add(item);
                    (cookie, transno)
                }
            }
        };
        self.changed.notify_waiters();
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        self.told(fid, cookie).ok_or(Code::TryAgain)
    }

    /// Ends whatever was asked for of a file.
    pub async fn cancel(&self, fid: Fid) -> Result<(), Code> {
        let cookies = self.state.lock().table.of_file(fid);
        self.end_all(&cookies, How::Canceled).await
    }

    /// A copytool has done what it was given. What it does for nobody any more is no matter.
    pub async fn ended(&self, end: &msg::EndHsm) -> Result<(), Code> {
        let how = Code::from_u32(end.code).map_or(How::Succeeded, How::Failed);
        if let How::Failed(code) = how {
            let shown = self.state.lock().table.shown(end.cookie);
            if let Some(Shown { item, state, agent, .. }) = shown {
                // One that was taken for gone has failed at what another one does by now.
                if state == ActionState::Started && agent != end.agent {
                    return Ok(());
                }
                tracing::warn!(fid = %item.fid, action = %item.action, %code, agent = end.agent, "a copytool has failed");
            }
        }
        self.end_all(&[end.cookie], how).await
    }

    /// Actions end: they leave the store, and then the table.
    async fn end_all(&self, cookies: &[u64], how: How) -> Result<(), Code> {
        self.ready(Need::Release).await?;
        {
            let mut state = self.state.lock();
            let is_known =
                |cookie: &&u64| state.table.shown(**cookie).is_some_and(|shown| !is_over(shown.state));
            let known: Vec<u64> = cookies.iter().filter(is_known).copied().collect();
            if known.is_empty() {
                return Ok(());
            }
            self.commit(
                known.iter().map(|cookie| Change { key: keys::hsm_action(*cookie), value: None }).collect(),
            )?;
            let now = self.rt.now();
            for cookie in known {
                state.table.end(cookie, how, now);
            }
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// While clients replay, the target draws no transno of its own.
    async fn ready(&self, need: Need) -> Result<(), Code> {
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        self.store.room(need).await.map_err(|error| code_of(&error))?;
        self.store.look_up_time().await;
        Ok(())
    }

    fn commit(&self, changes: Vec<Change>) -> Result<proto::Transno, Code> {
        self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))
    }

    /// Gives a copytool work, and waits for some if there is none.
    pub async fn take(&self, session: u64, take: &msg::TakeHsm) -> Result<msg::HsmWork, Code> {
        let is_archive = |archive: &u32| (1..=ARCHIVE_MAX).contains(archive);
        // It stands in lines that people read.
        let is_shown = |letter: char| !letter.is_control() && !letter.is_whitespace();
        if take.agent.is_empty()
            || !take.agent.chars().all(is_shown)
            || take.agent.len() > msg::HSM_AGENT_BYTES_MAX
            || take.working.len() > msg::HSM_ACTIONS_MAX as usize
            || !take.archives.iter().all(is_archive)
        {
            return Err(Code::Invalid);
        }
        self.stop.unless(self.recovery.until_over()).await.ok_or(Code::TryAgain)?;
        let until = self.rt.now() + Duration::from_millis(u64::from(take.wait_ms.min(msg::HSM_WAIT_MAX_MS)));
        let _place = self.waiters.try_acquire().map_err(|_| Code::Busy)?;
        let mut is_first = true;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if !std::mem::take(&mut is_first) && !self.state.lock().table.still_waits(&take.agent, session) {
                return Err(Code::Busy);
            }
            let work = self.take_now(session, take)?;
            let left = until - self.rt.now();
            if !work.actions.is_empty() || !work.canceled.is_empty() || left.is_zero() {
                return Ok(work);
            }
            self.stop.unless(self.rt.timeout(left, changed)).await;
        }
    }

    /// A session has ended.
    pub fn session_ended(&self, session: u64) {
        self.state.lock().table.end_session(session);
        self.changed.notify_waiters();
    }

    fn take_now(&self, session: u64, take: &msg::TakeHsm) -> Result<msg::HsmWork, Code> {
        let mut state = self.state.lock();
        let most = take.max.min(self.max_requests.load(Ordering::Relaxed)).min(msg::HSM_ACTIONS_MAX);
        let working: Vec<(u64, u64)> = take.working.iter().map(|one| (one.cookie, one.done)).collect();
        let taking = Taking {
            agent: &take.agent,
            session,
            archives: &take.archives,
            working: &working,
            max: if state.control == Control::Enabled { most as usize } else { 0 },
        };
        let (items, canceled) = state.table.take(&taking, self.rt.now())?;
        let item = |item: Item| {
            let Item { cookie, fid, action, archive, .. } = item;
            msg::HsmItem { cookie, fid, action: action as u8, archive }
        };
        Ok(msg::HsmWork { actions: items.into_iter().map(item).collect(), canceled })
    }
}

fn is_over(state: ActionState) -> bool {
    !matches!(state, ActionState::Waiting | ActionState::Started)
}

/// How an action stands, as it travels.
fn asked(shown: &Shown) -> msg::HsmAsked {
    msg::HsmAsked {
        cookie: shown.item.cookie,
        state: shown.state as u8,
        code: shown.code.map_or(0, Code::to_u32),
    }
}

/// Gives what silent copytools had to others, until the target stops.
pub(super) async fn run(mdt: Arc<Mdt>) {
    while mdt.stop.unless(mdt.rt.sleep(LOOK)).await.is_some() {
        let silent = mdt.hsm.state.lock().table.pass_time(mdt.rt.now());
        for agent in &silent {
            tracing::warn!(agent, "a copytool is silent: others do what it had");
        }
        if !silent.is_empty() {
            mdt.hsm.changed.notify_waiters();
        }
    }
}
