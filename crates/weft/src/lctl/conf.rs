//! `lctl conf_param` and `lctl set_param -F`: other ways to write what `lctl set_param -P` keeps.
//!
//! `conf_param` names the device first, and the layer that has the parameter behind it (`w-OST0001.osc.active`); what is kept has the layer
//! first (`osc.w-OST0001-*.active`). Nothing here asks anybody.

use proto::parameters::device_type;
use proto::{TargetId, TargetKind};

use crate::failure::Failure;

/// Layers of clients, and of an MDT, whose devices have something behind the target's name.
const SUFFIXED: &[&str] = &["osc", "mdc", "lod", "llite"];

/// A parameter that is to be kept, or not any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is, if that is said.
    pub fsname: Option<String>,
    /// As `lctl set_param -P` has it.
    pub name: String,
    pub value: String,
}

/// What `conf_param` means by `TARGET.LAYER.KEY=VALUE`; no value where one is deleted.
pub fn parsed(text: &str, deletes: bool) -> Result<Kept, Failure> {
    let (parameter, value) = match text.split_once('=') {
        Some((parameter, value)) => (parameter, value),
        None if deletes => (text, ""),
        None => return Err(Failure::usage(format!("{text}: write TARGET.PARAMETER=VALUE"))),
    };
    let (device, parameter) = parameter.split_once('.').ok_or_else(|| wrong(parameter))?;
    of_device(device, parameter, value)
}

fn of_device(device: &str, parameter: &str, value: &str) -> Result<Kept, Failure> {
    let failure = || wrong(&format!("{device}.{parameter}"));
    let (layer, key) = parameter.split_once('.').filter(|(_, key)| !key.is_empty()).ok_or_else(failure)?;
    let (fsname, target) =
        match device.rsplit_once('-').and_then(|(fsname, target)| Some((fsname, target.parse().ok()?))) {
            Some((fsname, target)) => (fsname, Some(target)),
            None => (device, None),
        };
    let layer = layer_of(layer, target).ok_or_else(failure)?;
    let name = match layer {
        // What all processes of the file system have.
        "sys" => key.to_owned(),
        layer if SUFFIXED.contains(&layer) => format!("{layer}.{device}-*.{key}"),
        layer if target.is_none() => format!("{layer}.{device}-*.{key}"),
        layer => format!("{layer}.{device}.{key}"),
    };
    Ok(Kept { fsname: Some(fsname.to_owned()), name, value: value.to_owned() })
}

/// The layer that has what Lustre says `layer` has of `target`, or of the whole file system.
fn layer_of(layer: &str, target: Option<TargetId>) -> Option<&str> {
    let kind = target.map(|target| target.kind);
    match (layer, kind) {
        ("sys" | "llite", None) => Some(layer),
        ("osc", None | Some(TargetKind::Ost)) | ("mdc", None | Some(TargetKind::Mdt)) => Some(layer),
        ("lov" | "lod", None | Some(TargetKind::Mdt)) => Some("lod"),
        ("mdd", None | Some(TargetKind::Mdt)) => Some(layer),
        ("mdt", None | Some(TargetKind::Mdt)) => Some(device_type(TargetKind::Mdt)),
        ("obdfilter" | "ost", None | Some(TargetKind::Ost)) => Some(device_type(TargetKind::Ost)),
        (layer, Some(TargetKind::Mdt | TargetKind::Ost)) if layer.starts_with("osd") => Some("osd-weft"),
        _ => None,
    }
}

fn wrong(parameter: &str) -> Failure {
    Failure::usage(format!(
        "{parameter}: write a target or the file system, its layer and the parameter, as in w-OST0001.osc.active or w.llite.max_cached_mb; 'lctl set_param -P' takes every name that 'lctl list_param' shows"
    ))
}

/// What the lines of `lctl llog_print` set: those of other events, and empty ones, set nothing.
pub fn lines(text: &str) -> Result<Vec<Kept>, Failure> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || {
            Failure::usage(format!(
                "line {number}: '{line}': write lines as 'lctl llog_print params' prints them"
            ))
        };
        let inner = line.strip_prefix("- {").and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
        let field = |name: &str| {
            let (_, behind) = inner.split_once(&format!(" {name}: "))?;
            // A value may have anything in it: it is the last one.
            Some(if name == "value" { behind.trim_end() } else { behind.split(',').next()?.trim() })
        };
        match field("event").ok_or_else(wrong)? {
            "set_param" => {
                let (name, value) =
                    (field("parameter").ok_or_else(wrong)?, field("value").ok_or_else(wrong)?);
                all.push(Kept { fsname: None, name: name.to_owned(), value: value.to_owned() });
            }
            "conf_param" => {
                let (device, parameter) =
                    (field("device").ok_or_else(wrong)?, field("parameter").ok_or_else(wrong)?);
                all.push(of_device(device, parameter, field("value").ok_or_else(wrong)?)?);
            }
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conf_param_names_the_device_first() {
        for (text, fsname, name) in [
            ("w-OST0001.osc.active=0", "w", "osc.w-OST0001-*.active"),
            ("w.osc.max_dirty_mb=64", "w", "osc.w-*.max_dirty_mb"),
            ("w.llite.max_cached_mb=128", "w", "llite.w-*.max_cached_mb"),
            ("my-fs.llite.max_cached_mb=128", "my-fs", "llite.my-fs-*.max_cached_mb"),
            ("w-MDT0000.lov.qos_threshold_rr=25", "w", "lod.w-MDT0000-*.qos_threshold_rr"),
            ("w-MDT0000.lod.qos_prio_free=80", "w", "lod.w-MDT0000-*.qos_prio_free"),
            ("w-MDT0000.mdd.changelog_mask=ALL", "w", "mdd.w-MDT0000.changelog_mask"),
            ("my-fs-MDT0000.mdt.commit_on_sharing=1", "my-fs", "mdt.my-fs-MDT0000.commit_on_sharing"),
            ("w.mdt.commit_on_sharing=1", "w", "mdt.w-*.commit_on_sharing"),
            ("w-OST000a.obdfilter.sync_journal=1", "w", "obdfilter.w-OST000a.sync_journal"),
            ("w-OST0000.ost.sync_journal=1", "w", "obdfilter.w-OST0000.sync_journal"),
            ("w-OST0000.osd-ldiskfs.read_cache_enable=1", "w", "osd-weft.w-OST0000.read_cache_enable"),
            ("w.sys.jobid_var=SLURM_JOB_ID", "w", "jobid_var"),
        ] {
            let kept = parsed(text, false).expect(text);
            assert_eq!((kept.fsname.as_deref(), kept.name.as_str()), (Some(fsname), name));
            assert_eq!(Some(kept.value.as_str()), text.split_once('=').map(|(_, value)| value));
        }
        let deleted = parsed("w-OST0001.osc.active", true).expect("no value is needed");
        assert_eq!((deleted.name.as_str(), deleted.value.as_str()), ("osc.w-OST0001-*.active", ""));
        for text in [
            "w-OST0001.osc.active",
            "osc=1",
            "w.osc=1",
            "w-OST0000.mdt.x=1",
            "w.x.y=1",
            "w-OST0001.llite.a=1",
        ] {
            assert!(parsed(text, false).is_err(), "{text}");
        }
    }

    #[test]
    fn lines_are_those_of_llog_print() {
        let text = "
- { index: 2, event: set_param, device: general, parameter: osc.*.max_dirty_mb, value: 64 }
# of an older one
- { index: 3, event: conf_param, device: w-OST0001, parameter: osc.active, value: 0 }
- { index: 4, event: attach, device: w-OST0001, type: osc, UUID: x }
- { index: 5, event: set_param, device: general, parameter: mdt.*.rule, value: a, value: {b} }
";
        let lines: Vec<(String, String)> =
            lines(text).expect("lines").into_iter().map(|kept| (kept.name, kept.value)).collect();
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            lines,
            [
                line("osc.*.max_dirty_mb", "64"),
                line("osc.w-OST0001-*.active", "0"),
                line("mdt.*.rule", "a, value: {b}")
            ]
        );
        for text in
            ["osc.*.max_dirty_mb=64", "- { index: 2 }", "- { index: 2, event: set_param, parameter: a }"]
        {
            assert!(super::lines(text).is_err(), "{text}");
        }
    }
}
