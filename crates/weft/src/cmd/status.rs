//! `weft status`: what is mounted here and whether all of it answers.

use std::io;
use std::path::{Path, PathBuf};

use fuse::control::{Configuration, Kind, SPACE, SpaceValues, Spaces, Status};
use fuse::imports::{IMPORTS, Imports, Slow};
use fuse::session::MountEntry;
use fuse::states::{Missing, Place, Recovery, STATES, Stage, State as TargetState, States};
use proto::wire::messages::Space;
use proto::{TargetId, TargetKind};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::instances::{self, Instance};
use crate::lctl::reach::{Device, Reach};
use crate::size::cooked;
use crate::table;
use crate::{ask, control, mountpoint, schedulers, servers};

/// Show file systems that are mounted here: targets, servers, space, and whether all is well. Exit status 0: all is
/// well; 1: something is not, or nothing is mounted.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this one
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One mount.
#[derive(Debug, Serialize)]
pub struct Report {
    mountpoint: PathBuf,
    verdict: String,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    targets: Vec<TargetReport>,
    /// OSTs that are slower than the others, as this mount finds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slow: Vec<Slow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TargetReport {
    name: String,
    #[serde(skip)]
    kind: Kind,
    server: String,
    nids: Vec<String>,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceValues>,
    /// What the target says of itself, which it does while it recovers, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<TargetState>,
    /// Why its process, which should serve it, does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_served: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let reports = match &arguments.mountpoint {
        Some(path) => vec![report_at(&mountpoint::absolute(path)?)?],
        None => reports()?,
    };
    let stopped = if arguments.mountpoint.is_some() { Vec::new() } else { stopped()? };
    if arguments.json {
        let all: Vec<&Report> = reports.iter().chain(&stopped).collect();
        let text = serde_json::to_string_pretty(&all)
            .map_err(|error| Failure::new(format!("the report is no JSON: {error}")))?;
        out!("{text}");
    } else if reports.is_empty() {
        out!("No weft file system is mounted here; \"weft up MOUNTPOINT\" starts one.");
    }
    if !arguments.json {
        for report in reports.iter().chain(&stopped) {
            out!("{}", render(report));
        }
    }
    let all_well = !reports.is_empty() && reports.iter().all(|report| report.healthy);
    // On a host of servers only there is something to say all the same.
    if reports.is_empty() && !arguments.json {
        for line in served_here(&mut Reach::new(None)?)? {
            out!("{line}");
        }
    }
    Ok(u8::from(!all_well))
}

/// What is mounted here; others' mounts are others' business.
pub fn reports() -> Result<Vec<Report>, Failure> {
    let asked = mountpoint::all_asked(mountpoint::all()?, report);
    Ok(asked.into_iter().filter_map(|(_, report)| report).collect())
}

/// A line for each target that processes of this host serve.
pub fn served_here(reach: &mut Reach) -> Result<Vec<String>, Failure> {
    let devices = reach.devices.clone();
    let states = reach.states(&devices)?;
    let line = |(device, state): (&Device, &Result<TargetState, String>)| match state {
        Err(why) => format!("{}: {why}", device.name),
        Ok(state) if !state.problems.is_empty() => {
            format!("{}: FAILED: {}", device.name, state.problems.join(", "))
        }
        Ok(state) if matches!(state.recovery.stage, Stage::Waiting | Stage::Recovering) => {
            progress(&device.name, state)
        }
        Ok(state) => format!("{}: served here, {} sessions", device.name, state.sessions),
    };
    let missing = servers::all()?.into_iter().flat_map(|server| server.missing);
    let is_unsuited = |state: &Result<TargetState, String>| state.as_ref().is_ok_and(|state| state.scheduler);
    let unsuited = devices.iter().zip(&states).filter(|(_, state)| is_unsuited(state));
    let unsuited: Vec<&str> = unsuited.map(|(device, _)| device.name.as_str()).collect();
    let lines = devices.iter().zip(&states).map(line).chain(missing);
    Ok(lines.chain(schedulers::warning(&unsuited)).collect())
}

/// A report without targets.
fn bad(path: &Path, verdict: impl Into<String>) -> Report {
    let (mountpoint, verdict) = (path.to_owned(), verdict.into());
    Report { mountpoint, verdict, healthy: false, status: None, targets: Vec::new(), slow: Vec::new() }
}

/// What `weft up` served here and nobody serves now.
fn stopped() -> Result<Vec<Report>, Failure> {
    let mounted = mountpoint::all()?;
    let mut stopped = instances::stopped()?;
    stopped.retain(|instance| mounted.iter().all(|entry| entry.path != instance.mountpoint));
    Ok(stopped.iter().map(|instance| bad(&instance.mountpoint, is_stopped(instance))).collect())
}

fn is_stopped(Instance { mountpoint, fsname, data, .. }: &Instance) -> String {
    let (at, data) = (mountpoint.display(), data.display());
    format!("STOPPED: file system {fsname}, its data in {data}; \"weft up {at}\" brings it back")
}

/// What is to be said of a place that the user named.
fn report_at(path: &Path) -> Result<Report, Failure> {
    match mountpoint::entry(path)? {
        None => match instances::find(path)? {
            Some(instance) => Ok(bad(path, is_stopped(&instance))),
            None => Ok(bad(path, "nothing is mounted here")),
        },
        Some(entry) if !entry.is_weft() => Ok(bad(path, format!("{} is mounted here, not weft", entry.kind))),
        Some(entry) => report(&entry).ok_or_else(|| {
            Failure::new(format!("the mount at {} is another user's; ask that user", path.display()))
        }),
    }
}

/// What is to be said of a mount; nothing of another user's.
fn report(mount: &MountEntry) -> Option<Report> {
    let name = mount.path.display();
    match mountpoint::status(mount).and_then(|status| answered(mount, status)) {
        Ok(report) => Some(report),
        Err(error) if mountpoint::is_denied(&error) => None,
        Err(error) if mountpoint::is_dead(&error) => {
            let again = match instances::find(&mount.path) {
                Ok(Some(_)) => format!("weft up {name}"),
                _ => format!("weft mount {} {name}", mount.source),
            };
            let verdict = format!("DEAD: the process is gone; \"{again}\" or \"umount -l {name}\"");
            Some(bad(&mount.path, verdict))
        }
        Err(error) if ask::is_silent(&error) => {
            let why = mountpoint::silent(&mount.path).message;
            Some(bad(&mount.path, format!("SILENT: {why}")))
        }
        Err(error) => {
            Some(bad(&mount.path, format!("SILENT: it does not answer: {}", control::describe(&error))))
        }
    }
}

fn answered(mount: &MountEntry, status: Status) -> io::Result<Report> {
    let config = ask::configuration(mount)?;
    let spaces: Spaces = ask::get(mount, SPACE)?;
    let states: States = ask::get(mount, STATES)?;
    let slow = ask::get::<Imports>(mount, IMPORTS)?.slow;
    let targets = target_reports(&config, &spaces, &states, &status);
    let (healthy, verdict) = judge(&targets);
    Ok(Report { mountpoint: mount.path.clone(), verdict, healthy, status: Some(status), targets, slow })
}

fn target_reports(
    config: &Configuration,
    spaces: &Spaces,
    states: &States,
    status: &Status,
) -> Vec<TargetReport> {
    let mut targets: Vec<_> = config.targets.iter().filter(|target| target.kind != Kind::Mgs).collect();
    targets.sort_by_key(|target| target.id());
    let reports = targets.into_iter().map(|target| {
        let space =
            spaces.targets.iter().find(|space| space.id() == target.id()).and_then(|space| space.space);
        let state = states.targets.iter().find(|state| state.id() == target.id());
        let name = format!("{}-{}", config.fsname, target.id());
        TargetReport {
            not_served: why_not_served(status, &name),
            name,
            kind: target.kind,
            server: target.server.clone(),
            nids: target.nids.clone(),
            active: space.is_some(),
            space,
            state: state.and_then(|state| state.state.clone()),
        }
    });
    let mut reports: Vec<TargetReport> = reports.collect();
    reports.extend(unregistered(&config.fsname, &reports, status));
    reports
}

fn why_not_served(status: &Status, name: &str) -> Option<String> {
    status.not_served.iter().find(|one| one.target == name).map(|one| one.why.clone())
}

/// Targets that the settings of the process promise and that the MGS does not know: it never heard of those that were not served at their
/// first start.
fn unregistered(fsname: &str, known: &[TargetReport], status: &Status) -> Vec<TargetReport> {
    let promised = status.serves.iter().chain(status.not_served.iter().map(|one| &one.target));
    let mut targets: Vec<TargetId> = promised
        .filter_map(|name| name.strip_prefix(fsname)?.strip_prefix('-')?.parse().ok())
        .filter(|target: &TargetId| target.kind != TargetKind::Mgs)
        .collect();
    targets.sort();
    let report = |target: TargetId| {
        let name = format!("{fsname}-{target}");
        TargetReport {
            not_served: why_not_served(status, &name),
            name,
            kind: target.kind.into(),
            server: String::new(),
            nids: Vec::new(),
            active: false,
            space: None,
            state: None,
        }
    };
    let reports = targets.into_iter().map(report);
    reports.filter(|report| known.iter().all(|known| known.name != report.name)).collect()
}

/// One line for a person, and whether a script need not care.
fn judge(targets: &[TargetReport]) -> (bool, String) {
    let count = |kind: Kind| targets.iter().filter(|target| target.kind == kind).count();
    let ill: Vec<String> = targets.iter().filter_map(TargetReport::problem).collect();
    if !ill.is_empty() {
        return (false, format!("FAILED: {}", ill.join("; ")));
    }
    let recovering: Vec<&str> = targets
        .iter()
        .filter(|target| target.recovering().is_some())
        .map(|target| target.name.as_str())
        .collect();
    let silent: Vec<&str> = targets
        .iter()
        .filter(|target| !target.active && target.recovering().is_none())
        .map(|target| target.name.as_str())
        .collect();
    if !recovering.is_empty() && silent.is_empty() {
        return (false, format!("RECOVERING: {}; files there wait", recovering.join(", ")));
    }
    if !silent.is_empty() {
        return (false, format!("DEGRADED: no answer from {}; files there wait", silent.join(", ")));
    }
    if count(Kind::Mdt) == 0 || count(Kind::Ost) == 0 {
        return (false, "INCOMPLETE: a file system needs an MDT and an OST".into());
    }
    let full: Vec<&str> =
        targets.iter().filter(|target| target.is_full()).map(|target| target.name.as_str()).collect();
    if !full.is_empty() {
        let full = full.join(", ");
        return (
            false,
            format!("FULL: {full}; only what frees space goes on: remove files, or enlarge the disk"),
        );
    }
    let (mdts, osts) = (count(Kind::Mdt), count(Kind::Ost));
    let mdts = if mdts == 1 { "1 MDT".into() } else { format!("{mdts} MDTs") };
    let osts = if osts == 1 { "1 OST".into() } else { format!("{osts} OSTs") };
    (true, format!("HEALTHY: {mdts} and {osts} answer"))
}

impl TargetReport {
    /// The recovery that the target is in.
    fn recovering(&self) -> Option<&Recovery> {
        let recovery = self.state.as_ref().map(|state| &state.recovery);
        recovery.filter(|recovery| matches!(recovery.stage, Stage::Waiting | Stage::Recovering))
    }

    /// Whether an operator has new files keep away from it.
    fn is_degraded(&self) -> bool {
        self.space.is_some_and(|space| space.state & (Space::DEGRADED | Space::NO_CREATE) != 0)
    }

    /// Whether it takes nothing that needs space.
    fn is_full(&self) -> bool {
        self.space.is_some_and(|space| space.state & Space::FULL != 0)
    }

    /// What is wrong with it, as it says itself.
    fn problem(&self) -> Option<String> {
        if let Some(why) = &self.not_served {
            return Some(format!("{} is not served: {why}", self.name));
        }
        let problems = &self.state.as_ref()?.problems;
        (!problems.is_empty()).then(|| format!("{}: {}", self.name, problems.join(", ")))
    }
}

/// A line about a recovery: how far it is, for whom it waits, and for how long.
fn progress(name: &str, state: &TargetState) -> String {
    let Recovery { connected, expected, completed, evicted, replayed, queued, remaining_s, .. } =
        &state.recovery;
    let given_up = if *evicted == 0 { String::new() } else { format!(", {evicted} given up") };
    let back = format!("{connected} of {expected} clients are back, {completed} done{given_up}");
    let turns = if *queued == 0 { String::new() } else { format!(", {queued} wait for their turn") };
    let named: Vec<String> = state.missing.iter().map(awaited).collect();
    let others = (state.missing_count as usize).saturating_sub(named.len());
    let others = if others == 0 { String::new() } else { format!(" and {others} more") };
    let waits = match named.as_slice() {
        [] => String::new(),
        named => format!("; waits for {}{others}, at most {remaining_s} s without a step", named.join(", ")),
    };
    format!("{name}: {back}, {replayed} changes replayed{turns}{waits}")
}

/// Who is waited for, and with what.
fn awaited(missing: &Missing) -> String {
    let who = if missing.nid.is_empty() { &missing.client } else { &missing.nid };
    let what = match missing.place {
        Place::Absent => "not back",
        Place::Silent => "replays nothing",
        Place::Restating => "states its locks",
        Place::Unknown => "does nothing",
    };
    let lives = if missing.lives { ", but lives" } else { "" };
    format!("{who} ({what} for {} s{lives})", missing.quiet_s)
}

/// A line for each recovery that goes on.
fn recoveries(targets: &[TargetReport]) -> Vec<String> {
    let recovering = targets.iter().filter(|target| target.recovering().is_some());
    recovering.filter_map(|target| Some(progress(&target.name, target.state.as_ref()?))).collect()
}

/// The targets with a disk whose I/O scheduler does not suit it.
fn unsuited(targets: &[TargetReport]) -> Vec<&str> {
    let unsuited = |target: &&TargetReport| target.state.as_ref().is_some_and(|state| state.scheduler);
    targets.iter().filter(unsuited).map(|target| target.name.as_str()).collect()
}

/// A line about an OST that is slower than the others.
fn slowness(fsname: &str, slow: &Slow) -> String {
    let millis = |micros: u64| micros as f64 / 1000.0;
    format!(
        "{fsname}-{} is slow: it takes {:.1} ms for a MiB that is written from here, the others {:.1} ms\n",
        TargetId::ost(slow.index),
        millis(slow.takes_us),
        millis(slow.others_take_us)
    )
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    if let Some(status) = &report.status {
        let served = match &status.data {
            Some(data) => format!("data in {data}"),
            None => format!("MGS {}", status.mgs.join(", ")),
        };
        let engine =
            status.fuse_engine.as_ref().map_or(String::new(), |engine| format!(", FUSE by {engine}"));
        text = format!(
            "File system {} at {}, process {}, {served}{engine}\n",
            status.fsname,
            report.mountpoint.display(),
            status.pid
        );
        let rows: Vec<Vec<String>> = report.targets.iter().map(row).collect();
        text += &table::render(&["TARGET", "STATE", "USED", "AVAILABLE", "FILES", "SERVER", "NIDS"], &rows);
        for line in recoveries(&report.targets) {
            text += &line;
            text.push('\n');
        }
        for slow in &report.slow {
            text += &slowness(&status.fsname, slow);
        }
        if let Some(warning) = schedulers::warning(&unsuited(&report.targets)) {
            text += &warning;
            text.push('\n');
        }
    }
    format!("{text}{}: {}", report.mountpoint.display(), report.verdict)
}

fn row(target: &TargetReport) -> Vec<String> {
    let human = |bytes: u64| cooked(bytes, 1024.0).trim().to_owned();
    let (used, available, files) = match &target.space {
        Some(space) => (
            human(space.bytes_total.saturating_sub(space.bytes_free)),
            human(space.bytes_available),
            space.files_total.saturating_sub(space.files_free).to_string(),
        ),
        None => ("-".into(), "-".into(), "-".into()),
    };
    let state = match target.recovering() {
        _ if target.problem().is_some() => "FAILED".to_owned(),
        Some(recovery) => format!("RECOVERING {}/{}", recovery.completed, recovery.expected),
        None if target.is_full() => "FULL".to_owned(),
        None if target.is_degraded() => "degraded".to_owned(),
        None if target.active => "active".to_owned(),
        None => "SILENT".to_owned(),
    };
    vec![target.name.clone(), state, used, available, files, target.server.clone(), target.nids.join(",")]
}

#[cfg(test)]
mod tests {
    use fuse::control::NotServed;

    use super::*;

    fn target(name: &str, kind: Kind, active: bool) -> TargetReport {
        let space = active.then(SpaceValues::default);
        TargetReport {
            name: name.into(),
            kind,
            server: "oss0".into(),
            nids: vec!["0@lo".into()],
            active,
            space,
            state: None,
            not_served: None,
        }
    }

    #[test]
    fn what_is_not_served_is_told_with_its_reason() {
        let mut targets = vec![target("w-MDT0000", Kind::Mdt, true), target("w-OST0000", Kind::Ost, false)];
        targets[1].not_served = Some("/d/OST0000 is empty or not there".into());
        let said = "FAILED: w-OST0000 is not served: /d/OST0000 is empty or not there";
        assert_eq!(judge(&targets), (false, said.into()));
        assert_eq!(row(&targets[1])[1], "FAILED");
    }

    /// An OST that could not be opened at its very first start is in no configuration, and was not missed.
    #[test]
    fn what_has_never_registered_is_missed() {
        let (uuid, server, nids) = ("u".into(), "mds0".into(), vec!["0@lo".into()]);
        let mdt = fuse::control::Target { kind: Kind::Mdt, index: 0, uuid, nids, server };
        let fsname = "w-1".to_owned();
        let config = Configuration { fsname: fsname.clone(), version: 1, targets: vec![mdt], more: false };
        let spaces = Spaces { fsname: fsname.clone(), targets: Vec::new() };
        let states = States { fsname, targets: Vec::new() };
        let mut status = Status {
            serves: vec!["MGS".into(), "w-1-MDT0000".into(), "w-1-OST0001".into()],
            not_served: vec![NotServed {
                target: "w-1-OST0000".into(),
                why: "disk: Too many open files".into(),
            }],
            ..Status::default()
        };
        let judged = |status: &Status| {
            let reports = target_reports(&config, &spaces, &states, status);
            (reports.iter().map(|report| report.name.clone()).collect::<Vec<_>>(), judge(&reports))
        };
        let (names, (well, verdict)) = judged(&status);
        assert_eq!(names, ["w-1-MDT0000", "w-1-OST0000", "w-1-OST0001"]);
        assert!(
            !well && verdict == "FAILED: w-1-OST0000 is not served: disk: Too many open files",
            "{verdict}"
        );
        // Not even the process says why.
        status.not_served.clear();
        status.serves.push("w-1-OST0000".into());
        let (_, (well, verdict)) = judged(&status);
        assert!(
            !well && verdict.contains("no answer from") && verdict.contains("w-1-OST0000, w-1-OST0001"),
            "{verdict}"
        );
    }

    #[test]
    fn a_recovery_and_a_failure_are_told() {
        let recovery = Recovery {
            stage: Stage::Recovering,
            connected: 2,
            expected: 3,
            completed: 1,
            replayed: 7,
            remaining_s: 20,
            ..Recovery::default()
        };
        let missing = |nid: &str, place, lives| Missing {
            client: "35ebff4e-39c7-4c5a-a3a4-7b2d3b0f0c11".into(),
            nid: nid.into(),
            place,
            quiet_s: 12,
            lives,
        };
        let missing =
            vec![missing("10.0.0.7@tcp", Place::Absent, true), missing("", Place::Restating, false)];
        let mut state =
            TargetState { recovery, sessions: 2, missing, missing_count: 5, ..TargetState::default() };
        let waits = TargetReport { state: Some(state.clone()), ..target("w-OST0000", Kind::Ost, false) };
        let mut targets = vec![target("w-MDT0000", Kind::Mdt, true), waits];
        assert_eq!(judge(&targets), (false, "RECOVERING: w-OST0000; files there wait".into()));
        assert_eq!(
            recoveries(&targets),
            [concat!(
                "w-OST0000: 2 of 3 clients are back, 1 done, 7 changes replayed; waits for 10.0.0.7@tcp (not back for 12 s, ",
                "but lives), 35ebff4e-39c7-4c5a-a3a4-7b2d3b0f0c11 (states its locks for 12 s) and 3 more, at most 20 s ",
                "without a step"
            )]
        );
        let all_wait = Recovery { queued: 2, remaining_s: 0, evicted: 1, ..state.recovery.clone() };
        let all_wait = TargetState { recovery: all_wait, ..TargetState::default() };
        assert_eq!(
            progress("w-MDT0000", &all_wait),
            "w-MDT0000: 2 of 3 clients are back, 1 done, 1 given up, 7 changes replayed, 2 wait for their turn"
        );
        assert_eq!(row(&targets[1])[1], "RECOVERING 1/3");
        state.problems = vec!["its disk is gone".into()];
        targets[1].state = Some(state);
        assert_eq!(judge(&targets), (false, "FAILED: w-OST0000: its disk is gone".into()));
    }

    #[test]
    fn what_is_slow_or_avoided_is_shown() {
        let slow = Slow { index: 0x1f, takes_us: 41_250, others_take_us: 9_960 };
        assert_eq!(
            slowness("w", &slow),
            "w-OST001f is slow: it takes 41.2 ms for a MiB that is written from here, the others 10.0 ms\n"
        );
        let mut avoided = target("w-OST001f", Kind::Ost, true);
        avoided.space = Some(SpaceValues { state: Space::DEGRADED, ..SpaceValues::default() });
        assert_eq!(row(&avoided)[1], "degraded");
        assert_eq!(row(&target("w-OST0000", Kind::Ost, true))[1], "active");
    }

    #[test]
    fn a_scheduler_that_does_not_suit_is_a_warning() {
        let mut targets = vec![target("w-MDT0000", Kind::Mdt, true), target("w-OST0000", Kind::Ost, true)];
        assert!(unsuited(&targets).is_empty());
        targets[1].state = Some(TargetState { scheduler: true, ..TargetState::default() });
        assert_eq!(unsuited(&targets), ["w-OST0000"]);
        assert!(judge(&targets).0, "all is well besides");
    }

    #[test]
    fn verdicts() {
        let mut targets = vec![target("w-MDT0000", Kind::Mdt, true), target("w-OST0000", Kind::Ost, true)];
        assert_eq!(judge(&targets), (true, "HEALTHY: 1 MDT and 1 OST answer".into()));
        let mut full = targets.clone();
        let space = SpaceValues { state: Space::FULL, ..SpaceValues::default() };
        full[0].space = Some(space);
        let (well, verdict) = judge(&full);
        assert!(!well && verdict.starts_with("FULL: ") && verdict.contains(&full[0].name), "{verdict}");
        assert_eq!(row(&full[0])[1], "FULL");
        targets.push(target("w-OST0001", Kind::Ost, false));
        assert_eq!(judge(&targets), (false, "DEGRADED: no answer from w-OST0001; files there wait".into()));
        assert!(!judge(&targets[..1]).0);
    }
}
