//! The processes of this machine that serve targets or mounts, and what each has itself: parameters, and its log.

use std::path::PathBuf;
use std::time::Duration;

use fuse::control;
use fuse::parameters::{Owner, Shown};
use fuse::session::MountEntry;
use proto::parameters::{Glob, PROCESS_PLACES};
use proto::wire::messages::{Parameter, ParameterPage, ReadParameters, SetParameters};
use proto::{Code, Nid, TargetId};
use rpc::process::PREFIX;
use rpc::{AskError, Role};

use super::reach::{self, Reach};
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
            Way::Network { .. } => {
                let read = ReadParameters { patterns: vec![name.to_owned()], skip: 0, names_only: false };
                Ok(self.ask_process(process, &read)?.and_then(|told| {
                    let value = told.parameters.into_iter().next().map(|one| one.value);
                    value.ok_or_else(|| Silence::of_server(AskError::Refused(Code::NotFound)))
                }))
            }
        }
    }

    /// The first page of what a process has that `read` asks for, over the network.
    fn ask_process(
        &mut self,
        process: &Process,
        read: &ReadParameters,
    ) -> Result<Result<ParameterPage, Silence>, Failure> {
        let Way::Network { fsname, nids, key } = &process.way else {
            return Ok(Err(Silence::of_server(AskError::Refused(Code::NotSupported))));
        };
        if let Some(why) = self.silent.get(nids) {
            return Ok(Err(Silence::of_server(AskError::Unanswered(why.clone()))));
        }
        let patterns = read.patterns.iter().map(|pattern| format!("{PREFIX}{pattern}")).collect();
        let asked = ReadParameters { patterns, ..read.clone() };
        let hub = self.hub(fsname, key)?;
        // Whatever it serves, or does not serve at the moment: it answers itself.
        let asking = hub.ask(TargetId::MGS, Role::Server, nids, asked, ANSWER_WAIT);
        let answer = self.runtime()?.0.block_on(asking);
        if let Err(AskError::Unanswered(why)) = &answer {
            self.silent.insert(nids.clone(), why.clone());
        }
        Ok(answer.map_err(Silence::of_server))
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

    /// What processes have that `read` asks for. One that does not say has none.
    pub fn parameters_of_processes(&mut self, read: &ReadParameters) -> Result<Vec<Shown>, Failure> {
        let may_fit = |glob: &Glob| PROCESS_PLACES.iter().any(|place| glob.may_begin_with(place));
        if !reach::fits(read, may_fit) {
            return Ok(Vec::new());
        }
        let mut told = Vec::new();
        for process in self.processes()? {
            let of_one = match &process.way {
                Way::Mount(mount) => reach::told_at_mount(mount, Owner::Process, read).ok(),
                // They fit into one page: a process has few.
                Way::Network { .. } => {
                    let page = self.ask_process(&process, read)?.ok();
                    page.map(|page| page.parameters.into_iter().map(Shown::from).collect())
                }
            };
            told.extend(of_one.into_iter().flatten().map(|shown| (process.pid, shown)));
        }
        Ok(in_one(told))
    }
}

/// One parameter for each name: with its value if that is the same everywhere, else with a line for each process.
fn in_one(told: Vec<(u32, Shown)>) -> Vec<Shown> {
    let mut all: Vec<(Shown, Vec<(u32, String)>)> = Vec::new();
    for (pid, shown) in told {
        let value = (pid, shown.value.clone());
        match all.iter_mut().find(|(known, _)| known.name == shown.name) {
            Some((_, values)) => values.push(value),
            None => all.push((shown, vec![value])),
        }
    }
    let one = |(shown, values): (Shown, Vec<(u32, String)>)| {
        if values.iter().all(|(_, value)| *value == shown.value) {
            return shown;
        }
        let lines: Vec<String> = values.iter().map(|(pid, value)| format!("{pid}: {value}")).collect();
        Shown { value: lines.join("\n"), ..shown }
    };
    all.into_iter().map(one).collect()
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
    pub(super) fn of_mount(error: std::io::Error) -> Silence {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_say_the_same_or_each_its_own() {
        let shown = |name: &str, value: &str| Shown {
            name: name.into(),
            value: value.into(),
            readable: true,
            settable: true,
            kind: "text".into(),
            unit: String::new(),
            takes: String::new(),
        };
        let told = vec![
            (7, shown("debug", "info")),
            (7, shown("debug_mb", "5")),
            (8, shown("debug", "trace")),
            (8, shown("debug_mb", "5")),
        ];
        assert_eq!(in_one(told), [shown("debug", "7: info\n8: trace"), shown("debug_mb", "5")]);
    }
}
