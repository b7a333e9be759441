//! Steps on machines, many at a time: `ssh NODE weft burst on-node`, or another command that brings one to a machine.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rt::os::loopback;

use super::nodes::Node;
use super::order::{Order, Report};
use crate::control::describe;
use crate::failure::Failure;

/// How many machines work at the same time.
const TOGETHER: usize = 32;
/// Most bytes of what a machine says.
const SAID_BYTES_MAX: u64 = 64 << 10;

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
        let order = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        let (first, rest) = self.words.split_first().ok_or("no command")?;
        let mut command = Command::new(first);
        command.args(rest).args([&node.name, &self.program, "burst", super::ON_NODE]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        loopback::kill_with_parent(&mut command);
        let mut child =
            command.spawn().map_err(|error| format!("{first} cannot be run: {}", describe(&error)))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("no pipes".to_owned());
        };
        let (sender, receiver) = mpsc::channel();
        let also = sender.clone();
        let told = std::thread::spawn(move || {
            // One that has ended already says why itself.
            let _ = stdin.write_all(&order);
            drop(stdin);
            let _ = sender.send((true, said(stdout)));
        });
        std::thread::spawn(move || drop(also.send((false, said(stderr)))));
        let (mut answer, mut complaint) = (None, String::new());
        let until = std::time::Instant::now() + self.wait;
        while answer.is_none() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match receiver.recv_timeout(left) {
                Ok((true, text)) => answer = Some(text),
                Ok((false, text)) => complaint = text,
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("not done within {} s", self.wait.as_secs()));
                }
            }
        }
        drop(told);
        let status = child.wait().map_err(|error| describe(&error))?;
        if complaint.is_empty() {
            // It comes with the end of the process, a moment before or after the answer.
            complaint =
                receiver.recv_timeout(Duration::from_secs(1)).map(|(_, text)| text).unwrap_or_default();
        }
        verdict(&answer.unwrap_or_default(), &complaint, status.success())
    }
}

/// What a machine's answer means: its last line is the report, what comes before it is a shell's.
fn verdict(answer: &str, complaint: &str, success: bool) -> Result<(), String> {
    let report = answer.lines().rev().find_map(|line| serde_json::from_str::<Report>(line).ok());
    match report {
        Some(Report { error: None }) if success => Ok(()),
        Some(Report { error: Some(why) }) => Err(why),
        _ => {
            let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
            Err(last.unwrap_or("it said nothing").trim().to_owned())
        }
    }
}

fn said(pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What is cut is no report, and says so.
    let _: io::Result<usize> = pipe.take(SAID_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_report_is_success() {
        assert_eq!(verdict("Welcome to n1\n{\"error\":null}\n", "", true), Ok(()));
        assert_eq!(verdict("{\"error\":\"no room\"}", "", false), Err("no room".into()));
        assert_eq!(verdict("", "n1\nssh: no route\n\n", false), Err("ssh: no route".into()));
        assert_eq!(verdict("", "", true), Err("it said nothing".into()));
        assert!(verdict("{\"error\":null}", "", false).is_err());
    }

    #[test]
    fn a_shell_is_given_nothing_to_read() {
        let wait = Duration::from_secs(1);
        assert!(Remote::new("ssh", Some(Path::new("/opt/weft-1.0/bin/weft")), wait).is_ok());
        assert!(Remote::new("ssh", Some(Path::new("/opt/a b/weft")), wait).is_err());
        assert!(Remote::new(" ", Some(Path::new("/weft")), wait).is_err());
    }

    #[test]
    fn who_does_not_answer_has_failed() {
        let node = |name: &str| Node { name: name.to_owned(), address: None };
        let step = || super::super::order::Step::Remove;
        let order = |_| Order { fsname: "b".into(), data: "/d".into(), start: None, step: step() };
        // `sleep 5 ...` complains about its words; `sh -c 'sleep 5'` does not.
        let slow = Remote::new("sh -c sleep$IFS\"5\"", Some(Path::new("/weft")), Duration::from_millis(50));
        let failed = slow.expect("a command").all(&[node("n1")], order);
        assert_eq!(failed, [("n1".to_owned(), "not done within 0 s".to_owned())]);
        let none = Remote::new("/nothing/here", Some(Path::new("/weft")), Duration::from_secs(5));
        let failed = none.expect("a command").all(&[node("n2"), node("n1")], order);
        assert_eq!(failed.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    }
}
