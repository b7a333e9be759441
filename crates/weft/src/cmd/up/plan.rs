//! What is to be started: as the options say, the settings in the data directory, and what is known of the mount point.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use proto::{FsName, Nid, TargetId, TargetKind};

use super::Arguments;
use crate::cmd::format::text;
use crate::cmd::mount::{MountOptions, Unknown};
use crate::daemon::Place;
use crate::failure::Failure;
use crate::instances::{self, Instance};
use crate::mountpoint;
use crate::settings::{self, Found, Settings};

const OSS_DEFAULT: u32 = 2;
const OSTS_DEFAULT: u32 = 4;
const FSNAME_DEFAULT: &str = "weft";

/// What is to be started.
pub struct Plan {
    pub mountpoint: PathBuf,
    pub data: PathBuf,
    pub fsname: FsName,
    pub oss: u32,
    pub osts: u32,
    /// What the data directory held before; `None` for a new one.
    pub before: Option<Settings>,
    pub listen: Option<Nid>,
    pub options: MountOptions,
    /// Whether the machine may be told to use FUSE over io_uring.
    pub may_permit_uring: bool,
    /// The process that started this one has told it, and this one puts it back.
    pub uring_was_off: bool,
    pub place: Place,
}

impl Plan {
    /// What is to be known of it later.
    pub fn instance(&self) -> Instance {
        Instance {
            mountpoint: self.mountpoint.clone(),
            fsname: self.fsname.to_string(),
            data: self.data.clone(),
            listen: self.listen.as_ref().map(ToString::to_string),
            options: self.options.to_text(),
        }
    }

    /// What a process in the background is started with.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["up".into(), self.mountpoint.clone().into()];
        arguments.extend(["--data".into(), self.data.clone().into()]);
        arguments.extend(["--fsname".into(), self.fsname.to_string().into()]);
        arguments.extend(["--oss".into(), self.oss.to_string().into()]);
        arguments.extend(["--osts".into(), self.osts.to_string().into()]);
        if let Some(listen) = &self.listen {
            arguments.extend(["--listen".into(), listen.to_string().into()]);
        }
        arguments.extend(["-o".into(), self.options.to_text().into()]);
        arguments
    }

    /// Every target, in the order of starting: the MGS first, which the others register with.
    pub fn targets(&self) -> impl Iterator<Item = TargetId> + use<> {
        [TargetId::MGS, TargetId::mdt(0)].into_iter().chain((0..self.osts).map(TargetId::ost))
    }

    /// Where a target lies.
    pub fn directory(&self, target: TargetId) -> PathBuf {
        self.data.join(target.to_string())
    }

    /// What people call a target.
    pub fn target_name(&self, target: TargetId) -> String {
        if target == TargetId::MGS { "MGS".into() } else { format!("{}-{target}", self.fsname) }
    }

    /// Neighbours share a server, as with OSTs 0 and 1 on the first of two servers and 2 and 3 on the second.
    pub fn server_of(&self, target: TargetId) -> String {
        match target.kind {
            TargetKind::Ost => {
                let oss = u64::from(target.index) * u64::from(self.oss.min(self.osts)) / u64::from(self.osts);
                format!("oss{oss}")
            }
            _ => "mds0".into(),
        }
    }

    /// What is written down in the data directory.
    pub fn settings(&self) -> Settings {
        Settings { fsname: self.fsname.to_string(), oss: self.oss, osts: self.osts }
    }

    /// Whether the settings promise the target: they are written when all are made.
    pub fn existed(&self, target: TargetId) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| target.kind != TargetKind::Ost || target.index < before.osts)
    }
}

/// The plan that the command's arguments come to.
pub fn resolve(arguments: Arguments, place: Place) -> Result<Plan, Failure> {
    let mountpoint = mountpoint::absolute(&arguments.mountpoint)?;
    // It is written down, so that the next `weft up` there finds the data again.
    text(&mountpoint)?;
    let known = if arguments.data.is_none() { instances::find(&mountpoint)? } else { None };
    let arguments = recalled(arguments, known)?;
    if arguments.listen.as_ref().is_some_and(Nid::is_lo) {
        return Err(Failure::usage("0@lo cannot be listened at; write --listen ADDRESS@tcp"));
    }
    let options = MountOptions::parse(&arguments.options, Unknown::Refused)?;
    if options.client.key.is_some() {
        return Err(Failure::usage("a file system that is made here has keys of its own; leave key= out"));
    }
    let data = match &arguments.data {
        Some(data) => data.clone(),
        None => default_data(arguments.fsname.as_ref())?,
    };
    let data =
        std::path::absolute(&data).map_err(|error| Failure::new(format!("{}: {error}", data.display())))?;
    text(&data)?;
    let found = settings::read(&data)?;
    let (fsname, oss, osts) = reconcile(&arguments, &data, &found)?;
    let before = if let Found::Whole(before) = found { Some(before) } else { None };
    let (listen, may_permit_uring) = (arguments.listen, !arguments.no_uring && place != Place::Child);
    let uring_was_off = arguments.uring_was_off;
    Ok(Plan {
        mountpoint,
        data,
        fsname,
        oss,
        osts,
        before,
        listen,
        options,
        may_permit_uring,
        uring_was_off,
        place,
    })
}

/// The arguments with what is known of the mount point, unless they name other data.
fn recalled(arguments: Arguments, known: Option<Instance>) -> Result<Arguments, Failure> {
    let Some(known) = known.filter(|_| arguments.data.is_none()) else { return Ok(arguments) };
    if arguments.fsname.as_ref().is_some_and(|fsname| fsname.as_str() != known.fsname) {
        return Ok(arguments);
    }
    if !settings::are_in(&known.data) {
        return Err(Failure::new(format!(
            "file system {} was at {} before, and its data is not in {} now; mount the disk that has it, or name its directory with --data (an empty one is made a new file system)",
            known.fsname,
            known.mountpoint.display(),
            known.data.display()
        )));
    }
    let listen = known.listen.as_deref().map(str::parse).transpose();
    let listen = listen.map_err(|error| Failure::new(format!("{error}; name the address with --listen")))?;
    let options = if arguments.options.is_empty() { known.options } else { arguments.options };
    Ok(Arguments { data: Some(known.data), listen: arguments.listen.or(listen), options, ..arguments })
}

/// What the options and what is there make together; an error if they contradict each other.
pub fn reconcile(arguments: &Arguments, data: &Path, found: &Found) -> Result<(FsName, u32, u32), Failure> {
    let data = data.display();
    let named = |settings: &Settings| {
        let fsname = settings.fsname.parse();
        fsname.map_err(|error| {
            Failure::new(format!("the settings in {data}: {error}; restore the file from a copy"))
        })
    };
    let (before, fsname) = match found {
        Found::Whole(before) => (before, named(before)?),
        Found::Nothing => return new(arguments, FSNAME_DEFAULT, OSS_DEFAULT, OSTS_DEFAULT),
        Found::Begun(begun) => {
            let fsname: FsName = named(begun)?;
            if arguments.fsname.as_ref().is_some_and(|wanted| *wanted != fsname) {
                return Err(Failure::new(format!(
                    "file system {fsname} was being made in {data}; leave --fsname out, remove that directory, or name another one with --data"
                )));
            }
            return new(arguments, &begun.fsname, begun.oss, begun.osts);
        }
    };
    match &arguments.fsname {
        Some(wanted) if *wanted != fsname => {
            return Err(Failure::new(format!(
                "{data} holds file system {fsname}, not {wanted}; leave --fsname out, or name another directory with --data"
            )));
        }
        _ => {}
    }
    match arguments.oss {
        Some(wanted) if wanted != before.oss => {
            return Err(Failure::new(format!(
                "{data} was made with --oss {}, which cannot become {wanted}; leave --oss out, or name another directory with --data",
                before.oss
            )));
        }
        _ => {}
    }
    match arguments.osts {
        Some(wanted) if wanted < before.osts => Err(Failure::new(format!(
            "{data} has {} OSTs, which cannot become {wanted}: OSTs can be added, not taken away; leave --osts out",
            before.osts
        ))),
        wanted => Ok((fsname, before.oss, wanted.unwrap_or(before.osts))),
    }
}

/// What a new file system is to be: as the options say, or else as is given.
fn new(arguments: &Arguments, fsname: &str, oss: u32, osts: u32) -> Result<(FsName, u32, u32), Failure> {
    let fsname = match &arguments.fsname {
        Some(fsname) => fsname.clone(),
        None => fsname.parse().map_err(|error| Failure::new(format!("{error}")))?,
    };
    let osts = arguments.osts.unwrap_or(osts);
    let oss = arguments.oss.unwrap_or(oss.min(osts));
    if oss > osts {
        return Err(Failure::usage(format!(
            "--oss {oss} servers have nothing to serve with {osts} OSTs; give each an OST with --osts {oss}, or take fewer servers"
        )));
    }
    Ok((fsname, oss, osts))
}

fn default_data(fsname: Option<&FsName>) -> Result<PathBuf, Failure> {
    Ok(instances::base()?.join(fsname.map_or(FSNAME_DEFAULT, FsName::as_str)))
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    pub struct Line {
        #[command(flatten)]
        pub arguments: Arguments,
    }

    fn check(line: &str, before: Option<(&str, u32, u32)>) -> Result<(String, u32, u32), String> {
        let line = Line::try_parse_from(line.split(' ')).expect("a line that parses");
        let settings = |(fsname, oss, osts): (&str, _, _)| Settings { fsname: fsname.into(), oss, osts };
        let found = before.map_or(Found::Nothing, |before| Found::Whole(settings(before)));
        let result = reconcile(&line.arguments, Path::new("/d"), &found);
        result.map(|(fsname, oss, osts)| (fsname.to_string(), oss, osts)).map_err(|failure| failure.message)
    }

    #[test]
    fn options_and_data_are_reconciled() {
        assert_eq!(check("up /m", None), Ok(("weft".into(), 2, 4)));
        assert_eq!(check("up /m --osts 1", None), Ok(("weft".into(), 1, 1)));
        assert_eq!(check("up /m", Some(("a", 3, 9))), Ok(("a".into(), 3, 9)));
        assert_eq!(check("up /m --osts 10", Some(("a", 3, 9))), Ok(("a".into(), 3, 10)));
        let message = check("up /m --oss 5 --osts 2", None).expect_err("three servers without an OST");
        assert!(message.contains("--osts 5"), "{message}");
        for (line, said) in [
            ("up /m --osts 8", "has 9 OSTs"),
            ("up /m --oss 2", "--oss 3"),
            ("up /m --fsname b", "holds file system a, not b"),
        ] {
            let message = check(line, Some(("a", 3, 9))).expect_err("a contradiction");
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn what_was_there_before_is_recalled() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().to_owned();
        let known = Instance {
            mountpoint: "/m".into(),
            fsname: "x".into(),
            data: data.clone(),
            listen: Some("127.0.0.1:7001@tcp".into()),
            options: "nosuid".into(),
        };
        let recall = |line: &str| {
            let line = Line::try_parse_from(line.split(' ')).expect("a line that parses");
            recalled(line.arguments, Some(known.clone())).map_err(|failure| failure.message)
        };
        let gone = recall("up /m").err().expect("there is no data");
        assert!(gone.contains("file system x was at /m before"), "{gone}");
        settings::begin(&data, &Settings { fsname: "x".into(), oss: 1, osts: 1 }).expect("a file");
        for line in ["up /m", "up /m --fsname x"] {
            let again = recall(line).expect("it is there");
            assert_eq!((again.data.as_ref(), again.options.as_str()), (Some(&data), "nosuid"), "{line}");
            assert_eq!(again.listen.map(|nid| nid.to_string()), known.listen, "{line}");
        }
        let other = recall("up /m --listen 127.0.0.1:7002@tcp -o ro").expect("it is there");
        assert_eq!((other.data, other.options.as_str()), (Some(data), "ro"));
        for line in ["up /m --data /elsewhere", "up /m --fsname y"] {
            let new = recall(line).expect("it is another one");
            assert!(new.listen.is_none() && new.options.is_empty(), "{line}");
        }
    }

    pub fn plan(oss: u32, osts: u32) -> Plan {
        Plan {
            mountpoint: PathBuf::new(),
            data: PathBuf::new(),
            fsname: "weft".parse().expect("a name"),
            oss,
            osts,
            before: None,
            listen: None,
            options: MountOptions::default(),
            may_permit_uring: false,
            uring_was_off: false,
            place: Place::Foreground,
        }
    }

    #[test]
    fn neighbouring_osts_share_a_server() {
        let servers = |oss, osts| {
            let plan = plan(oss, osts);
            (0..osts).map(|index| plan.server_of(TargetId::ost(index))).collect::<Vec<_>>()
        };
        assert_eq!(servers(2, 4), ["oss0", "oss0", "oss1", "oss1"]);
        assert_eq!(servers(2, 5), ["oss0", "oss0", "oss0", "oss1", "oss1"]);
        assert_eq!(servers(2, 1), ["oss0"]);
    }
}
