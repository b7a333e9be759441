//! `get_param`, `set_param` and `list_param`: whoever has parameters is asked for those that fit, and says how they are called,
//! what they are, and what they take.

use std::collections::BTreeSet;
use std::time::Duration;

use fuse::parameters::Shown;
use fuse::session::MountEntry;
use fuse::states::{STATES, State, States};
use proto::TargetKind;
use proto::parameters::{CLEARS, Parameter, TargetPlaces, Tree, Unit, device_name};
use proto::session::Estimate;
use proto::wire::messages::ReadParameters;

use super::orders::{self, Set};
use super::reach::{self, Device, Reach};
use crate::failure::{Failure, Outcome};
use crate::mountpoint::Mount;
use crate::{ask, schedulers};

/// How parameters are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Printed {
    /// `name=value`.
    Both,
    /// The value alone.
    Value,
    /// The name alone.
    Name,
    /// The name, with `=` behind it if it can be set.
    Classified,
}

/// A parameter that fits, and who has it.
struct Found {
    shown: Shown,
    at: At,
}

/// Who has a parameter.
enum At {
    /// Nobody who could set it.
    Nobody,
    Mount(MountEntry),
    /// Every process of this machine.
    Processes,
    Target(Device),
}

/// All that fits a pattern, and who does not say what they have.
struct Answer {
    found: Vec<Found>,
    silent: Vec<(Device, String)>,
}

/// Prints what fits `patterns`. Exit status ENOENT if one of them fits nothing.
pub fn get(reach: &mut Reach, patterns: &[String], printed: Printed) -> Outcome {
    let mut status = 0;
    for pattern in patterns {
        let plain = plain(pattern);
        let names_only = matches!(printed, Printed::Name | Printed::Classified);
        let Answer { found, silent } =
            find(reach, &plain, if names_only { Wanted::Names } else { Wanted::Values })?;
        if found.is_empty() && silent.is_empty() {
            let command = if names_only { "list_param" } else { "get_param" };
            err!("error: {command}: param_path '{pattern}': No such file or directory");
            status = libc::ENOENT as u8;
        }
        let mut of_clients = BTreeSet::new();
        for one in found {
            let Shown { name, value, readable, .. } = &one.shown;
            // What has no device in its name is the same thing in Lustre, however much is mounted.
            if matches!(one.at, At::Mount(_))
                && !name.contains('.')
                && !of_clients.insert(assignment(name, value))
            {
                continue;
            }
            match printed {
                Printed::Name => out!("{name}"),
                Printed::Classified => out!("{name}{}", if one.shown.settable { "=" } else { "" }),
                Printed::Value if *readable => out!("{value}"),
                Printed::Both if *readable => out!("{}", assignment(name, value)),
                // What can only be set is no error among others.
                _ if plain.contains('*') => {}
                _ => {
                    err!("error: get_param: reading '{name}': Permission denied");
                    status = libc::EIO as u8;
                }
            }
        }
        for (device, why) in silent {
            let name = TargetPlaces::new(&device.fsname, device.target).within(&plain);
            err!("{}: {why}", device.name);
            err!("error: get_param: reading '{name}': No answer from the server");
            status = libc::EIO as u8;
        }
    }
    Ok(status)
}

/// As Lustre prints it: several lines begin on one of their own.
fn assignment(name: &str, value: &str) -> String {
    if value.contains('\n') { format!("{name}=\n{value}") } else { format!("{name}={value}") }
}

/// Carries out `NAME=VALUE`.
pub fn set(reach: &mut Reach, settings: &[String], value_only: bool) -> Outcome {
    let mut status = 0;
    for setting in settings {
        let (pattern, value) =
            setting.split_once('=').ok_or_else(|| Failure::usage(format!("{setting}: write NAME=VALUE")))?;
        let Answer { found, silent } = find(reach, &plain(pattern), Wanted::Names)?;
        if found.is_empty() && silent.is_empty() {
            err!("error: set_param: param_path '{pattern}': No such file or directory");
            status = libc::ENOENT as u8;
            continue;
        }
        let mut nobody = None;
        let mut done = false;
        for one in found {
            let name = &one.shown.name;
            match set_one(reach, &one, value)? {
                Ok(Set::NotFound) => nobody = Some(one.shown.takes),
                Ok(_) => {
                    done = true;
                    if value_only { out!("{value}") } else { out!("{name}={value}") }
                }
                Err((why, status)) => {
                    err!("error: set_param: setting {name}={value}: {why}");
                    return Ok(status);
                }
            }
        }
        if let Some(takes) = nobody.filter(|_| !done) {
            err!("error: set_param: setting {pattern}={value}: {takes}");
            status = libc::ENOENT as u8;
        }
        if let Some((device, why)) = silent.first() {
            return Err(Failure::new(format!("{}: {why}", device.name)));
        }
    }
    Ok(status)
}

/// What parameters say.
#[derive(Default)]
pub struct Told {
    /// Names and values.
    pub values: Vec<(String, String)>,
    /// Names of the devices that do not say.
    pub silent: BTreeSet<String>,
}

/// All that fits one of `patterns`.
pub fn told(reach: &mut Reach, patterns: &[&str]) -> Result<Told, Failure> {
    let mut told = Told::default();
    // One after the other: a mount takes no longer question.
    for pattern in patterns {
        let Answer { found, silent } = find(reach, pattern, Wanted::Values)?;
        told.values.extend(found.into_iter().map(|one| (one.shown.name, one.shown.value)));
        told.silent.extend(silent.into_iter().map(|(device, _)| device.name));
    }
    Ok(told)
}

/// The values of what fits `pattern`, for a command that prints them in its own way.
pub fn values(reach: &mut Reach, pattern: &str) -> Result<Vec<String>, Failure> {
    let Answer { found, silent } = find(reach, pattern, Wanted::Values)?;
    if let Some((device, why)) = silent.first() {
        return Err(Failure::new(format!("{}: {why}", device.name)));
    }
    Ok(found.into_iter().map(|one| one.shown.value).collect())
}

/// Who is reached from here and has a parameter that is to be kept.
pub(super) enum Here {
    /// Somebody, and it is set.
    Set,
    /// Nobody.
    Nobody,
    /// Somebody who refuses the value, as the user was told: the exit status.
    Refused(u8),
}

/// Sets what fits `pattern` in `fsname` and is reached from here to a `value` that is to be kept: a wrong value is refused before
/// the MGS keeps it.
pub(super) fn keep_here(
    reach: &mut Reach,
    fsname: &str,
    pattern: &str,
    value: &str,
) -> Result<Here, Failure> {
    let found = find(reach, pattern, Wanted::Names)?.found;
    let of_fsname = |one: &Found| match &one.at {
        At::Mount(mount) => reach.fsname_of(mount).is_none_or(|of| of == fsname),
        At::Target(device) => device.fsname == fsname,
        At::Nobody | At::Processes => true,
    };
    let found: Vec<Found> = found.into_iter().filter(of_fsname).collect();
    if found.is_empty() {
        return Ok(Here::Nobody);
    }
    for one in found {
        let Shown { name, readable, takes, .. } = &one.shown;
        let refusal = if !*readable {
            Some((
                "Invalid argument: an order is carried out once: leave out -P".to_owned(),
                libc::EINVAL as u8,
            ))
        } else if takes == CLEARS {
            Some(("Invalid argument: a statistic keeps no value".to_owned(), libc::EINVAL as u8))
        } else {
            match set_one(reach, &one, value)? {
                // What is served for one mount alone takes it from the MGS.
                Err((_, status)) if one.shown.settable && i32::from(status) == libc::EACCES => None,
                Err(refusal) => Some(refusal),
                Ok(Set::NotFound) => Some((takes.clone(), libc::ENOENT as u8)),
                Ok(_) => None,
            }
        };
        if let Some((why, status)) = refusal {
            err!("error: set_param: setting {name}={value}: {why}");
            return Ok(Here::Refused(status));
        }
    }
    Ok(Here::Set)
}

/// Sets one; a sentence and an error number if that is refused.
fn set_one(reach: &mut Reach, one: &Found, value: &str) -> Result<Result<Set, (String, u8)>, Failure> {
    let Shown { name, takes, .. } = &one.shown;
    if !one.shown.settable {
        return Ok(Err(("Permission denied".to_owned(), libc::EACCES as u8)));
    }
    Ok(match &one.at {
        At::Nobody => Err(("Permission denied".to_owned(), libc::EACCES as u8)),
        At::Target(device) => match orders::set(reach, device, name, value)? {
            Set::Refused => Err((format!("Invalid argument: {takes}"), libc::EINVAL as u8)),
            set => Ok(set),
        },
        At::Mount(mount) => match reach::set_at_mount(mount, name, value) {
            Ok(()) => Ok(Set::Done),
            Err(silence) if i32::from(silence.status) == libc::EINVAL => Err((takes.clone(), silence.status)),
            Err(silence) => Err((silence.why, silence.status)),
        },
        At::Processes => match reach.set_value_of_all(name, value)? {
            Ok(()) => Ok(Set::Done),
            Err(silence) if i32::from(silence.status) == libc::EINVAL => {
                Err((format!("{}: {takes}", silence.why), silence.status))
            }
            Err(silence) => Err((silence.why, silence.status)),
        },
    })
}

/// What is asked for of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Names,
    /// Names and values.
    Values,
}

/// What fits `pattern`: of this program, of processes, of mounts and of targets, in this order.
fn find(reach: &mut Reach, pattern: &str, wanted: Wanted) -> Result<Answer, Failure> {
    let read =
        ReadParameters { patterns: vec![pattern.to_owned()], skip: 0, names_only: wanted == Wanted::Names };
    let mut found = own(reach, &read)?;
    let of_processes = reach.parameters_of_processes(&read)?.into_iter();
    found.extend(of_processes.map(|shown| Found { shown, at: At::Processes }));
    for (mount, told) in reach.parameters_of_mounts(&read) {
        found.extend(told.into_iter().map(|shown| Found { shown, at: At::Mount(mount.clone()) }));
    }
    let mut silent = Vec::new();
    for (device, told) in reach.parameters_of_targets(&read)? {
        match told {
            Ok(told) => {
                let told = whole(told).into_iter();
                found.extend(told.map(|shown| Found { shown, at: At::Target(device.clone()) }))
            }
            Err(why) => silent.push((device, why)),
        }
    }
    Ok(Answer { found, silent })
}

/// A value that is too long for one answer comes in parts, which are called the same and follow each other.
fn whole(told: Vec<Shown>) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::with_capacity(told.len());
    for shown in told {
        match all.last_mut().filter(|before| before.name == shown.name) {
            Some(before) => {
                before.value.push('\n');
                before.value.push_str(&shown.value);
            }
            None => all.push(shown),
        }
    }
    all
}

/// What this program knows itself.
fn own(reach: &mut Reach, read: &ReadParameters) -> Result<Vec<Found>, Failure> {
    let longest = rpc::limits::RESEND_MAX;
    let shortest = Estimate::default().patience(Duration::ZERO, longest);
    let mut failed = None;
    let mut tree: Tree<'_> = Tree::new(read)
        .map_err(|_| Failure::usage(format!("{}: the pattern is too long", read.patterns.join(" "))))?;
    tree.add("", Parameter::gauge("at_max", Unit::Seconds, || longest.as_secs()));
    tree.add("", Parameter::gauge("at_min", Unit::Seconds, || shortest.as_secs()));
    tree.add(
        "",
        Parameter::text("health_check", || {
            health(reach).unwrap_or_else(|failure| {
                failed = Some(failure);
                String::new()
            })
        }),
    );
    tree.add("", Parameter::text("version", || env!("CARGO_PKG_VERSION")));
    let page = tree.page();
    match failed {
        Some(failure) => Err(failure),
        None => {
            let shown = page.parameters.into_iter().map(Shown::from);
            Ok(shown.map(|shown| Found { shown, at: At::Nobody }).collect())
        }
    }
}

/// `healthy`, or what is not. Why goes to standard error: scripts know the lines.
fn health(reach: &mut Reach) -> Result<String, Failure> {
    let devices = reach.devices.clone();
    let states = reach.states(&devices)?;
    let mut seen = BTreeSet::new();
    let mut ill = Vec::new();
    let mut unsuited = Vec::new();
    let mut look = |name: String, state: Result<&State, &str>| {
        if !seen.insert(name.clone()) {
            return;
        }
        match state {
            Err(why) => ill.push((name, vec![why.to_owned()])),
            Ok(state) if !state.problems.is_empty() => ill.push((name, state.problems.clone())),
            Ok(state) => unsuited.extend(state.scheduler.then_some(name)),
        }
    };
    for (device, state) in devices.iter().zip(&states) {
        if !(device.is_mounted() && device.target.kind == TargetKind::Mgs) {
            look(device.name.clone(), state.as_ref().map_err(String::as_str));
        }
    }
    for path in &reach.left_out {
        look(path.display().to_string(), Err(reach::SILENT));
    }
    for (mount, told) in reach.mounts.iter().zip(states_of_mounts(&reach.mounts)) {
        match told {
            Some(told) => {
                for target in &told.targets {
                    look(device_name(&told.fsname, target.id()), target.state.as_ref().ok_or(reach::SILENT));
                }
            }
            None => look(mount.entry.path.display().to_string(), Err(reach::SILENT)),
        }
    }
    for (name, problems) in &ill {
        err!("{name}: {}", problems.join("; "));
    }
    if let Some(warning) = schedulers::warning(&unsuited) {
        err!("{warning}");
    }
    Ok(verdict(ill.iter().map(|(name, _)| name.as_str())))
}

/// What each mount says of its targets; nothing if it does not. All are asked at the same time, as each waits for targets that are silent.
fn states_of_mounts(mounts: &[Mount]) -> Vec<Option<States>> {
    std::thread::scope(|scope| {
        let ask = |mount: &'_ Mount| ask::get::<States>(&mount.entry, STATES).ok();
        let asking: Vec<_> = mounts.iter().map(|mount| scope.spawn(move || ask(mount))).collect();
        asking.into_iter().map(|told| told.join().ok().flatten()).collect()
    })
}

/// Lustre's words: a line for each that is not well, and the verdict.
fn verdict<'a>(ill: impl Iterator<Item = &'a str>) -> String {
    let mut lines: Vec<String> = ill.map(|name| format!("device {name} reported unhealthy")).collect();
    lines.push(if lines.is_empty() { "healthy".into() } else { "NOT HEALTHY".into() });
    lines.join("\n")
}

/// A pattern with dots between its parts; Lustre takes slashes too.
pub(super) fn plain(pattern: &str) -> String {
    pattern.replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_may_be_parted_by_slashes() {
        assert_eq!(plain("mdt/*/recovery_status"), "mdt.*.recovery_status");
    }

    #[test]
    fn a_value_in_parts_is_one() {
        let part = |name: &str, value: &str| Shown {
            name: name.to_owned(),
            value: value.to_owned(),
            readable: true,
            settable: false,
            kind: "text".to_owned(),
            unit: String::new(),
            takes: String::new(),
        };
        let told = vec![part("a", "1"), part("b", "2\n3"), part("b", "4"), part("c", "5")];
        let values: Vec<String> = whole(told).into_iter().map(|one| one.value).collect();
        assert_eq!(values, ["1", "2\n3\n4", "5"]);
    }

    #[test]
    fn health_in_lustres_words() {
        assert_eq!(verdict([].into_iter()), "healthy");
        let ill = ["w-MDT0000", "w-OST0001"];
        assert_eq!(
            verdict(ill.into_iter()),
            "device w-MDT0000 reported unhealthy\ndevice w-OST0001 reported unhealthy\nNOT HEALTHY"
        );
        assert_eq!(assignment("health_check", "healthy"), "health_check=healthy");
        assert_eq!(assignment("health_check", "a\nb"), "health_check=\na\nb");
    }
}
