//! The processes of this machine that serve targets or mounts, and what each has itself: its log, and what it logs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use fuse::control;
use fuse::session::MountEntry;
use proto::wire::messages::{Parameter, ReadParameters, SetParameters};
use proto::{Code, Nid, TargetId};
use rpc::process::PREFIX;
use rpc::{AskError, Role};

use super::reach::Reach;
use crate::failure::Failure;
use crate::mountpoint::Mount;
use crate::{ask, servers};

/// How long a process may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// A process that serves targets or a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Over the network, with the servers' key.
    Network { fsname: String, nids: Vec<Nid>, key: PathBuf },
    /// By the control of its mount.
    Mount(MountEntry),
}

/// Why a process does not do what it is asked: a sentence, and an error number.
pub struct Silence {
    /// The sentence.
    pub why: String,
    /// The number.
    pub status: u8,
}

impl Reach {
    /// Those of this machine that this user reaches, by their numbers.
    pub fn processes(&self) -> Result<Vec<Process>, Failure> {
        let mut processes = Vec::new();
        for Mount { entry, status } in &self.mounts {
            processes.push(Process { pid: status.pid, way: Way::Mount(entry.clone()) });
        }
        for server in servers::all()? {
            let nids = server.nids.iter().filter_map(|nid| nid.parse().ok()).collect();
            let way = Way::Network { fsname: server.fsname, nids, key: server.key };
            processes.push(Process { pid: server.pid, way });
        }
        // A process that has both is asked through its mount, which needs no key.
        processes.sort_by_key(|process| process.pid);
        processes.dedup_by_key(|process| process.pid);
        Ok(processes)
    }

    /// A value of a process.
    pub fn process_value(
        &mut self,
        process: &Process,
        name: &str,
    ) -> Result<Result<String, Silence>, Failure> {
        match &process.way {
            Way::Mount(mount) => {
                let attribute = format!("{}{name}", control::PROCESS);
                Ok(ask::text(mount, &attribute).map_err(Silence::of_mount))
            }
            Way::Network { fsname, nids, key } => {
                let asked =
                    ReadParameters { patterns: vec![format!("{PREFIX}{name}")], skip: 0, names_only: false };
                let hub = self.hub(fsname, key)?;
                // Whatever it serves, or does not serve at the moment: it answers itself.
                let asking = hub.ask(TargetId::MGS, Role::Server, nids, asked, ANSWER_WAIT);
                let answer = self.runtime()?.0.block_on(asking);
                Ok(answer.map_err(Silence::of_server).and_then(|told| {
                    let value = told.parameters.into_iter().next().map(|one| one.value);
                    value.ok_or_else(|| Silence::of_server(AskError::Refused(Code::NotFound)))
                }))
            }
        }
    }

    /// Sets a value of a process.
    pub fn set_process_value(
        &mut self,
        process: &Process,
        name: &str,
        value: &str,
    ) -> Result<Result<(), Silence>, Failure> {
        match &process.way {
            Way::Mount(mount) => {
                let attribute = format!("{}{name}", control::PROCESS);
                Ok(ask::set(mount, &attribute, value.as_bytes()).map_err(Silence::of_mount))
            }
            Way::Network { fsname, nids, key } => {
                let parameter = Parameter { name: format!("{PREFIX}{name}"), value: value.to_owned() };
                let order = SetParameters { parameters: vec![parameter] };
                let hub = self.hub(fsname, key)?;
                let asking = hub.ask(TargetId::MGS, Role::Server, nids, order, ANSWER_WAIT);
                Ok(self.runtime()?.0.block_on(asking).map(|_| ()).map_err(Silence::of_server))
            }
        }
    }

    /// A value that all processes have: one if it is the same everywhere, else a line for each.
    pub fn value_of_all(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let mut lines = Vec::new();
        let mut values = BTreeSet::new();
        for process in self.processes()? {
            if let Ok(value) = self.process_value(&process, name)? {
                lines.push(format!("{}: {value}", process.pid));
                values.insert(value);
            }
        }
        Ok(match values.len() {
            0 | 1 => values.pop_first(),
            _ => Some(lines.join("\n")),
        })
    }
}

impl Reach {
    /// Sets a value of all processes; the first one that refuses ends it.
    pub fn set_value_of_all(&mut self, name: &str, value: &str) -> Result<Result<(), Silence>, Failure> {
        for process in self.processes()? {
            if let Err(silence) = self.set_process_value(&process, name, value)? {
                return Ok(Err(Silence {
                    why: format!("process {}: {}", process.pid, silence.why),
                    ..silence
                }));
            }
        }
        Ok(Ok(()))
    }
}

impl Silence {
    fn of_mount(error: std::io::Error) -> Silence {
        let status = error.raw_os_error().and_then(|number| u8::try_from(number).ok());
        Silence { why: crate::control::describe(&error), status: status.unwrap_or(libc::EIO as u8) }
    }

    fn of_server(error: AskError) -> Silence {
        let status = match &error {
            AskError::Refused(Code::Forbidden) => libc::EACCES,
            AskError::Refused(Code::Invalid) => libc::EINVAL,
            AskError::Refused(Code::NotFound) => libc::ENOENT,
            AskError::Refused(Code::TooBig) => libc::E2BIG,
            _ => libc::EIO,
        };
        let why = match error {
            AskError::Refused(Code::Forbidden) => {
                "Permission denied; this needs the servers' key, as root on the server's host".to_owned()
            }
            AskError::Refused(code) => code.to_string(),
            AskError::Unanswered(why) => format!("it does not answer ({why})"),
        };
        Silence { why, status: status as u8 }
    }
}
