//! Which actions there are, and which copytool does which: a pure state machine (`docs/hsm.md#actions`).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use proto::hsm::{Action, ActionState};
use proto::{Code, Fid};
use rt::Time;
use smallvec::SmallVec;

/// Most actions that wait or go on.
const ACTIONS_MAX: usize = 100_000;
/// Most copytools.
const AGENTS_MAX: usize = 1024;
/// Most actions of which it is remembered how they ended.
const ENDED_MAX: usize = 10_000;
/// How long it is remembered (Lustre's `grace_delay`).
const GRACE: Duration = Duration::from_secs(60);
/// A copytool that was silent for this long is taken for gone: others do what it had.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// An action on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Names the action.
    pub cookie: u64,
    /// The file.
    pub fid: Fid,
    /// What is to be done.
    pub action: Action,
    /// The archive.
    pub archive: u32,
    /// When it was asked for, in seconds since 1970.
    pub asked_s: i64,
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Succeeded,
    Failed(Code),
    Canceled,
}

/// An action as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub item: Item,
    pub state: ActionState,
    /// Why it failed.
    pub code: Option<Code>,
    /// Bytes that are copied.
    pub done: u64,
    /// The copytool that does it.
    pub agent: String,
}

/// What a copytool says when it asks for work.
pub struct Taking<'a> {
    pub agent: &'a str,
    /// Its session: another run of it has another one.
    pub session: u64,
    /// Empty for all.
    pub archives: &'a [u32],
    /// Cookies of what it works on, and the bytes that are copied.
    pub working: &'a [(u64, u64)],
    pub max: usize,
}

#[derive(Debug)]
struct Entry {
    item: Item,
    stands: Stands,
}

#[derive(Debug)]
enum Stands {
    Waiting,
    Started { agent: String, done: u64 },
    Ended(How),
}

#[derive(Debug)]
struct Agent {
    session: u64,
    archives: Vec<u32>,
    seen: Time,
    /// What it does.
    has: BTreeSet<u64>,
}

/// Every action of an MDT.
#[derive(Debug, Default)]
pub struct Table {
    entries: BTreeMap<u64, Entry>,
    /// Those of a file that have not ended, in their order.
    of_file: HashMap<Fid, SmallVec<[u64; 2]>>,
    /// What waits: what brings data back comes first, for somebody waits for it.
    waiting: BTreeSet<(bool, u64)>,
    /// When which ended.
    ended: VecDeque<(Time, u64)>,
    agents: BTreeMap<String, Agent>,
    last_cookie: u64,
}

/// Where an action stands among those that wait.
fn place(item: &Item) -> (bool, u64) {
    (item.action != Action::Restore, item.cookie)
}

impl Table {
    /// A table whose cookies are greater than `last_cookie`.
    pub fn new(last_cookie: u64) -> Table {
        Table { last_cookie, ..Table::default() }
    }

    /// The action that has not ended and is like one that is asked for, if it does the same there: what is asked for between
    /// copying and removing counts.
    pub fn like(&self, fid: Fid, action: Action) -> Option<u64> {
        let restores = action == Action::Restore;
        let of_kind = |cookie: &&u64| {
            self.entries.get(cookie).is_some_and(|entry| (entry.item.action == Action::Restore) == restores)
        };
        let last = self.of_file.get(&fid)?.iter().rev().find(of_kind)?;
        self.entries.get(last).filter(|entry| entry.item.action == action).map(|entry| entry.item.cookie)
    }

    /// The name of the next action; fails with Busy if there are too many.
    pub fn next_cookie(&self) -> Result<u64, Code> {
        let unended = self.entries.len() - self.ended.len();
        if unended < ACTIONS_MAX { Ok(self.last_cookie + 1) } else { Err(Code::Busy) }
    }

    /// One more action, which is in the store by then.
    pub fn add(&mut self, item: Item) {
        self.last_cookie = self.last_cookie.max(item.cookie);
        self.waiting.insert(place(&item));
        self.of_file.entry(item.fid).or_default().push(item.cookie);
        self.entries.insert(item.cookie, Entry { item, stands: Stands::Waiting });
    }

    /// How an action stands; `None` if it is not known.
    pub fn shown(&self, cookie: u64) -> Option<Shown> {
        self.entries.get(&cookie).map(Entry::shown)
    }

    /// Cookies of the actions on a file that have not ended.
    pub fn of_file(&self, fid: Fid) -> SmallVec<[u64; 2]> {
        self.of_file.get(&fid).cloned().unwrap_or_default()
    }

    /// Every action.
    pub fn all(&self) -> impl Iterator<Item = Shown> + '_ {
        self.entries.values().map(Entry::shown)
    }

    /// Name and archives of every copytool, and how many actions it does.
    pub fn agents(&self) -> impl Iterator<Item = (&str, &[u32], usize)> + '_ {
        self.agents.iter().map(|(name, agent)| (name.as_str(), &agent.archives[..], agent.has.len()))
    }

    /// Gives a copytool work: actions, and of what it works on, what nobody wants any more.
    pub fn take(&mut self, taking: &Taking<'_>, now: Time) -> Result<(Vec<Item>, Vec<u64>), Code> {
        let name = taking.agent;
        if self.agents.len() >= AGENTS_MAX && !self.agents.contains_key(name) {
            return Err(Code::TooBig);
        }
        // What an earlier run had, or an answer that was lost gave it, is given out again.
        let had = self.agents.remove(name).map(|before| before.has).unwrap_or_default();
        had.iter().filter(|cookie| !taking.works_on(**cookie)).for_each(|cookie| self.wait_again(*cookie));
        let (mut has, mut canceled) = (BTreeSet::new(), Vec::new());
        for (cookie, done) in taking.working {
            match self.goes_on(name, *cookie, *done) {
                true => has.insert(*cookie),
                false => {
                    canceled.push(*cookie);
                    false
                }
            };
        }
        let items = self.start(taking);
        has.extend(items.iter().map(|item| item.cookie));
        let agent = Agent { session: taking.session, archives: taking.archives.to_vec(), seen: now, has };
        self.agents.insert(name.to_owned(), agent);
        Ok((items, canceled))
    }

    /// Whether a copytool still waits for work in this session: not if it has ended, or another run of it has asked.
    pub fn still_waits(&self, agent: &str, session: u64) -> bool {
        self.agents.get(agent).is_some_and(|known| known.session == session)
    }

    /// A session has ended: others do what its copytool had.
    pub fn end_session(&mut self, session: u64) {
        let of_session = self.agents.iter().filter(|(_, agent)| agent.session == session);
        let names: Vec<String> = of_session.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.drop_agent(name));
    }

    fn drop_agent(&mut self, name: &str) {
        let had = self.agents.remove(name).map(|agent| agent.has).unwrap_or_default();
        had.into_iter().for_each(|cookie| self.wait_again(cookie));
    }

    /// Whether a copytool is to go on with an action. What it began before this target restarted is its own again.
    fn goes_on(&mut self, name: &str, cookie: u64, done: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&cookie) else { return false };
        match &entry.stands {
            Stands::Started { agent, .. } if agent != name => return false,
            Stands::Ended(_) => return false,
            Stands::Started { .. } | Stands::Waiting => {}
        }
        self.waiting.remove(&place(&entry.item));
        entry.stands = Stands::Started { agent: name.to_owned(), done };
        true
    }

    /// Whether an action may begin: copies of one file are made and removed one at a time. What brings data back waits for nothing,
    /// for who makes a copy may wait for it.
    fn may_start(&self, item: &Item) -> bool {
        let others = self.of_file.get(&item.fid).into_iter().flatten();
        let mut earlier = others.take_while(|cookie| **cookie != item.cookie);
        let restores =
            |cookie: &u64| self.entries.get(cookie).is_none_or(|entry| entry.item.action == Action::Restore);
        item.action == Action::Restore || earlier.all(restores)
    }

    /// Hands actions out.
    fn start(&mut self, taking: &Taking<'_>) -> Vec<Item> {
        let serves = |item: &Item| taking.archives.is_empty() || taking.archives.contains(&item.archive);
        let waiting = self.waiting.iter().filter_map(|(_, cookie)| Some(self.entries.get(cookie)?.item));
        let taken = waiting.filter(|item| serves(item) && self.may_start(item)).take(taking.max);
        let taken: Vec<Item> = taken.collect();
        for item in &taken {
            self.goes_on(taking.agent, item.cookie, 0);
        }
        taken
    }

    /// What a copytool did waits for another one.
    fn wait_again(&mut self, cookie: u64) {
        let Some(entry) = self.entries.get_mut(&cookie) else { return };
        if matches!(entry.stands, Stands::Started { .. }) {
            entry.stands = Stands::Waiting;
            self.waiting.insert(place(&entry.item));
        }
    }

    /// An action has ended; it is not in the store any more by then. Says whether it had not ended before.
    pub fn end(&mut self, cookie: u64, how: How, now: Time) -> bool {
        let Some(entry) = self.entries.get_mut(&cookie) else { return false };
        match &entry.stands {
            Stands::Ended(_) => return false,
            Stands::Started { agent, .. } => {
                if let Some(agent) = self.agents.get_mut(agent) {
                    agent.has.remove(&cookie);
                }
            }
            Stands::Waiting => {
                self.waiting.remove(&place(&entry.item));
            }
        }
        entry.stands = Stands::Ended(how);
        let fid = entry.item.fid;
        if let Some(all) = self.of_file.get_mut(&fid) {
            all.retain(|of| *of != cookie);
            if all.is_empty() {
                self.of_file.remove(&fid);
            }
        }
        self.ended.push_back((now, cookie));
        true
    }

    /// Forgets what ended long ago, and copytools that are silent: others do what they had. Gives the names of those.
    pub fn pass_time(&mut self, now: Time) -> Vec<String> {
        let is_old = |ended: &VecDeque<(Time, u64)>| {
            ended.front().is_some_and(|(at, _)| now - *at >= GRACE || ended.len() > ENDED_MAX)
        };
        while is_old(&self.ended) {
            if let Some((_, cookie)) = self.ended.pop_front() {
                self.entries.remove(&cookie);
            }
        }
        let silent = self.agents.iter().filter(|(_, agent)| now - agent.seen >= SILENCE_MAX);
        let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
        silent.iter().for_each(|name| self.drop_agent(name));
        silent
    }

    /// How many actions wait for a copytool, and how many go on.
    pub fn counts(&self) -> (usize, usize) {
        let waiting = self.waiting.len();
        (waiting, self.entries.len() - self.ended.len() - waiting)
    }
}

impl Taking<'_> {
    fn works_on(&self, cookie: u64) -> bool {
        self.working.iter().any(|(of, _)| *of == cookie)
    }
}

impl Entry {
    fn shown(&self) -> Shown {
        let plain =
            Shown { item: self.item, state: ActionState::Waiting, code: None, done: 0, agent: String::new() };
        match &self.stands {
            Stands::Waiting => plain,
            Stands::Started { agent, done } => {
                Shown { state: ActionState::Started, done: *done, agent: agent.clone(), ..plain }
            }
            Stands::Ended(How::Succeeded) => Shown { state: ActionState::Succeeded, ..plain },
            Stands::Ended(How::Failed(code)) => {
                Shown { state: ActionState::Failed, code: Some(*code), ..plain }
            }
            Stands::Ended(How::Canceled) => Shown { state: ActionState::Canceled, ..plain },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(cookie: u64, oid: u32, action: Action) -> Item {
        let fid = Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        Item { cookie, fid, action, archive: 1 + oid % 2, asked_s: 0 }
    }

    fn at(secs: u64) -> Time {
        Time(Duration::from_secs(secs).as_nanos() as u64)
    }

    fn take(
        table: &mut Table,
        agent: &str,
        archives: &[u32],
        working: &[(u64, u64)],
        max: usize,
    ) -> Vec<u64> {
        let taking = Taking { agent, session: 1, archives, working, max };
        let (items, _) = table.take(&taking, at(0)).expect("there is room");
        items.iter().map(|item| item.cookie).collect()
    }

    fn table(items: &[Item]) -> Table {
        let mut table = Table::new(0);
        items.iter().for_each(|item| table.add(*item));
        table
    }

    #[test]
    fn what_brings_data_back_comes_first_and_each_file_one_at_a_time() {
        use Action::{Archive, Remove, Restore};
        let items = [
            item(1, 2, Archive),
            item(2, 4, Archive),
            item(3, 2, Remove),
            item(4, 2, Restore),
            item(5, 7, Archive),
        ];
        let mut table = table(&items);
        assert_eq!(table.next_cookie(), Ok(6));
        let like = |action| table.like(items[0].fid, action);
        assert_eq!((like(Remove), like(Archive), like(Restore)), (Some(3), None, Some(4)));
        assert_eq!(take(&mut table, "a", &[1], &[], 2), [4, 1]);
        assert_eq!(take(&mut table, "b", &[1], &[], 9), [2], "5 is of another archive, 3 comes after 1");
        assert!(table.end(1, How::Succeeded, at(0)) && !table.end(1, How::Canceled, at(0)));
        assert_eq!(take(&mut table, "b", &[], &[(2, 7)], 9), [3, 5]);
        let shown = table.shown(2).expect("it goes on");
        assert_eq!((shown.state, shown.done, &shown.agent[..]), (ActionState::Started, 7, "b"));
        assert_eq!(table.counts(), (0, 4));
    }

    #[test]
    fn nothing_is_lost_with_a_copytool_or_an_answer() {
        let mut table = table(&[item(1, 2, Action::Archive), item(2, 4, Action::Archive)]);
        assert_eq!(take(&mut table, "a", &[], &[], 9), [1, 2]);
        // The answer with 2 was lost, or the copytool began anew.
        assert_eq!(take(&mut table, "a", &[], &[(1, 5)], 9), [2]);
        assert_eq!(table.pass_time(at(19)), [""; 0]);
        assert_eq!(table.pass_time(at(20)), ["a"]);
        assert_eq!(take(&mut table, "b", &[], &[], 1), [1]);
        // It was not gone after all: another one has its action by then.
        let taking =
            Taking { agent: "a", session: 2, archives: &[], working: &[(1, 9), (2, 9), (77, 0)], max: 0 };
        let (_, canceled) = table.take(&taking, at(21)).expect("there is room");
        assert_eq!(canceled, [1, 77]);
        assert_eq!(table.shown(2).map(|shown| shown.agent), Some("a".to_owned()));
        assert!(table.still_waits("a", 2) && !table.still_waits("a", 1));
        table.end_session(2);
        assert!(!table.still_waits("a", 2));
        assert_eq!(table.shown(2).map(|shown| shown.state), Some(ActionState::Waiting));
    }

    #[test]
    fn how_an_action_ended_is_known_for_a_while() {
        let mut table = table(&[item(1, 2, Action::Restore)]);
        assert!(table.end(1, How::Failed(Code::NotFound), at(5)));
        assert_eq!(table.of_file(item(1, 2, Action::Restore).fid).len(), 0);
        table.pass_time(at(64));
        assert_eq!(table.shown(1).and_then(|shown| shown.code), Some(Code::NotFound));
        table.pass_time(at(65));
        assert_eq!(table.shown(1), None);
        assert_eq!(table.next_cookie(), Ok(2), "no name is used twice");
    }

    #[test]
    fn there_are_only_so_many() {
        let mut table = Table::new(0);
        for cookie in 1..=ACTIONS_MAX as u64 {
            table.add(item(cookie, 2, Action::Remove));
        }
        assert_eq!(table.next_cookie(), Err(Code::Busy));
        table.end(9, How::Canceled, at(0));
        assert_eq!(table.next_cookie(), Ok(ACTIONS_MAX as u64 + 1));
    }
}
