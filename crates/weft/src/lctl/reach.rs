//! The targets that an administrator reaches from here, and the way to each.
//!
//! Those that processes of this machine serve, over the network with the servers' key; with `--key` also those of the
//! file systems that are mounted here. What `weft up` serves without listening is asked through its mount, and takes no
//! orders.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::parameters::{Asked, Owner, PARAMETER, Page, Shown};
use fuse::session::MountEntry;
use fuse::states::{STATES, State, States};
use proto::parameters::{ClientPlaces, Glob, TargetPlaces, device_name, device_type};
use proto::wire::messages::{GetState, Operation, ReadParameters};
use proto::{Code, FsName, Nid, TargetId};
use rpc::{AskError, Hub, Keys, Role};
use rt::wait::join_all;

use super::processes::Silence;
use crate::failure::Failure;
use crate::mountpoint::{self, Mount, Survey};
use crate::{ask, keys, servers, serving};

/// A target does not say how it is.
pub const SILENT: &str = "it does not answer";
/// How long a target may take to say how it is.
const STATE_WAIT: Duration = Duration::from_secs(3);
/// Parameters of one target, or of one mount, which has some for each target, after which no more are asked for.
const PARAMETERS_MAX: usize = 1 << 20;

/// A target that is reached from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `w-OST0000`, or `MGS`.
    pub name: String,
    /// File system.
    pub fsname: String,
    /// Kind and index.
    pub target: TargetId,
    way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Network { nids: Vec<Nid>, key: PathBuf },
    Mount(MountEntry),
}

impl Device {
    /// Lustre's name of what serves it.
    pub fn kind(&self) -> &'static str {
        device_type(self.target.kind)
    }

    /// The mount through which it is asked, if it is.
    pub fn mount(&self) -> Option<&MountEntry> {
        match &self.way {
            Way::Mount(mount) => Some(mount),
            Way::Network { .. } => None,
        }
    }

    /// Whether it is asked through a mount, which says nothing of its MGS.
    pub fn is_mounted(&self) -> bool {
        matches!(self.way, Way::Mount(_))
    }
}

/// What a target says; why not if it says nothing.
pub type Told = Result<Vec<Shown>, String>;

/// All that `read` asks the process of a mount for.
pub(super) fn told_at_mount(
    mount: &MountEntry,
    owner: Owner,
    read: &ReadParameters,
) -> io::Result<Vec<Shown>> {
    all_pages(|skip| {
        let asked = Asked { owner, read: ReadParameters { skip, ..read.clone() } };
        ask::get(mount, &asked.attribute())
    })
}

/// Sets a parameter of a mount.
pub fn set_at_mount(mount: &MountEntry, name: &str, value: &str) -> Result<(), Silence> {
    ask::set(mount, &format!("{PARAMETER}{name}"), value.as_bytes()).map_err(Silence::of_mount)
}

/// All pages of an answer.
fn all_pages<E>(mut page: impl FnMut(u32) -> Result<Page, E>) -> Result<Vec<Shown>, E> {
    let mut told = Vec::new();
    loop {
        let Page { parameters, more } = page(u32::try_from(told.len()).unwrap_or(u32::MAX))?;
        let is_last = !more || parameters.is_empty() || told.len() >= PARAMETERS_MAX;
        told.extend(parameters);
        if is_last {
            return Ok(told);
        }
    }
}

/// Why a target does not say what it has: it does not, or nobody could ask it.
enum Untold {
    Silent(String),
    Failed(Failure),
}

/// Everybody who is reached.
pub struct Reach {
    /// The targets, by file system, kind and index.
    pub devices: Vec<Device>,
    /// The mounts that answer.
    pub mounts: Vec<Mount>,
    /// Where those are that do not.
    pub left_out: Vec<PathBuf>,
    /// Servers that did not answer, by their addresses, and why. None is asked again before [`Reach::ask_silent_again`].
    pub(super) silent: BTreeMap<Vec<Nid>, String>,
    runtime: Option<(rt::os::Node, rt::Rt)>,
    hubs: BTreeMap<(String, PathBuf), Hub>,
}

impl Reach {
    /// Looks around. `key`: the servers' key, to reach all targets of the file systems that are mounted here.
    pub fn new(key: Option<&Path>) -> Result<Reach, Failure> {
        let (devices, mounts, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let (silent, hubs) = (BTreeMap::new(), BTreeMap::new());
        let mut reach = Reach { devices, mounts, left_out, silent, runtime: None, hubs };
        reach.look_again(key)?;
        Ok(reach)
    }

    /// Looks around once more: servers and mounts come and go, and one that did not answer may answer now.
    pub fn look_again(&mut self, key: Option<&Path>) -> Result<(), Failure> {
        let mut devices = Vec::new();
        for server in servers::all()? {
            let nids: Vec<Nid> = server.nids.iter().filter_map(|nid| nid.parse().ok()).collect();
            for served in &server.targets {
                let elsewhere = served.elsewhere.iter().filter_map(|nid| nid.parse().ok());
                let nids = nids.iter().cloned().chain(elsewhere).collect();
                let way = Way::Network { nids, key: server.key.clone() };
                devices.push(device(&server.fsname, served.id(), way));
            }
        }
        let Survey { mounts, left_out } = mountpoint::survey()?;
        for Mount { entry, status } in &mounts {
            let Ok(config) = ask::configuration(entry) else { continue };
            let serves = &status.serves;
            if serves.iter().any(|name| name == "MGS") {
                devices.push(device(&config.fsname, TargetId::MGS, Way::Mount(entry.clone())));
            }
            for target in &config.targets {
                let new = device(&config.fsname, target.id(), Way::Mount(entry.clone()));
                let nids: Vec<Nid> = target.nids.iter().filter_map(|nid| nid.parse().ok()).collect();
                match key {
                    _ if serves.contains(&new.name) => devices.push(new),
                    Some(key) => {
                        devices.push(Device { way: Way::Network { nids, key: key.to_owned() }, ..new })
                    }
                    None => {}
                }
            }
        }
        // A target that is known twice is reached over the network.
        devices.sort_by_key(|device| {
            (device.fsname.clone(), device.target, matches!(device.way, Way::Mount(_)))
        });
        devices.dedup_by(|later, first| (&later.fsname, later.target) == (&first.fsname, first.target));
        (self.devices, self.mounts, self.left_out) = (devices, mounts, left_out);
        self.ask_silent_again();
        Ok(())
    }

    /// Servers that did not answer are asked again from now on.
    pub fn ask_silent_again(&mut self) {
        self.silent.clear();
    }

    /// Gives a target an order, or asks it something. Of a server that does not answer the user is told, once; then it is not
    /// asked any more. What takes longer than an answer is asked of those only that answer.
    pub fn ask<O: Operation>(
        &mut self,
        device: &Device,
        order: O,
        wait: Duration,
    ) -> Result<Result<O::Reply, AskError>, Failure> {
        if wait > STATE_WAIT
            && let Err(error @ AskError::Unanswered(_)) = self.ask_once(device, GetState {}, STATE_WAIT)?
        {
            return Ok(Err(error));
        }
        self.ask_once(device, order, wait)
    }

    fn ask_once<O: Operation>(
        &mut self,
        device: &Device,
        order: O,
        wait: Duration,
    ) -> Result<Result<O::Reply, AskError>, Failure> {
        let Way::Network { nids, key } = &device.way else {
            return Ok(Err(AskError::Refused(Code::NotSupported)));
        };
        if let Some(why) = self.silent.get(nids) {
            return Ok(Err(AskError::Unanswered(why.clone())));
        }
        let hub = self.hub(&device.fsname, key)?;
        let answer = self.runtime()?.0.block_on(hub.ask(device.target, Role::Server, nids, order, wait));
        if let Err(AskError::Unanswered(why)) = &answer {
            err!("{}: {SILENT} ({why})", device.name);
            self.silent.insert(nids.clone(), why.clone());
        }
        Ok(answer)
    }

    /// How each of `devices` is, in their order; why not for one that does not answer.
    pub fn states(&mut self, devices: &[Device]) -> Result<Vec<Result<State, String>>, Failure> {
        let answers = self.ask_all(devices, &GetState {})?;
        let answers = answers.iter().map(|answer| answer.as_ref().map(State::from).map_err(silence));
        let mut states: Vec<_> = answers.collect();
        let mut mounts = BTreeMap::new();
        for (device, state) in devices.iter().zip(&mut states) {
            let Way::Mount(mount) = &device.way else { continue };
            let told = mounts
                .entry(mount.clone())
                .or_insert_with(|| ask::get::<States>(mount, STATES).ok().map(|told| told.targets));
            let target = told.iter().flatten().find(|target| target.id() == device.target);
            *state = target.and_then(|target| target.state.clone()).ok_or_else(|| SILENT.to_owned());
        }
        Ok(states)
    }

    /// What the mounts have that `read` asks for, in their order. One that does not say has none.
    pub fn parameters_of_mounts(&self, read: &ReadParameters) -> Vec<(MountEntry, Vec<Shown>)> {
        if !fits(read, ClientPlaces::may_fit) {
            return Vec::new();
        }
        let entries = self.mounts.iter().map(|mount| mount.entry.clone());
        entries
            .filter_map(|entry| told_at_mount(&entry, Owner::Mount, read).ok().map(|told| (entry, told)))
            .collect()
    }

    /// What each target has that `read` asks for, in the order of the targets; an error for one that does not say.
    pub fn parameters_of_targets(&mut self, read: &ReadParameters) -> Result<Vec<(Device, Told)>, Failure> {
        let may_fit = |device: &&Device| {
            let places = TargetPlaces::new(&device.fsname, device.target);
            fits(read, |glob| places.may_fit(glob))
        };
        let devices: Vec<Device> = self.devices.iter().filter(may_fit).cloned().collect();
        let first = self.ask_all(&devices, read)?;
        let mut told = Vec::new();
        for (device, first) in devices.into_iter().zip(first) {
            let all = match &device.way {
                Way::Mount(mount) => {
                    told_at_mount(mount, Owner::Target(device.target), read).map_err(|error| {
                        match error.kind() {
                            io::ErrorKind::PermissionDenied => {
                                Untold::Silent(crate::control::describe(&error))
                            }
                            _ => Untold::Silent(SILENT.to_owned()),
                        }
                    })
                }
                Way::Network { .. } => {
                    let mut first = Some(first);
                    all_pages(|skip| {
                        let answer = match first.take() {
                            Some(first) => first,
                            None => {
                                let read = ReadParameters { skip, ..read.clone() };
                                self.ask_once(&device, read, STATE_WAIT).map_err(Untold::Failed)?
                            }
                        };
                        answer.map(Page::from).map_err(|error| Untold::Silent(silence(&error)))
                    })
                }
            };
            told.push(match all {
                Ok(all) => (device, Ok(all)),
                Err(Untold::Silent(why)) => (device, Err(why)),
                Err(Untold::Failed(failure)) => return Err(failure),
            });
        }
        Ok(told)
    }

    /// Asks all of `devices` the same at once. Those that are reached through a mount only refuse.
    fn ask_all<O: Operation + Clone>(
        &mut self,
        devices: &[Device],
        order: &O,
    ) -> Result<Vec<Result<O::Reply, AskError>>, Failure> {
        let (mut answers, mut asked) = (Vec::new(), Vec::new());
        for (index, device) in devices.iter().enumerate() {
            answers.push(Err(AskError::Refused(Code::NotSupported)));
            let Way::Network { nids, key } = &device.way else { continue };
            if let Some(why) = self.silent.get(nids) {
                answers[index] = Err(AskError::Unanswered(why.clone()));
                continue;
            }
            let hub = self.hub(&device.fsname, key)?;
            let order = order.clone();
            asked.push(async move {
                (index, hub.ask(device.target, Role::Server, nids, order, STATE_WAIT).await)
            });
        }
        if !asked.is_empty() {
            for (index, answer) in self.runtime()?.0.block_on(join_all(asked)) {
                if let (Err(AskError::Unanswered(why)), Way::Network { nids, .. }) =
                    (&answer, &devices[index].way)
                {
                    self.silent.insert(nids.clone(), why.clone());
                }
                answers[index] = answer;
            }
        }
        Ok(answers)
    }

    /// The file system that is mounted at `entry`.
    pub(super) fn fsname_of(&self, entry: &MountEntry) -> Option<&str> {
        let mount = self.mounts.iter().find(|mount| mount.entry == *entry)?;
        Some(&mount.status.fsname)
    }

    /// A random number.
    pub fn random(&mut self) -> Result<u64, Failure> {
        Ok(self.runtime()?.1.random_u64())
    }

    pub(super) fn runtime(&mut self) -> Result<&(rt::os::Node, rt::Rt), Failure> {
        if self.runtime.is_none() {
            self.runtime = Some(serving::start_runtime()?);
        }
        self.runtime.as_ref().ok_or_else(|| Failure::new("the runtime does not start"))
    }

    pub(super) fn hub(&mut self, fsname: &str, key: &Path) -> Result<Hub, Failure> {
        let place = (fsname.to_owned(), key.to_owned());
        if let Some(hub) = self.hubs.get(&place) {
            return Ok(hub.clone());
        }
        let name: FsName = fsname.parse().map_err(|error| Failure::new(format!("{error}")))?;
        let keys = Keys { server: Some(keys::read(key)?), client: None };
        let hub = Hub::new(self.runtime()?.1.clone(), name, keys);
        self.hubs.insert(place, hub.clone());
        Ok(hub)
    }
}

/// Whether somebody may have what `read` asks for, by one of its patterns.
pub(super) fn fits(read: &ReadParameters, may_fit: impl Fn(&Glob) -> bool) -> bool {
    read.patterns.iter().any(|pattern| may_fit(&Glob::new(pattern)))
}

/// Why a target does not say how it is.
fn silence(error: &AskError) -> String {
    match error {
        AskError::Refused(Code::NotHere) => {
            "its server runs, but does not serve it now: its directory does not open, or it stands by; the server's log says why"
                .to_owned()
        }
        error => format!("{SILENT} ({error})"),
    }
}

fn device(fsname: &str, target: TargetId, way: Way) -> Device {
    Device { name: device_name(fsname, target), fsname: fsname.to_owned(), target, way }
}
