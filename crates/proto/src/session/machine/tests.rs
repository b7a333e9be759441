//! Tables of events: what happens, and what the machine says to it.

use crate::wire::header::SLOT_NONE;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::wire::messages::{
    Connected, Disconnect, Done, FEATURES_ALL, FlockWait, GetSequence, RenewLease, Sequence, Statfs,
};
use crate::wire::{Reply, Request};

const LIMITS: Limits =
    Limits { requests_max: 8, waiting_max: 3, retained_count_max: 6, retained_bytes_max: 100_000 };

/// One line of a table: when, what happens, and what is said.
type Line = (u64, Do, &'static str);

/// What happens. Numbers of callers and of requests are the same here: both begin at 1.
#[derive(Debug, Clone)]
enum Do {
    /// Somebody calls: a change, a question, something that waits, a sign of life.
    Change,
    Ask,
    Wait,
    Pulse,
    /// A request that only counts in this era.
    AskIn(u64),
    Gone(u64),
    /// A reply, with transno and commit mark.
    Reply(u64, u64, u64),
    Refused(u64, Code),
    /// Replies to several questions in one frame.
    Replies(&'static [u64]),
    UnderWay(u64),
    Wanted(u64),
    /// It is time to look, and the other side was heard last then.
    Due(u64),
    Broken,
    Look,
    Forget,
    Owner(u64),
    Barred(Option<Code>),
    Addresses(&'static str),
    Need,
    Unneeded,
    Needed,
    Goodbye,
    Rested(Option<u64>),
    Close,
    /// The next step of the opening.
    Next,
    /// What came of it.
    Here(bool),
    Reached,
    Failed,
    Unwanted,
    Moved,
    /// The answer to a Connect: session, boot, commit mark, whether the target knew the client.
    Connected(u64, u64, u64, bool),
    NotConnected(Code),
    Restated,
    Opened,
}

struct Table {
    machine: Machine<u64>,
    callers: u64,
}

const CHANGES: Asks = Asks { changes: true, contends: false };

fn table() -> Table {
    Table {
        machine: Machine::new(Setup {
            target: TargetId::mdt(0),
            client: ClientId(1),
            fsname: "weft".into(),
            nids: nids("a b"),
            epoch: 10,
            limits: LIMITS,
        }),
        callers: 0,
    }
}

/// A session that is open over a connection: session 7, boot 3.
fn open() -> Table {
    let mut table = table();
    table.run(&[
        (0, Do::Need, "connect"),
        (0, Do::Next, "pause 0"),
        (0, Do::Next, "seek"),
        (0, Do::Here(false), ""),
        (0, Do::Next, "dial a@tcp"),
        (0, Do::Reached, ""),
        (0, Do::Next, "connect epoch 11 boot 0 committed 0"),
        (0, Do::Connected(7, 3, 0, false), ""),
        (0, Do::Next, ""),
        (0, Do::Next, "note: Forgotten, 0 replays, 0 resends"),
        (0, Do::Next, "open"),
        (0, Do::Opened, ""),
        (0, Do::Next, "done"),
    ]);
    table
}

/// The way from a broken connection to the answer to the next Connect. There is a pause if nothing was answered since the
/// last attempt.
fn reconnect(epoch: u64, pause: &'static str) -> Vec<Line> {
    let connect: &'static str = format!("connect epoch {epoch} boot 3 committed 0").leak();
    vec![
        (0, Do::Broken, "leave 7; connect"),
        (0, Do::Next, "tell lost"),
        (0, Do::Next, pause),
        (0, Do::Next, "seek"),
        (0, Do::Here(false), ""),
        (0, Do::Next, "dial a@tcp"),
        (0, Do::Reached, ""),
        (0, Do::Next, connect),
    ]
}

fn nids(text: &str) -> Vec<Nid> {
    text.split(' ').map(Nid::tcp).collect()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn reply(xid: u64, transno: u64, last_committed: u64, result: Result<Reply, Code>) -> Incoming {
    Incoming {
        xid: Xid(xid),
        session_epoch: 0,
        transno: Transno(transno),
        last_committed: Transno(last_committed),
        room: Room::default(),
        result,
        bulk: Vec::new(),
    }
}

impl Table {
    fn run(&mut self, lines: &[Line]) {
        for (n, (at, what, said)) in lines.iter().enumerate() {
            assert_eq!(self.step(secs(*at), what.clone()), *said, "line {n}: {what:?} at {at}");
        }
    }

    fn call(&mut self, request: Request, era: Option<u64>, now: Duration) -> Vec<Output<u64>> {
        let message = Arc::new(Message::new(&request, &[]).expect("it is short"));
        let waiter = self.callers + 1;
        let out = self.machine.on(Event::Call { message, waiter, era }, now);
        if out.iter().any(|output| matches!(output, Output::Send { .. })) {
            self.callers = waiter;
        }
        out
    }

    fn replies(&mut self, mut replies: Vec<Incoming>, now: Duration) -> Vec<Output<u64>> {
        let session_epoch = self.machine.known().epoch;
        replies.iter_mut().for_each(|reply| reply.session_epoch = session_epoch);
        self.machine.on(Event::Replies(replies), now)
    }

    fn step(&mut self, now: Duration, what: Do) -> String {
        let session_epoch = self.machine.known().epoch;
        let done = || Ok(Reply::Sync(Done {}));
        let event = match what {
            Do::Change => return say(self.call(GetSequence {}.into(), None, now)),
            Do::Ask => return say(self.call(Statfs {}.into(), None, now)),
            Do::AskIn(era) => return say(self.call(Statfs {}.into(), Some(era), now)),
            Do::Wait => {
                return say(self.call(FlockWait { wait: 1, known: Vec::new() }.into(), None, now));
            }
            Do::Pulse => {
                let renewal = RenewLease { lease: 0, release: false, dropped: Vec::new() };
                return say(self.call(renewal.into(), None, now));
            }
            Do::Reply(xid, transno, committed) => {
                let sequence = Ok(Reply::GetSequence(Sequence { seq: 1 }));
                return say(self.replies(vec![reply(xid, transno, committed, sequence)], now));
            }
            Do::Refused(xid, code) => return say(self.replies(vec![reply(xid, 0, 0, Err(code))], now)),
            Do::Replies(xids) => {
                return say(self.replies(xids.iter().map(|xid| reply(*xid, 0, 0, done())).collect(), now));
            }
            Do::Next => return step(self.machine.next(now)),
            Do::Goodbye => {
                let message = Arc::new(Message::new(&Disconnect {}.into(), &[]).expect("it is short"));
                self.callers += 1;
                Event::Goodbye { message, waiter: self.callers }
            }
            Do::Gone(xid) => Event::Gone(Xid(xid)),
            Do::UnderWay(xid) => Event::UnderWay { xid: Xid(xid), session_epoch },
            Do::Wanted(xid) => Event::Wanted { xid: Xid(xid), session_epoch },
            Do::Due(heard) => Event::Due { heard: Some(secs(heard)) },
            Do::Broken => Event::Broken,
            Do::Look => Event::Look,
            Do::Forget => Event::Forget,
            Do::Owner(epoch) => Event::Owner(epoch),
            Do::Barred(why) => Event::Barred(why),
            Do::Addresses(text) => Event::Addresses(nids(text)),
            Do::Need => Event::Need,
            Do::Unneeded => Event::Unneeded,
            Do::Needed => Event::Needed { broken: false },
            Do::Rested(goodbye) => Event::Rested { goodbye: goodbye.map(Xid) },
            Do::Close => Event::Close,
            Do::Here(here) => Event::Sought { here },
            Do::Reached => Event::Reached,
            Do::Failed => Event::Failed(Failure::Again("no way".into())),
            Do::Unwanted => Event::Failed(Failure::Refused(Code::Forbidden, "no key".into())),
            Do::Moved => Event::Elsewhere,
            Do::Connected(session, boot, committed, resumed) => Event::Connected(Ok(Connected {
                session,
                features: FEATURES_ALL,
                boot,
                slots: 4,
                last_committed: Transno(committed),
                resumed,
            })),
            Do::NotConnected(code) => Event::Connected(Err(code)),
            Do::Restated => Event::Restated,
            Do::Opened => Event::Opened { here: false },
        };
        say(self.machine.on(event, now))
    }
}

/// What is to be done, in words; who waits for room, or for commits, is left out.
fn say(outputs: Vec<Output<u64>>) -> String {
    let words: Vec<String> = outputs.into_iter().filter_map(word).collect();
    words.join("; ")
}

fn word(output: Output<u64>) -> Option<String> {
    Some(match output {
        Output::Room | Output::Advanced => return None,
        Output::Send { header, .. } => format!("send {}", request(&header)),
        Output::SendAll { outgoing, together } => {
            let all: Vec<String> = outgoing.iter().map(|(header, _)| request(header)).collect();
            format!("send {}{}", all.join(", "), if together { " together" } else { "" })
        }
        Output::Again { header, .. } => format!("again {}", request(&header)),
        Output::Answer { waiter, result: Ok(_) } => format!("answer {waiter}"),
        Output::Answer { waiter, result: Err(code) } => format!("answer {waiter} {code:?}"),
        Output::Drop(waiters) => format!("drop {waiters:?}"),
        Output::Leave(session) => format!("leave {session}"),
        Output::Note(Note::Connected { outcome, replays, resends }) => {
            format!("note: {outcome:?}, {replays} replays, {resends} resends")
        }
        Output::Note(Note::Lost { range, unknown }) => {
            let range = range.map(|(after, to)| (after.0, to.0));
            format!("note: lost {range:?}, unknown {unknown}")
        }
        Output::Note(note) => format!("note: {note:?}"),
        Output::NotOpen => "not open".into(),
        Output::EndOfReplays => "end of replays".into(),
        simple => format!("{simple:?}").to_lowercase(),
    })
}

fn request(header: &Header) -> String {
    let slot = if header.slot == SLOT_NONE { String::new() } else { format!(" slot {}", header.slot) };
    let resent = if header.flags & FLAG_RESENT != 0 { " resent" } else { "" };
    let replay = match header.flags & FLAG_REPLAY != 0 {
        true => format!(" replay of {}", header.transno.0),
        false => String::new(),
    };
    format!("{}{slot}{resent}{replay}", header.xid.0)
}

fn step(step: Step<u64>) -> String {
    match step {
        Step::Do(outputs) => say(outputs),
        Step::TellLost => "tell lost".into(),
        Step::TellOpen => "tell open".into(),
        Step::TellSessionLost => "tell session lost".into(),
        Step::Pause { least, spread } => format!("pause {}", (least + spread).as_millis()),
        Step::Seek => "seek".into(),
        Step::Dial(nid) => format!("dial {nid}"),
        Step::Connect(connect) => format!(
            "connect epoch {} boot {} committed {}",
            connect.session_epoch, connect.boot, connect.committed.0
        ),
        Step::Wait(until) => format!("wait until {}", until.as_secs()),
        Step::Restate => "restate".into(),
        Step::Leave(session) => format!("leave {session}"),
        Step::Open => "open".into(),
        Step::GiveUp { code, waiters, .. } => format!("give up {code:?} {waiters:?}"),
        Step::Done => "done".into(),
    }
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    open().run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (4, Do::Due(0), ""),
        (5, Do::Due(4), "again 1 slot 0"),
        (14, Do::Due(6), ""),
        (15, Do::Due(6), "again 1 slot 0"),
        (16, Do::Reply(1, 5, 0), "answer 1"),
        (35, Do::Due(16), ""),
    ]);
}

#[test]
fn who_asks_a_barred_target_is_refused_until_it_is_not_barred_any_more() {
    open().run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (1, Do::Barred(Some(Code::Inactive)), "leave 7; connect; moved"),
        (1, Do::Next, "tell lost"),
        (1, Do::Next, "give up Inactive [1]"),
        (1, Do::Next, "done"),
        (2, Do::Change, "not open"),
        (2, Do::Need, "connect"),
        (2, Do::Next, "give up Inactive []"),
        // The target may have something to ask: its session is opened again before anybody needs it.
        (3, Do::Barred(None), "connect"),
        (3, Do::Barred(None), ""),
        (3, Do::Need, ""),
        (3, Do::Next, "pause 10"),
        (3, Do::Next, "seek"),
    ]);
}

#[test]
fn a_repeated_answer_says_nothing() {
    open().run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Change, "send 2 slot 1"),
        (1, Do::Reply(1, 5, 0), "answer 1"),
        (1, Do::Reply(1, 5, 0), ""),
        (1, Do::Reply(9, 0, 0), ""),
        (1, Do::Change, "send 3 slot 0"),
        (1, Do::Reply(2, 6, 6), "answer 2"),
    ]);
}

#[test]
fn an_answer_of_an_older_connection_counts_no_more() {
    let mut table = open();
    table.run(&[(0, Do::Change, "watch; send 1 slot 0")]);
    let mut late = reply(1, 5, 0, Err(Code::Exists));
    late.session_epoch = 10;
    assert_eq!(say(table.machine.on(Event::Replies(vec![late]), secs(1))), "");
    assert_eq!(table.machine.requests().retained(), (0, 0));
    table.run(&[(1, Do::Reply(1, 5, 0), "answer 1")]);
}

#[test]
fn a_connection_that_breaks_costs_a_repetition_and_nothing_else() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Ask, "send 2"),
        (0, Do::Change, "send 3 slot 1"),
        (0, Do::Reply(3, 5, 0), "answer 3"),
    ]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (2, Do::Ask, "not open"),
        (2, Do::Connected(7, 3, 0, true), ""),
        (2, Do::Next, ""),
        (2, Do::Next, "note: SameBoot, 0 replays, 2 resends"),
        (2, Do::Next, "tell open"),
        (2, Do::Next, "send 1 slot 0 resent, 2 resent together"),
        (2, Do::Next, "open"),
        (2, Do::Opened, ""),
        (2, Do::Next, "done"),
        (2, Do::Ask, "send 4"),
        (3, Do::Reply(1, 6, 6), "answer 1"),
        (3, Do::Reply(2, 0, 6), "answer 2"),
    ]);
    assert_eq!(table.machine.known().era, 0);
}

#[test]
fn a_target_that_restarted_gets_what_it_lost_in_order() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Change, "send 2 slot 1"),
        (0, Do::Change, "send 3 slot 2"),
        (0, Do::Change, "send 4 slot 3"),
        (0, Do::Reply(3, 11, 0), "answer 3"),
        (0, Do::Reply(1, 12, 0), "answer 1"),
        (0, Do::Reply(2, 13, 0), "sync; answer 2"),
    ]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (2, Do::Connected(8, 4, 11, true), ""),
        (2, Do::Next, ""),
        (2, Do::Next, "note: Restarted, 2 replays, 1 resends"),
        (2, Do::Next, "send 1 slot 0 replay of 12"),
        (2, Do::Next, "wait until 7"),
        (3, Do::Next, "wait until 7"),
        // Its answer is lost; the target says that it wants it, and later nothing at all.
        (4, Do::Wanted(1), "send 1 slot 0 resent replay of 12"),
        (7, Do::Next, "again 1 slot 0 replay of 12"),
        (7, Do::Next, "wait until 17"),
        (17, Do::Next, "again 1 slot 0 replay of 12"),
        (17, Do::Next, "wait until 27"),
        (18, Do::Reply(1, 12, 12), "stir"),
        (18, Do::Refused(1, Code::Exists), "stir"),
        (18, Do::Next, ""),
        (18, Do::Next, "send 2 slot 1 replay of 13"),
        (18, Do::Reply(2, 13, 12), "stir"),
        (18, Do::Next, "restate"),
        (19, Do::Restated, ""),
        (19, Do::Next, "send 4 slot 3 resent together"),
        (19, Do::Next, "open"),
        (19, Do::Opened, "end of replays"),
        (19, Do::Next, "done"),
        (19, Do::Reply(4, 14, 14), "answer 4"),
    ]);
    assert_eq!(table.machine.requests().retained(), (0, 0));
    assert_eq!(table.machine.trouble().evictions, 0);
}

#[test]
fn a_connection_that_breaks_in_the_midst_of_replays_leaves_the_rest_owed() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Change, "send 2 slot 1"),
        (0, Do::Reply(1, 11, 0), "answer 1"),
        (0, Do::Reply(2, 12, 0), "answer 2"),
    ]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (2, Do::Connected(8, 4, 0, true), ""),
        (2, Do::Next, ""),
        (2, Do::Next, "note: Restarted, 2 replays, 0 resends"),
        (2, Do::Next, "send 1 slot 0 replay of 11"),
        (2, Do::Reply(1, 11, 0), "stir"),
        (2, Do::Next, "send 2 slot 1 replay of 12"),
        (2, Do::Next, "wait until 7"),
        (3, Do::Failed, ""),
        (3, Do::Next, "leave 8"),
        // The other address, then a pause.
        (3, Do::Next, "dial b@tcp"),
        (3, Do::Failed, ""),
        (3, Do::Next, "note: Unreached(\"no way\")"),
        (3, Do::Next, "pause 10"),
        (3, Do::Next, "seek"),
        (3, Do::Here(false), ""),
        (3, Do::Next, "dial a@tcp"),
        (3, Do::Reached, ""),
        (3, Do::Next, "connect epoch 13 boot 4 committed 0"),
        (3, Do::Connected(8, 4, 0, true), ""),
        (3, Do::Next, ""),
        (3, Do::Next, "note: SameBoot, 1 replays, 0 resends"),
        (3, Do::Next, "send 2 slot 1 replay of 12"),
        (3, Do::Reply(2, 12, 0), "stir"),
        // What the restart began remains to be done.
        (3, Do::Next, "restate"),
        (3, Do::Restated, ""),
        (3, Do::Next, "open"),
        (3, Do::Opened, "end of replays"),
    ]);
}

#[test]
fn a_replay_that_is_refused_is_a_lost_change() {
    let mut table = open();
    table.run(&[(0, Do::Change, "watch; send 1 slot 0"), (0, Do::Reply(1, 11, 0), "answer 1")]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (2, Do::Connected(8, 4, 0, true), ""),
        (2, Do::Next, ""),
        (2, Do::Next, "note: Restarted, 1 replays, 0 resends"),
        (2, Do::Next, "send 1 slot 0 replay of 11"),
        (2, Do::Refused(1, Code::Exists), "stir"),
        (2, Do::Next, "note: ReplayRefused(Transno(11), Exists)"),
        (2, Do::Next, "restate"),
    ]);
    let evicted = Some(Err(CallError::Refused(Code::Evicted)));
    assert_eq!(table.machine.commits().durable(Transno(11), 0), evicted);
    assert_eq!(table.machine.commits().durable(Transno(10), 0), None);
    assert_eq!(table.machine.trouble().evictions, 1);
}

#[test]
fn who_was_forgotten_learns_what_is_lost_before_anybody_goes_on() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Change, "send 2 slot 1"),
        (0, Do::Ask, "send 3"),
        (0, Do::Reply(1, 11, 0), "answer 1"),
    ]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (2, Do::NotConnected(Code::Evicted), ""),
        (2, Do::Next, "dial b@tcp"),
        (2, Do::Reached, ""),
        (2, Do::Next, "connect epoch 13 boot 0 committed 0"),
        (2, Do::Connected(9, 3, 20, false), ""),
        (2, Do::Next, "note: lost Some((0, 11)), unknown 1"),
        (2, Do::Next, "note: Forgotten, 0 replays, 1 resends"),
        (2, Do::Next, "tell session lost"),
    ]);
    assert_eq!((table.machine.known().era, table.machine.known().shown), (0, 9));
    table.run(&[
        (2, Do::Next, "answer 2 Evicted"),
        (2, Do::Next, "send 3 resent together"),
        (2, Do::Next, "open"),
        (2, Do::Opened, ""),
        (2, Do::AskIn(0), "not open"),
        (2, Do::AskIn(1), "send 4"),
        (2, Do::Change, "send 5 slot 0"),
    ]);
    let evicted = Some(Err(CallError::Refused(Code::Evicted)));
    assert_eq!(table.machine.commits().durable(Transno(11), 0), evicted);
    assert_eq!(table.machine.commits().durable(Transno(20), 0), Some(Ok(())));
}

#[test]
fn a_target_that_moved_is_looked_for_at_once() {
    let mut table = open();
    table.run(&[
        (0, Do::Owner(3), ""),
        (0, Do::Owner(4), "note: OwnerChanged(4); leave 7; connect"),
        (0, Do::Owner(5), ""),
        (0, Do::Next, "tell lost"),
        (0, Do::Next, "pause 10"),
        (0, Do::Next, "seek"),
        (0, Do::Here(false), ""),
        (0, Do::Next, "dial a@tcp"),
        // The news comes while a dead address says nothing.
        (1, Do::Addresses("c"), "moved"),
        (1, Do::Addresses("c"), ""),
        (1, Do::Moved, ""),
        (1, Do::Next, "note: Unreached(\"MDT0000 has moved\")"),
        (1, Do::Next, "pause 0"),
        (1, Do::Next, "seek"),
        (1, Do::Here(false), ""),
        (1, Do::Next, "dial c@tcp"),
    ]);
}

#[test]
fn attempts_come_at_once_and_then_rarer() {
    let mut table = table();
    table.run(&[(0, Do::Need, "connect"), (0, Do::Need, "")]);
    for (n, pause) in [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000].into_iter().enumerate() {
        assert_eq!(table.step(secs(0), Do::Next), format!("pause {pause}"));
        table.run(&[
            (0, Do::Next, "seek"),
            (0, Do::Here(false), ""),
            (0, Do::Next, "dial a@tcp"),
            (0, Do::Failed, ""),
            (0, Do::Next, "dial b@tcp"),
            (0, Do::Failed, ""),
        ]);
        // It is said once.
        if n == 0 {
            assert_eq!(table.step(secs(0), Do::Next), "note: Unreached(\"no way\")");
        }
    }
}

#[test]
fn a_target_that_refuses_is_not_asked_again_before_somebody_needs_it() {
    let mut table = open();
    table.run(&[(0, Do::Ask, "watch; send 1")]);
    table.run(&reconnect(12, "pause 10"));
    table.run(&[
        (1, Do::NotConnected(Code::Forbidden), ""),
        (1, Do::Next, "dial b@tcp"),
        (1, Do::Unwanted, ""),
        (1, Do::Next, "give up Forbidden [1]"),
        (1, Do::Ask, "not open"),
    ]);
    assert_eq!(
        (table.machine.trouble().refusals, table.machine.trouble().refusal),
        (1, Some(Code::Forbidden))
    );
    table.run(&[(2, Do::Need, "connect"), (2, Do::Next, "pause 20")]);
}

#[test]
fn a_larger_epoch_is_outgrown() {
    let mut table = table();
    table.run(&[(0, Do::Need, "connect"), (0, Do::Next, "pause 0"), (0, Do::Next, "seek")]);
    table.run(&[(0, Do::Here(true), ""), (0, Do::Next, "connect epoch 11 boot 0 committed 0")]);
    for (n, epoch) in [13u64, 17, 25].into_iter().enumerate() {
        table.run(&[(0, Do::NotConnected(Code::NoSession), "")]);
        if n == 0 {
            let said = table.step(secs(0), Do::Next);
            assert!(said.starts_with("note: Unreached(\"MDT0000 refuses"), "{said}");
        }
        let _pause = table.step(secs(0), Do::Next);
        table.run(&[(0, Do::Next, "seek"), (0, Do::Here(true), "")]);
        assert_eq!(table.step(secs(0), Do::Next), format!("connect epoch {epoch} boot 0 committed 0"));
    }
}

#[test]
fn a_session_that_somebody_else_took_over_begins_anew() {
    let mut table = open();
    table.run(&reconnect(12, "pause 10"));
    table.run(&[
        (1, Do::Connected(8, 3, 0, true), ""),
        (1, Do::Next, "note: TakenOver(\"somebody else has taken the session with MDT0000 over\")"),
        (1, Do::Next, "leave 8"),
        (1, Do::Next, "dial b@tcp"),
        (1, Do::Reached, ""),
        (1, Do::Next, "connect epoch 13 boot 0 committed 0"),
    ]);
}

#[test]
fn what_was_asked_before_the_session_was_forgotten_does_not_open_it() {
    let mut table = open();
    table.run(&reconnect(12, "pause 10"));
    table.run(&[
        (1, Do::Forget, ""),
        (1, Do::Connected(7, 3, 0, true), ""),
        (1, Do::Next, "leave 7"),
        (1, Do::Next, "dial b@tcp"),
        (1, Do::Reached, ""),
        (1, Do::Next, "connect epoch 13 boot 0 committed 0"),
        (1, Do::Connected(9, 3, 0, false), ""),
        (1, Do::Next, ""),
        (1, Do::Next, "note: Forgotten, 0 replays, 0 resends"),
        (1, Do::Next, "tell session lost"),
        (1, Do::Next, "open"),
    ]);
    assert_eq!(table.machine.known().era, 1);
}

#[test]
fn a_lost_goodbye_ends_nothing_that_follows() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Unneeded, ""),
        (0, Do::Ask, "send 2"),
        (0, Do::Reply(2, 0, 0), "answer 2"),
        (0, Do::Reply(1, 5, 5), "answer 1"),
        (1, Do::Unneeded, ""),
        (1, Do::Ask, "not open"),
        (1, Do::Goodbye, "send 3"),
        // Nobody answers.
        (2, Do::Rested(Some(3)), "leave 7"),
        (6, Do::Due(1), ""),
        (7, Do::Need, "connect"),
        (7, Do::Next, "pause 0"),
        (7, Do::Next, "seek"),
        (7, Do::Here(false), ""),
        (7, Do::Next, "dial a@tcp"),
        (7, Do::Reached, ""),
        (7, Do::Next, "connect epoch 12 boot 0 committed 5"),
        (7, Do::Connected(8, 3, 5, false), ""),
        (7, Do::Next, ""),
        // Nobody held anything, and so nobody is told; nothing is sent again.
        (7, Do::Next, "note: Forgotten, 0 replays, 0 resends"),
        (7, Do::Next, "open"),
    ]);
    assert_eq!(table.machine.known().era, 0);
}

#[test]
fn a_session_that_is_needed_after_all_goes_on() {
    open().run(&[
        (0, Do::Unneeded, ""),
        (0, Do::Ask, "not open"),
        (0, Do::Needed, ""),
        (0, Do::Ask, "watch; send 1"),
    ]);
}

#[test]
fn what_waits_for_long_hides_nothing_that_is_lost() {
    let mut table = open();
    table.run(&[(0, Do::Wait, "watch; send 1")]);
    assert_eq!(table.machine.watch_until(), Some(secs(30)));
    table.run(&[(1, Do::Ask, "earlier; send 2"), (2, Do::Pulse, "send 3")]);
    assert_eq!(table.machine.watch_until(), Some(secs(6)));
    table.run(&[(6, Do::Due(5), "again 2"), (7, Do::Due(6), "again 3")]);
    assert_eq!(table.machine.watch_until(), Some(secs(12)), "a sign of life keeps its pace");
    table.run(&[
        (12, Do::Due(11), "again 3"),
        (16, Do::Due(15), "again 2"),
        (30, Do::Due(29), "again 1; again 3"),
    ]);
}

#[test]
fn of_a_batch_only_what_was_lost_is_sent_again() {
    let mut table = open();
    table.run(&[
        (0, Do::Ask, "watch; send 1"),
        (0, Do::Ask, "send 2"),
        (0, Do::Ask, "send 3"),
        (0, Do::Replies(&[1, 3]), "answer 1; answer 3"),
        (5, Do::Due(4), "again 2"),
        (6, Do::UnderWay(2), ""),
    ]);
    table.run(&reconnect(12, "pause 0"));
    table.run(&[
        (7, Do::Connected(7, 3, 0, true), ""),
        (7, Do::Next, ""),
        (7, Do::Next, "note: SameBoot, 0 replays, 1 resends"),
        (7, Do::Next, "tell open"),
        (7, Do::Next, "send 2 resent together"),
    ]);
}

#[test]
fn a_connection_that_says_nothing_is_given_up() {
    open().run(&[
        (10, Do::Ask, "watch; send 1"),
        (15, Do::Due(2), "again 1"),
        (25, Do::Due(2), "silent"),
        (25, Do::Broken, "leave 7; connect"),
        // Without a connection there is nobody to be silent.
        (60, Do::Due(2), ""),
    ]);
}

#[test]
fn a_target_that_does_not_know_the_session_is_connected_to_again() {
    open().run(&[
        (0, Do::Ask, "watch; send 1"),
        (0, Do::Ask, "send 2"),
        (1, Do::Refused(1, Code::NoSession), "leave 7; connect"),
        (1, Do::Refused(2, Code::NoSession), ""),
        (1, Do::Next, "tell lost"),
    ]);
}

/// A target may forget a client that held nothing while its connection is still there. What it refuses then was carried out nowhere.
#[test]
fn a_change_that_was_refused_for_want_of_a_session_is_not_unknown() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (5, Do::Due(4), "again 1 slot 0"),
        (6, Do::Change, "send 2 slot 1"),
        (6, Do::Change, "send 3 slot 2"),
        (6, Do::Gone(3), ""),
        (6, Do::Change, "send 4 slot 3"),
        // A former owner of the store says so behind the change.
        (7, Do::Refused(4, Code::NotHere), "leave 7; connect"),
        // It was sent twice: the other one may have been carried out.
        (7, Do::Refused(1, Code::NoSession), ""),
        (7, Do::Refused(2, Code::NoSession), "answer 2 NoSession"),
        (7, Do::Refused(3, Code::NoSession), ""),
        (7, Do::Next, "tell lost"),
        (7, Do::Next, "pause 10"),
        (7, Do::Next, "seek"),
        (7, Do::Here(false), ""),
        (7, Do::Next, "dial a@tcp"),
        (7, Do::Reached, ""),
        (7, Do::Next, "connect epoch 12 boot 3 committed 0"),
        (7, Do::Connected(8, 3, 0, false), ""),
        (7, Do::Next, "note: lost None, unknown 3"),
    ]);
}

#[test]
fn callers_that_go_leave_their_changes() {
    let mut table = open();
    table.run(&[
        (0, Do::Ask, "watch; send 1"),
        (0, Do::Change, "send 2 slot 0"),
        (1, Do::Gone(1), ""),
        (1, Do::Gone(2), ""),
        (5, Do::Due(4), "again 2 slot 0"),
        (6, Do::Reply(1, 0, 0), ""),
        (6, Do::Reply(2, 5, 0), ""),
    ]);
    assert_eq!(table.machine.requests().retained().0, 1);
}

#[test]
fn too_much_that_is_not_durable_asks_for_a_commit() {
    let mut table = open();
    for n in 1..=6u64 {
        let said = table.step(secs(0), Do::Change);
        assert!(said.contains(&format!("send {n}")), "{said}");
        let expected = if n == 3 { format!("sync; answer {n}") } else { format!("answer {n}") };
        assert_eq!(table.step(secs(0), Do::Reply(n, n, 0)), expected);
    }
    table.run(&[(0, Do::Change, "full")]);
    assert_eq!(table.machine.commits_mut().next_sync(), Some(Transno(6)));
    let generation = table.machine.known().generation;
    assert_eq!(say(table.machine.synced(Transno(6), generation + 1)), "", "another target's mark");
    assert_eq!(table.machine.requests().retained().0, 6);
    table.machine.synced(Transno(6), generation);
    assert_eq!(table.machine.requests().retained().0, 0);
    assert_eq!(table.machine.commits_mut().next_sync(), None);
    table.run(&[(0, Do::Change, "send 7 slot 0")]);
}

#[test]
fn a_session_that_ends_tells_everybody() {
    let mut table = open();
    table.run(&[
        (0, Do::Ask, "watch; send 1"),
        (0, Do::Close, "leave 7; drop [1]; stir"),
        (0, Do::Ask, "not open"),
        (0, Do::Need, ""),
    ]);
    assert_eq!(table.machine.commits().durable(Transno(1), 0), Some(Err(CallError::Closed)));
    // In the midst of a Connect.
    let mut table = self::open();
    table.run(&reconnect(12, "pause 10"));
    table.run(&[
        (0, Do::Close, "drop []; stir"),
        (0, Do::Connected(7, 3, 0, true), ""),
        (0, Do::Next, "leave 7"),
        (0, Do::Next, "done"),
    ]);
}

#[test]
fn looking_opens_anew_what_is_open() {
    table().run(&[(0, Do::Look, "")]);
    open().run(&[(0, Do::Look, "leave 7; connect"), (0, Do::Look, ""), (0, Do::Next, "tell lost")]);
}

/// A session in this process: nothing is kept, and what is missed all the same is told.
#[test]
fn within_a_process_nothing_is_kept_and_no_slot_is_used_twice() {
    let mut table = table();
    let here = |table: &mut Table, session, boot, committed, resumed, epoch: u64| {
        table.run(&[(0, Do::Next, "seek"), (0, Do::Here(true), "")]);
        let said = table.step(secs(0), Do::Next);
        assert!(said.starts_with(&format!("connect epoch {epoch} ")), "{said}");
        table.run(&[(0, Do::Connected(session, boot, committed, resumed), "")]);
        while !matches!(table.step(secs(0), Do::Next).as_str(), "open") {}
        table.machine.on(Event::Opened { here: true }, secs(0));
    };
    table.run(&[(0, Do::Need, "connect"), (0, Do::Next, "pause 0")]);
    here(&mut table, 7, 3, 0, false, 11);
    table.run(&[(0, Do::Ask, "not open")]);
    let go = |table: &mut Table, era| match table.machine.pass(CHANGES, era) {
        Pass::Go(ticket) => Some(ticket),
        Pass::Full | Pass::Elsewhere => None,
    };
    let tickets: Vec<Ticket> = std::iter::from_fn(|| go(&mut table, None)).collect();
    assert_eq!(tickets.iter().filter_map(|ticket| ticket.slot).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(table.machine.pass(CHANGES, None), Pass::Full);
    assert_eq!(table.machine.pass(CHANGES, Some(1)), Pass::Elsewhere);
    let room = table.machine.passed(tickets[1], Transno(5), Transno(2), Room(4));
    assert!(matches!(room[..], [Output::Room, Output::Advanced]), "{room:?}");
    assert_eq!(table.machine.commits().newest(), Transno(5));
    assert_eq!((table.machine.commits().room(), table.machine.requests().retained()), (Room(4), (0, 0)));
    // The same boot again: what is under way keeps its slots.
    table.run(&[(0, Do::Look, "leave 7; connect"), (0, Do::Next, "tell lost"), (0, Do::Next, "pause 10")]);
    here(&mut table, 7, 3, 2, true, 12);
    assert_eq!(go(&mut table, None).and_then(|ticket| ticket.slot), Some(1));
    assert_eq!(table.machine.pass(CHANGES, None), Pass::Full);
    // It forgot the client: an older answer frees nothing and says nothing.
    table.run(&[(0, Do::Broken, "leave 7; connect"), (0, Do::Next, "tell lost"), (0, Do::Next, "pause 20")]);
    here(&mut table, 8, 4, 2, false, 13);
    let evicted = Some(Err(CallError::Refused(Code::Evicted)));
    assert_eq!(table.machine.commits().durable(Transno(5), 0), evicted);
    assert_eq!(go(&mut table, Some(1)).and_then(|ticket| ticket.slot), Some(0));
    assert!(table.machine.passed(tickets[0], Transno(9), Transno(9), Room(0)).is_empty());
    assert_eq!(go(&mut table, Some(1)).and_then(|ticket| ticket.slot), Some(1));
    assert_eq!(table.machine.commits().newest(), Transno(0));
}

/// A target carries a replay out under another transno if it has given that one to something of its own meanwhile (it merged small extents,
/// or took away what was cut off): the change is durable when the new one is, and has to be kept until then.
#[test]
fn a_replay_that_got_another_transno_is_kept_until_that_is_durable() {
    let mut table = open();
    table.run(&[
        (0, Do::Change, "watch; send 1 slot 0"),
        (0, Do::Reply(1, 5, 4), "answer 1"),
        (0, Do::Broken, "leave 7; connect"),
        (0, Do::Next, "tell lost"),
        (0, Do::Next, "pause 0"),
        (0, Do::Next, "seek"),
        (0, Do::Here(false), ""),
        (0, Do::Next, "dial a@tcp"),
        (0, Do::Reached, ""),
        (0, Do::Next, "connect epoch 12 boot 3 committed 4"),
        (0, Do::Connected(8, 4, 4, true), ""),
        (0, Do::Next, ""),
        (0, Do::Next, "note: Restarted, 1 replays, 0 resends"),
        (0, Do::Next, "send 1 slot 0 replay of 5"),
        // 5 was given to a change of the target's own, which is durable; this one is 6, and is not.
        (0, Do::Reply(1, 6, 5), "stir"),
        (0, Do::Next, "restate"),
    ]);
    assert_eq!(
        table.machine.commits().durable(Transno(5), 0),
        None,
        "what the caller knows as 5 is not durable"
    );
    assert_eq!(table.machine.requests().retained().0, 1, "if the target is lost again, nobody else has it");
}
