//! Steps on machines, many at a time: `ssh NODE weft burst on-node`, or another command that brings one to a machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rt::os::loopback;

use super::nodes::Node;
use super::order::{HELLO, Order, Report, Step};
use crate::control::describe;
use crate::failure::Failure;

/// How many machines work at the same time.
const TOGETHER: usize = 32;
/// Most bytes of what a machine says.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// Most lines of a machine that were not looked at yet.
const LINES_WAITING: usize = 16;
/// How long the complaints of one that has ended may take.
const COMPLAINT_WAIT: Duration = Duration::from_secs(1);

/// The way to the machines.
pub struct Remote {
    words: Vec<String>,
    program: String,
    wait: Duration,
}

impl Remote {
    /// `command` and a machine's name reach a machine, and `program` is weft there. A machine that has not done a step after `wait` has failed.
    pub fn new(command: &str, program: Option<&Path>, wait: Duration) -> Result<Remote, Failure> {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(Failure::usage("--remote needs a command, as in --remote \"ssh -o BatchMode=yes\""));
        }
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe()
                .map_err(|error| Failure::new(format!("this program does not find itself: {error}")))?,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
        // A shell may read it there.
        match program.to_str().filter(|text| text.bytes().all(plain)) {
            Some(program) => Ok(Remote { words, program: program.to_owned(), wait }),
            None => Err(Failure::usage(format!(
                "{}: shells do not take such a path as it is; name another with --program",
                program.display()
            ))),
        }
    }

    /// Has each machine do what `order` says for it; the machines that have not, and why.
    pub fn all(&self, nodes: &[Node], order: impl Fn(usize) -> Order + Sync) -> Vec<(String, String)> {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let failed = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..TOGETHER.min(nodes.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(node) = nodes.get(at) else { return };
                        if let Err(why) = self.one(node, &order(at))
                            && let Ok(mut failed) = failed.lock()
                        {
                            failed.push((node.name.clone(), why));
                        }
                    }
                });
            }
        });
        let mut failed = failed.into_inner().unwrap_or_default();
        failed.sort();
        failed
    }

    fn one(&self, node: &Node, order: &Order) -> Result<(), String> {
        let until = Instant::now() + self.wait;
        let late = || format!("not done within {} s", self.wait.as_secs());
        let line = serde_json::to_string(order).map_err(|error| error.to_string())? + "\n";
        let (first, rest) = self.words.split_first().ok_or("no command")?;
        let mut command = Command::new(first);
        command.args(rest).args([&node.name, &self.program, "burst", super::ON_NODE]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        loopback::kill_with_parent(&mut command);
        let child =
            command.spawn().map_err(|error| format!("{first} cannot be run: {}", describe(&error)))?;
        let mut child = Running(child);
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take())
        else {
            return Err("no pipes".to_owned());
        };
        let answers = lines_of(stdout);
        let complaints = lines_of(stderr);
        let mut is_sent = false;
        let report = loop {
            match answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(said) if !is_sent => {
                    if said.trim() == HELLO {
                        // One that has ended already says why itself.
                        let _ = stdin.write_all(line.as_bytes());
                        is_sent = true;
                    }
                }
                Ok(said) => match serde_json::from_str::<Report>(&said) {
                    Ok(report) if report.number == order.number => break Some(report),
                    _ => {}
                },
                Err(RecvTimeoutError::Timeout) => return Err(late()),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        match report {
            Some(Report { error: None, .. }) => Ok(()),
            Some(Report { error: Some(why), .. }) => Err(plain(&why)),
            None => {
                // What it complains of comes with its end, which need not come.
                let wait = until.saturating_duration_since(Instant::now()).min(COMPLAINT_WAIT);
                let end = Instant::now() + wait;
                let mut last = None;
                while let Ok(said) = complaints.recv_timeout(end.saturating_duration_since(Instant::now())) {
                    last = Some(said).filter(|said| !said.trim().is_empty()).or(last);
                }
                Err(last.map_or("it said nothing that weft would say".to_owned(), |said| {
                    without_keys(&plain(said.trim()), order)
                }))
            }
        }
    }
}

/// A process that is ended when nobody waits for it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines that come through a pipe, until it ends or too much has come.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_WAITING);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe.take(SAID_BYTES_MAX));
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match reader.read_until(b'\n', &mut bytes) {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            if sender.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Without what would do something to a terminal.
fn plain(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !turns(*c)).collect()
}

/// A shell may repeat what it was given.
fn without_keys(text: &str, order: &Order) -> String {
    match &order.step {
        Step::Serve(serve) if text.contains(&serve.server_key) || text.contains(&serve.client_key) => {
            "it repeats what it is told; name a command with --remote that does not".to_owned()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::order::Serve;
    use super::*;

    fn order(number: u64) -> Order {
        let serve = Serve {
            server: "n".into(),
            nid: "10.0.0.1@tcp".into(),
            mgs: None,
            osts: vec![0],
            server_key: "5e".repeat(32),
            client_key: "c1".repeat(32),
            mem_limit_mb: None,
        };
        let step = Step::Serve(serve);
        Order { fsname: "b".into(), data: "/d".into(), start: Some(1), number, wait_s: 5, step }
    }

    /// What a machine that does `script` is taken for.
    fn asked(script: &str, wait: Duration) -> Result<(), String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("reach");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        let reach = path.to_str().expect("plain");
        let remote = Remote::new(reach, Some(Path::new("/weft")), wait).expect("a command");
        let node = Node { name: "n1".to_owned(), address: None };
        let mut failed = remote.all(&[node], |_| order(7));
        failed.pop().map_or(Ok(()), |(_, why)| Err(why))
    }

    #[test]
    fn only_a_report_of_its_own_is_success() {
        let long = Duration::from_secs(20);
        let hello = format!("echo 'Welcome to n1'; echo '{HELLO}'; read -r order;");
        let says = |line: &str| asked(&format!("{hello} echo '{line}'"), long);
        assert_eq!(says(r#"{"number":7,"error":null}"#), Ok(()));
        assert_eq!(says(r#"{"number":7,"error":"no room"}"#), Err("no room".into()));
        for other in
            [r#"{"number":8,"error":null}"#, r#"{"ok":true}"#, r#"{"number":7,"error":null,"x":1}"#, "done"]
        {
            assert!(says(other).is_err(), "{other}");
        }
        assert_eq!(asked("echo n1 >&2; echo 'ssh: no route' >&2", long), Err("ssh: no route".into()));
        assert!(asked("exec cat", Duration::from_millis(300)).is_err(), "it says what it is told");
        assert!(asked("exit 0", long).is_err());
    }

    #[test]
    fn nothing_that_a_machine_says_harms() {
        let long = Duration::from_secs(20);
        let why = asked(
            &format!(
                r#"echo '{HELLO}'; read -r order; printf '%s\n' '{{"number":7,"error":"\u001b[2Jx\u202ey"}}'"#
            ),
            long,
        );
        assert_eq!(why, Err("[2Jxy".into()));
        let repeats = asked(&format!("echo '{HELLO}'; read -r order; echo \"$order\" >&2"), long);
        assert!(repeats.as_ref().is_err_and(|why| !why.contains("5e5e")), "{repeats:?}");
    }

    #[test]
    fn who_does_not_answer_has_failed() {
        let short = Duration::from_millis(300);
        let begin = Instant::now();
        let late = Err("not done within 0 s".to_owned());
        assert_eq!(asked("sleep 100", short), late);
        assert_eq!(asked(&format!("echo '{HELLO}'; read -r order; sleep 100"), short), late);
        assert!(asked("exec >&- 2>&-; sleep 100", short).is_err(), "it has closed its outputs");
        assert!(begin.elapsed() < Duration::from_secs(20));
        let none = Remote::new("/nothing/here", Some(Path::new("/weft")), Duration::from_secs(5));
        let node = |name: &str| Node { name: name.to_owned(), address: None };
        let failed = none.expect("a command").all(&[node("n2"), node("n1")], |_| order(1));
        assert_eq!(failed.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    }

    #[test]
    fn a_shell_is_given_nothing_to_read() {
        let wait = Duration::from_secs(1);
        assert!(Remote::new("ssh", Some(Path::new("/opt/weft-1.0/bin/weft")), wait).is_ok());
        assert!(Remote::new("ssh", Some(Path::new("/opt/a b/weft")), wait).is_err());
        assert!(Remote::new(" ", Some(Path::new("/weft")), wait).is_err());
    }
}
