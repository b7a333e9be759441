//! Devices: what `lctl dl` lists, and `lctl --device` names.

use std::collections::BTreeSet;

use fuse::control::{Configuration, Kind, Status};
use fuse::parameters::Owner;
use fuse::session::MountEntry;
use proto::TargetKind;
use proto::wire::messages::ReadParameters;

use super::reach::{self, Device, Reach};
use crate::ask;
use crate::failure::{Failure, Outcome};
use crate::mountpoint::Mount;

/// Whether a client asks an OST.
const ACTIVE: &str = "osc.*.active";

/// Runs `lctl dl`.
pub fn list(reach: &Reach) -> Outcome {
    for (number, line) in device_lines(reach)?.iter().enumerate() {
        out!("{number:3} {line}");
    }
    Ok(0)
}

/// The MDT that is named, for a command that no other target carries out.
pub fn find_mdt(reach: &Reach, named: Option<String>, command: &str) -> Result<Device, Failure> {
    let named =
        named.ok_or_else(|| Failure::usage(format!("name the MDT: lctl --device w-MDT0000 {command}")))?;
    let device = find(reach, &named)?;
    if device.target.kind != TargetKind::Mdt {
        let name = &device.name;
        return Err(Failure::usage(format!(
            "{name} is no MDT, and only MDTs have changelogs: lctl --device w-MDT0000 {command}"
        )));
    }
    Ok(device)
}

/// What there is here: what servers without a mount serve, then, for each mount, what its process serves and what its
/// client uses.
fn device_lines(reach: &Reach) -> Result<Vec<String>, Failure> {
    let mut mounted = Vec::new();
    let mut served = BTreeSet::new();
    for Mount { entry, status } in &reach.mounts {
        let Ok(config) = ask::configuration(entry) else { continue };
        mounted.extend(devices(status, &config, &inactive(entry)));
        served.extend(status.serves.iter().map(|name| (config.fsname.clone(), name.clone())));
    }
    let alone = reach.devices.iter().filter(|device| {
        let named = (device.fsname.clone(), device.name.clone());
        !served.contains(&named)
    });
    let mut lines: Vec<String> = alone.map(|device| line(device.kind(), &device.name)).collect();
    lines.extend(mounted);
    Ok(lines)
}

/// The OSTs that a client was told not to ask: `w-OST0001`. One that does not say has none.
fn inactive(mount: &MountEntry) -> BTreeSet<String> {
    let read = ReadParameters { patterns: vec![ACTIVE.to_owned()], skip: 0, names_only: false };
    let told = reach::told_at_mount(mount, Owner::Mount, &read).unwrap_or_default();
    told.iter().filter(|one| one.value == "0").filter_map(|one| of_session(&one.name)).collect()
}

/// The target of `osc.w-OST0001-osc-0123456789abcdef.active`.
fn of_session(name: &str) -> Option<String> {
    let (target, _) = name.split('.').nth(1)?.rsplit_once("-osc-")?;
    Some(target.to_owned())
}

fn line(kind: &str, name: &str) -> String {
    format!("UP {kind} {name} {name}_UUID 1")
}

/// The target that is meant: by its name, with or without Lustre's `%` or `$` before it, or by its number.
pub fn find(reach: &Reach, named: &str) -> Result<Device, Failure> {
    let plain = named.trim_start_matches(['%', '$']);
    let by_number = match named.parse::<usize>() {
        Ok(number) => {
            device_lines(reach)?.get(number).and_then(|line| line.split(' ').nth(2).map(ToOwned::to_owned))
        }
        Err(_) => None,
    };
    let name = by_number.as_deref().unwrap_or(plain);
    let found = reach.devices.iter().find(|device| device.name == name);
    found.cloned().ok_or_else(|| {
        Failure::new(format!(
            "No device found for name {named}: no server of this machine serves it; run this where it is served, or add --key"
        ))
    })
}

/// The devices of one mount: what its process serves, then what its client uses. The format is Lustre's:
/// state, type, name, uuid, references.
fn devices(status: &Status, config: &Configuration, inactive: &BTreeSet<String>) -> Vec<String> {
    let fsname = &config.fsname;
    let mut lines = Vec::new();
    for served in &status.serves {
        let kind = match served.rsplit('-').next() {
            Some(target) if target.starts_with("OST") => "obdfilter",
            Some(target) if target.starts_with("MDT") => "mdt",
            _ => "mgs",
        };
        lines.push(line(kind, served));
    }
    let mut targets: Vec<_> = config.targets.iter().collect();
    targets.sort_by_key(|target| target.id());
    for target in targets {
        let kind = match target.kind {
            Kind::Mgs => continue,
            Kind::Mdt => "mdc",
            Kind::Ost => "osc",
        };
        let name = format!("{fsname}-{}", target.id());
        let state = if inactive.contains(&name) { "IN" } else { "UP" };
        lines.push(format!("{state} {kind} {name}-{kind} {name}_UUID 1"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use fuse::control;
    use proto::wire::messages::{Config, TargetEntry, TargetOwner};
    use proto::{ClientId, ConfigCopy, TargetId};

    use super::*;

    /// Lustre's table had room for 8,192 until 2023. An attribute has room for some 400.
    #[test]
    fn there_are_as_many_devices_as_targets() {
        let entry = |index: u32| TargetEntry {
            target: TargetId::ost(index),
            uuid: ClientId(u128::from(index)),
            nids: vec!["10.1.1.2@tcp".parse().expect("a NID")],
            server: format!("oss{}", index / 8),
            replaces: false,
        };
        let mut known = ConfigCopy::new("w");
        let targets = (0..24_000).rev().map(entry).collect();
        let owners = vec![TargetOwner { target: TargetId::ost(9), server: "other".into(), epoch: 1 }];
        let all = Config { version: 1, targets, owners, newest: 1, ..Config::empty("w") };
        assert!(known.take(all));
        let asked = std::cell::Cell::new(0);
        let page = |attribute: &str| {
            asked.set(asked.get() + 1);
            let behind = attribute.strip_prefix("weft.config.").map(|id| id.parse().expect("a target"));
            let page = Configuration::of(&known, behind);
            assert!(control::encode(&page).len() <= 65_536, "the kernel's limit");
            Ok(page)
        };
        let config = ask::all_targets(page).expect("each page is told");
        assert!(asked.get() < 100, "{asked:?}");
        assert_eq!(config.targets[9].server, "other");
        let lines = devices(&Status::default(), &config, &BTreeSet::new());
        assert_eq!(lines.len(), 24_000);
        assert_eq!(lines[0x1f], "UP osc w-OST001f-osc w-OST001f_UUID 1");
        assert_eq!(lines[23_999], "UP osc w-OST5dbf-osc w-OST5dbf_UUID 1");
    }

    #[test]
    fn devices_have_lustres_columns() {
        let status = Status { serves: vec!["MGS".into(), "w-OST0001".into()], ..Status::default() };
        let target = control::Target {
            kind: Kind::Ost,
            index: 1,
            uuid: "u".into(),
            nids: Vec::new(),
            server: "oss0".into(),
        };
        let config = Configuration { fsname: "w".into(), version: 1, targets: vec![target], more: false };
        let name = "osc.w-OST0001-osc-0123456789abcdef.active";
        let inactive: BTreeSet<String> = of_session(name).into_iter().collect();
        let lines = devices(&status, &config, &inactive);
        assert_eq!(
            lines[1..],
            ["UP obdfilter w-OST0001 w-OST0001_UUID 1", "IN osc w-OST0001-osc w-OST0001_UUID 1"]
        );
        assert_eq!(
            devices(&status, &config, &BTreeSet::new()),
            [
                "UP mgs MGS MGS_UUID 1",
                "UP obdfilter w-OST0001 w-OST0001_UUID 1",
                "UP osc w-OST0001-osc w-OST0001_UUID 1"
            ]
        );
    }
}
