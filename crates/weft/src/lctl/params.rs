//! The tree of parameters: names as in Lustre, values that are asked for when they are shown.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fuse::states::{STATES, State, States};
use proto::session::Estimate;
use proto::wire::messages as msg;
use proto::{ClientId, TargetKind};

use super::reach::{self, Device, Reach};
use super::tunables::{self, Setting};
use super::{orders, recovery};
use crate::failure::{Failure, Outcome};
use crate::mountpoint::Mount;
use crate::{ask, log};

/// How long a target may take to list its sessions.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// Sessions of one target that are listed.
const SESSIONS_MAX: usize = 1 << 17;

/// How parameters are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// `name=value`.
    Both,
    /// The value alone.
    Value,
    /// The name alone.
    Name,
    /// The name, with `=` behind it if it can be set.
    Classified,
}

struct Parameter {
    name: String,
    what: What,
}

#[derive(Clone)]
enum What {
    Health,
    Version,
    RecoveryStatus(Device),
    NumExports(Device),
    EvictClient(Device),
    /// One of those that the target itself has, by its name for it.
    Own(Device, Own),
    /// One that is known already.
    Text(String),
    /// The same of a mount, which can be set.
    Mount(String, Setting),
    /// One of every process of this machine.
    Process(&'static str),
    /// The clients at one address.
    Uuids(Vec<ClientId>),
}

/// A parameter that targets have themselves: the last part of its name, and whether it can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    name: Cow<'static, str>,
    is_set: bool,
}

impl What {
    fn is_set(&self) -> bool {
        match self {
            What::EvictClient(_) | What::Mount(..) | What::Process(_) => true,
            What::Own(device, own) => own.is_set && !device.is_mounted(),
            _ => false,
        }
    }
}

/// Prints what fits `patterns`. Exit status ENOENT if one of them fits nothing.
pub fn get(reach: &mut Reach, patterns: &[String], shown: Shown) -> Outcome {
    let parameters = parameters(reach, patterns)?;
    let mut status = 0;
    for pattern in patterns {
        let plain = plain(pattern);
        let matching: Vec<&Parameter> =
            parameters.iter().filter(|parameter| matches(&plain, &parameter.name)).collect();
        if matching.is_empty() {
            err!("error: get_param: param_path '{pattern}': No such file or directory");
            status = libc::ENOENT as u8;
        }
        let values = match shown {
            Shown::Both | Shown::Value => values(reach, &matching)?,
            Shown::Name | Shown::Classified => Vec::new(),
        };
        for (index, parameter) in matching.iter().enumerate() {
            let Parameter { name, what } = parameter;
            match (shown, values.get(index).cloned().flatten()) {
                (Shown::Name, _) => out!("{name}"),
                (Shown::Classified, _) => out!("{name}{}", if what.is_set() { "=" } else { "" }),
                (Shown::Value, Some(value)) => out!("{value}"),
                (Shown::Both, Some(value)) => out!("{}", assignment(name, &value)),
                // What can only be set is no error among others.
                (_, None) if matches!(what, What::EvictClient(_)) && plain.contains('*') => {}
                (_, None) => {
                    let why = if matches!(what, What::EvictClient(_)) {
                        "Permission denied"
                    } else {
                        "No answer from the server"
                    };
                    err!("error: get_param: reading '{name}': {why}");
                    status = libc::EIO as u8;
                }
            }
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
        let plain = plain(pattern);
        let parameters = parameters(reach, std::slice::from_ref(&plain))?;
        let matching: Vec<_> =
            parameters.into_iter().filter(|parameter| matches(&plain, &parameter.name)).collect();
        if matching.is_empty() {
            err!("error: set_param: param_path '{pattern}': No such file or directory");
            status = libc::ENOENT as u8;
            continue;
        }
        let mut done = false;
        for Parameter { name, what } in matching {
            let set = match what {
                What::EvictClient(device) => orders::evict(reach, &device, value)?,
                What::Own(device, own) if own.is_set && !device.is_mounted() => {
                    if !orders::set(reach, &device, &own.name, value)? {
                        err!("error: set_param: setting {name}={value}: Invalid argument");
                        return Ok(libc::EINVAL as u8);
                    }
                    true
                }
                What::Mount(_, setting) => {
                    if let Err(refusal) = tunables::set(&setting, value) {
                        err!("error: set_param: setting {name}={value}: {}", refusal.why);
                        return Ok(refusal.status);
                    }
                    true
                }
                What::Process(own) => {
                    if let Err(silence) = reach.set_value_of_all(own, value)? {
                        let takes = match silence.status {
                            status if i32::from(status) == libc::EINVAL => log::what_it_takes(own),
                            _ => "",
                        };
                        err!("error: set_param: setting {name}={value}: {}{takes}", silence.why);
                        return Ok(silence.status);
                    }
                    true
                }
                _ => {
                    err!("error: set_param: setting {name}={value}: Permission denied");
                    return Ok(libc::EACCES as u8);
                }
            };
            if set {
                done = true;
                if value_only { out!("{value}") } else { out!("{name}={value}") }
            }
        }
        if !done {
            err!("error: set_param: setting {pattern}={value}: no such client has a session there");
            status = libc::ENOENT as u8;
        }
    }
    Ok(status)
}

/// Everything that there is. The sessions are asked for only if one of `patterns` may mean them.
fn parameters(reach: &mut Reach, patterns: &[String]) -> Result<Vec<Parameter>, Failure> {
    let longest = rpc::limits::RESEND_MAX;
    let shortest = Estimate::default().patience(Duration::ZERO, longest);
    let seconds = |time: Duration| What::Text(time.as_secs().to_string());
    let mut parameters = vec![
        Parameter { name: "at_max".into(), what: seconds(longest) },
        Parameter { name: "at_min".into(), what: seconds(shortest) },
        Parameter { name: "health_check".into(), what: What::Health },
        Parameter { name: "version".into(), what: What::Version },
    ];
    let any =
        |kinds: &[&str]| patterns.iter().any(|pattern| kinds.iter().any(|kind| pattern.starts_with(kind)));
    if any(&["debug", "*"]) && !reach.processes()?.is_empty() {
        let own = |name: &'static str| Parameter { name: name.into(), what: What::Process(name) };
        parameters.extend([log::DEBUG, log::DEBUG_MB].map(own));
    }
    if any(&["llite", "osc", "mdc", "ldlm", "*"]) {
        parameters.extend(tunables::all(&reach.mounts).into_iter().map(|one| Parameter {
            name: one.name,
            what: match one.setting {
                Some(setting) => What::Mount(one.value, setting),
                None => What::Text(one.value),
            },
        }));
    }
    let clients = any(&["mgc", "*"]);
    for Mount { entry, status } in reach.mounts.iter().filter(|_| clients) {
        if let Ok(config) = ask::configuration(entry) {
            let mgs = status.mgs.first().map_or("0@lo", String::as_str);
            let name = format!("mgc.MGC{mgs}.ir_state");
            parameters.push(Parameter { name, what: What::Text(recovery::ir_state(&config)) });
        }
    }
    let sessions = patterns.iter().any(|pattern| pattern.contains("exports."));
    for device in reach.devices.clone() {
        let prefix = format!("{}.{}", device.kind(), device.name);
        let mut add = |name: String, what| parameters.push(Parameter { name, what });
        if device.target.kind == TargetKind::Mgs {
            add(format!("{prefix}.lease_time"), What::Own(device.clone(), readable("lease_time")));
            let live = format!("live.{}", device.fsname);
            add(format!("{prefix}.{live}"), What::Own(device.clone(), settable(live)));
            continue;
        }
        add(format!("{prefix}.evict_client"), What::EvictClient(device.clone()));
        if sessions {
            for (nid, clients) in exports(reach, &device)? {
                add(format!("{prefix}.exports.{nid}.uuid"), What::Uuids(clients));
            }
        }
        add(format!("{prefix}.num_exports"), What::NumExports(device.clone()));
        add(format!("{prefix}.recovery_status"), What::RecoveryStatus(device.clone()));
        let namespace = match device.target.kind {
            TargetKind::Mdt => "mdt",
            _ => "filter",
        };
        let namespace = format!("ldlm.namespaces.{namespace}-{}_UUID", device.name);
        add(format!("{namespace}.lock_count"), What::Own(device.clone(), readable("lock_count")));
        for name in LOCK_ROOM {
            add(format!("{namespace}.{name}"), What::Own(device.clone(), settable(name)));
        }
        for own in own(device.target.kind) {
            add(format!("{prefix}.{}", own.name), What::Own(device.clone(), own));
        }
    }
    Ok(parameters)
}

/// How many locks a target grants.
const LOCK_ROOM: [&str; 3] = ["lock_limit_mb", "lock_reclaim_threshold_mb", "lru_size"];

fn settable(name: impl Into<Cow<'static, str>>) -> Own {
    Own { name: name.into(), is_set: true }
}

fn readable(name: impl Into<Cow<'static, str>>) -> Own {
    Own { name: name.into(), is_set: false }
}

/// The parameters that targets of a kind have themselves.
fn own(kind: TargetKind) -> Vec<Own> {
    let mut own = match kind {
        TargetKind::Ost => {
            ["brw_stats", "degraded", "sync_journal", "sync_lock_cancel"].map(settable).to_vec()
        }
        TargetKind::Mdt => vec![settable("commit_on_sharing")],
        TargetKind::Mgs => Vec::new(),
    };
    own.extend(["recovery_reconnect_histogram", "recovery_reconnect_top"].map(settable));
    own.extend(["ldlm_timeout", "recovery_time_hard", "recovery_time_soft"].map(readable));
    own
}

/// The clients of a target by address. A target that does not answer has none.
fn exports(reach: &mut Reach, device: &Device) -> Result<BTreeMap<String, Vec<ClientId>>, Failure> {
    let mut exports: BTreeMap<String, Vec<ClientId>> = BTreeMap::new();
    let (mut after, mut count) = (ClientId(0), 0);
    while count < SESSIONS_MAX {
        let Ok(page) = reach.ask(device, msg::ListExports { after }, LIST_WAIT)? else { break };
        count += page.exports.len();
        for export in &page.exports {
            after = export.client;
            exports.entry(export.nid.clone()).or_default().push(export.client);
        }
        if page.end || page.exports.is_empty() {
            break;
        }
    }
    Ok(exports)
}

/// The values, in the order of `parameters`; `None` for what cannot be read.
fn values(reach: &mut Reach, parameters: &[&Parameter]) -> Result<Vec<Option<String>>, Failure> {
    let devices: Vec<Device> = parameters
        .iter()
        .filter_map(|parameter| match &parameter.what {
            What::RecoveryStatus(device) | What::NumExports(device) => Some(device.clone()),
            _ => None,
        })
        .collect();
    let states = reach.states(&devices)?;
    let mut states = states.iter();
    let mut values = Vec::new();
    for parameter in parameters {
        values.push(match &parameter.what {
            What::Health => Some(health(reach)?),
            What::Version => Some(env!("CARGO_PKG_VERSION").to_owned()),
            What::RecoveryStatus(_) => {
                states.next().and_then(|state| state.as_ref().ok()).map(recovery::status)
            }
            What::NumExports(_) => {
                states.next().and_then(|state| state.as_ref().ok()).map(|state| state.sessions.to_string())
            }
            What::EvictClient(_) => None,
            What::Text(text) | What::Mount(text, _) => Some(text.clone()),
            What::Own(device, own) => reach.parameter(device, &own.name)?,
            What::Process(name) => reach.value_of_all(name)?,
            What::Uuids(clients) => {
                Some(clients.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
        });
    }
    Ok(values)
}

/// `healthy`, or what is not. Why goes to standard error: scripts know the lines.
fn health(reach: &mut Reach) -> Result<String, Failure> {
    let devices = reach.devices.clone();
    let states = reach.states(&devices)?;
    let mut seen = BTreeSet::new();
    let mut ill = Vec::new();
    let mut look = |name: String, state: Result<&State, &str>| {
        if !seen.insert(name.clone()) {
            return;
        }
        match state {
            Err(why) => ill.push((name, vec![why.to_owned()])),
            Ok(state) if !state.problems.is_empty() => ill.push((name, state.problems.clone())),
            Ok(_) => {}
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
    for Mount { entry, .. } in &reach.mounts {
        match ask::get::<States>(entry, STATES) {
            Ok(told) => {
                for target in &told.targets {
                    look(reach::name(&told.fsname, target.id()), target.state.as_ref().ok_or(reach::SILENT));
                }
            }
            Err(_) => look(entry.path.display().to_string(), Err(reach::SILENT)),
        }
    }
    for (name, problems) in &ill {
        err!("{name}: {}", problems.join("; "));
    }
    Ok(verdict(ill.iter().map(|(name, _)| name.as_str())))
}

/// Lustre's words: a line for each that is not well, and the verdict.
fn verdict<'a>(ill: impl Iterator<Item = &'a str>) -> String {
    let mut lines: Vec<String> = ill.map(|name| format!("device {name} reported unhealthy")).collect();
    lines.push(if lines.is_empty() { "healthy".into() } else { "NOT HEALTHY".into() });
    lines.join("\n")
}

/// A pattern with dots between its parts; Lustre takes slashes too.
fn plain(pattern: &str) -> String {
    pattern.replace('/', ".")
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| matches(behind, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("version", "version", true),
            ("ver*", "version", true),
            ("*", "version", true),
            ("*e*k", "health_check", true),
            ("ver", "version", false),
            ("*x*", "version", false),
            ("mdt.*.recovery_status", "mdt.w-MDT0000.recovery_status", true),
            ("mdt.*.recovery_status", "obdfilter.w-OST0000.recovery_status", false),
            ("mdt.*.exports.*.uuid", "mdt.w-MDT0000.exports.10.1.1.2@tcp.uuid", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern}");
        }
        assert_eq!(plain("mdt/*/recovery_status"), "mdt.*.recovery_status");
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
