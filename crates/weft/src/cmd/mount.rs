//! `weft mount`: mounts a file system whose servers run elsewhere.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::engine::Choice;
use fuse::session::{Locking, Options};
use mounting::Source;
use mounting::connect::connect;
use rpc::{Keys, Role};
use rt::wait::unless;

use crate::daemon::{self, Place};
use crate::failure::{Failure, Outcome};
use crate::mountpoint::{self, State};
use crate::{keys, serving};

/// Mount a file system.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which one: NID:/FSNAME, for example 10.1.1.2@tcp:/weft
    #[arg(value_name = "MGSNID:/FSNAME")]
    source: String,
    /// Where
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// Mount options with commas between, as in /etc/fstab: ro, nosuid, nodev, noexec, noatime, nodiratime, key=FILE,
    /// flock, localflock, noflock, fuse_engine=auto|uring|dev, max_cached_mb=N, max_dirty_mb=N, mem_limit_mb=N,
    /// unmount_wait=SECONDS, protect=mac|mac-crc|encrypt[+ADDRESS/BITS=WAY]...
    #[arg(short, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// The clients' key [default: /etc/weft/FSNAME.client.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Stay in front, and log to standard error
    #[arg(long)]
    foreground: bool,
    #[arg(long = "background-child", hide = true)]
    child: bool,
}

/// The engine of mounts whose options name none, so that a test suite can be run on each.
const ENGINE_VARIABLE: &str = "WEFT_FUSE_ENGINE";
/// How long the process tries to tell the servers what it has after an unmount, while nothing moves: a server that restarts
/// first waits for the clients that it had.
const UNMOUNT_WAIT: Duration = Duration::from_secs(300);

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// Which file system.
    pub source: Source,
    /// Where.
    pub mountpoint: PathBuf,
    /// How.
    pub options: MountOptions,
    /// In front or behind.
    pub place: Place,
}

/// Mount options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// For the kernel.
    pub read_only: bool,
    no_suid: bool,
    no_dev: bool,
    no_exec: bool,
    no_atime: bool,
    no_dir_atime: bool,
    /// For the client.
    pub client: mounting::Options,
    /// How requests come from the kernel.
    engine: Option<Choice>,
    /// Where file locks are.
    locking: Locking,
    /// How long the process tries to tell the servers what it has after an unmount while nothing moves, in seconds.
    unmount_wait: Option<u32>,
    /// Others, which mount(8), systemd and Lustre's users know and which mean nothing here.
    ignored: Vec<String>,
}

/// Options that are understood and change nothing: how and when to mount, and what is so anyway.
const IGNORED: &[&str] = &[
    "defaults",
    "rw",
    "suid",
    "dev",
    "exec",
    "atime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "nolazytime",
    "async",
    "acl",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user",
    "users",
    "nouser",
    "group",
    "owner",
    "lazystatfs",
    "user_xattr",
    "user_fid2path",
    "always_ping",
    "verbose",
];

/// Options that are known and cannot be had, and why: nothing is promised that is not kept.
const REFUSED: &[(&str, &str)] = &[
    ("remount", "nothing is mounted there by this command; use \"mount -o remount,... MOUNTPOINT\""),
    ("strictatime", "access times follow relatime"),
    ("lazytime", "access times follow relatime"),
    ("sync", "open files with O_SYNC, or call fsync"),
    ("dirsync", "call fsync for the directory"),
    ("mand", "there are no mandatory locks"),
    ("noacl", "ACLs are always heeded"),
    ("nouser_xattr", "extended attributes are always there"),
];

/// What becomes of mount options that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    Refused,
    /// As mount(8) asks for with `-s`.
    LetPass,
}

impl MountOptions {
    /// Parses options with commas between.
    pub fn parse(text: &str, unknown: Unknown) -> Result<MountOptions, Failure> {
        let mut options = MountOptions::default();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            match option {
                "ro" => options.read_only = true,
                "rw" => options.read_only = false,
                "nosuid" => options.no_suid = true,
                "suid" => options.no_suid = false,
                "nodev" => options.no_dev = true,
                "dev" => options.no_dev = false,
                "noexec" => options.no_exec = true,
                "exec" => options.no_exec = false,
                "noatime" => options.no_atime = true,
                "atime" => options.no_atime = false,
                "nodiratime" => options.no_dir_atime = true,
                "diratime" => options.no_dir_atime = false,
                "flock" => options.locking = Locking::Shared,
                "localflock" => options.locking = Locking::Local,
                "noflock" => options.locking = Locking::Off,
                _ => options.other(option, unknown)?,
            }
        }
        Ok(options)
    }

    fn other(&mut self, option: &str, unknown: Unknown) -> Result<(), Failure> {
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == option) {
            return Err(Failure::usage(format!("mount option \"{option}\" is not available: {why}")));
        }
        if self.client.take(option)? {
            return Ok(());
        }
        if let Some(engine) = option.strip_prefix("fuse_engine=") {
            let wrong = |why| Failure::usage(format!("mount option \"{option}\": {why}"));
            self.engine = Some(engine.parse().map_err(wrong)?);
            return Ok(());
        }
        if let Some(seconds) = option.strip_prefix("unmount_wait=") {
            let wrong =
                |_| Failure::usage(format!("mount option \"{option}\": it takes a number of seconds"));
            self.unmount_wait = Some(seconds.parse().map_err(wrong)?);
            return Ok(());
        }
        let known = IGNORED.contains(&option)
            || ["x-", "comment=", "retry=", "subtype="].iter().any(|prefix| option.starts_with(prefix));
        if !known && unknown == Unknown::Refused {
            return Err(Failure::usage(format!("mount option \"{option}\" is not known; leave it out")));
        }
        self.ignored.push(option.to_owned());
        Ok(())
    }

    /// As the kernel's side needs them.
    pub fn session(&self, source: String) -> Result<Options, Failure> {
        let engine = self.engine()?;
        Ok(Options {
            source,
            read_only: self.read_only,
            no_suid: self.no_suid,
            no_dev: self.no_dev,
            no_exec: self.no_exec,
            no_atime: self.no_atime,
            no_dir_atime: self.no_dir_atime,
            engine,
            locking: self.locking,
        })
    }

    /// How requests are to come from the kernel.
    pub fn engine(&self) -> Result<Choice, Failure> {
        match (self.engine, std::env::var(ENGINE_VARIABLE)) {
            (Some(engine), _) => Ok(engine),
            (None, Ok(text)) => {
                text.parse().map_err(|why| Failure::usage(format!("{ENGINE_VARIABLE}: {why}")))
            }
            (None, Err(_)) => Ok(Choice::Auto),
        }
    }

    /// How long the process tries to tell the servers what it has after an unmount, while nothing moves.
    pub fn unmount_wait(&self) -> Duration {
        self.unmount_wait.map_or(UNMOUNT_WAIT, |seconds| Duration::from_secs(seconds.into()))
    }

    /// The same options, to be parsed again by the process in the background.
    pub fn to_text(&self) -> String {
        let flags = [
            (self.read_only, "ro"),
            (self.no_suid, "nosuid"),
            (self.no_dev, "nodev"),
            (self.no_exec, "noexec"),
            (self.no_atime, "noatime"),
            (self.no_dir_atime, "nodiratime"),
            (self.locking == Locking::Local, "localflock"),
            (self.locking == Locking::Off, "noflock"),
        ];
        let engine = self.engine.map(|engine| format!("fuse_engine={engine}"));
        let flags = flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned());
        let wait = self.unmount_wait.map(|seconds| format!("unmount_wait={seconds}"));
        flags.chain(engine).chain(wait).chain(self.client.to_text()).collect::<Vec<_>>().join(",")
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Outcome {
    let mut options = MountOptions::parse(&arguments.options, Unknown::Refused)?;
    options.client.key = arguments.key.or(options.client.key);
    mount(Request {
        source: Source::parse(&arguments.source)?,
        mountpoint: arguments.mountpoint,
        options,
        place: Place::from_flags(arguments.foreground, arguments.child),
    })
}

/// Mounts.
pub fn mount(mut request: Request) -> Outcome {
    request.mountpoint = free_mountpoint(&request.mountpoint)?;
    let key = keys::resolve(request.options.client.key.as_deref(), &request.source.fsname, Role::Client)?;
    let key =
        std::path::absolute(&key).map_err(|error| Failure::new(format!("{}: {error}", key.display())))?;
    if request.place == Place::Background {
        keys::read(&key)?;
        let mut arguments: Vec<OsString> = vec!["mount".into(), request.source.to_string().into()];
        arguments.extend([request.mountpoint.clone().into(), "--key".into(), key.into()]);
        arguments.extend(["-o".into(), request.options.to_text().into()]);
        daemon::launch(&arguments, &log_file(&request.mountpoint)?)?;
        return Ok(0);
    }
    request.place.enter()?;
    let outcome = serve(&request, &key);
    if let Err(failure) = &outcome {
        request.place.failed(failure);
    }
    outcome
}

fn serve(request: &Request, key: &Path) -> Outcome {
    let signals = serving::catch_signals()?;
    fuse::session::flush_io_first();
    let (node, rt) = serving::start_runtime_within(request.options.client.mem_limit_mb)?;
    let keys = Keys { server: None, client: Some(keys::read(key)?) };
    node.block_on(async {
        let source = &request.source;
        let hub = serving::hub(&rt, &source.fsname, keys, request.options.client.protect.clone());
        let client = unless(signals.wait(), connect(&hub, source, &request.options.client)).await;
        let client = client.ok_or_else(interrupted)??;
        if request.place.is_abandoned() {
            let _ = client.unmount().await;
            return Err(interrupted());
        }
        let status = serving::status(&source.fsname, &source.mgs);
        let options = request.options.session(source.to_string())?;
        let mounted = match serving::mount(&rt, &client, &request.mountpoint, &options, status).await {
            Ok(mounted) => mounted,
            Err(failure) => {
                // Nothing was written, so nothing can be lost.
                let _ = client.unmount().await;
                return Err(failure);
            }
        };
        request.place.ready(&format!("{source} is mounted at {}", request.mountpoint.display()));
        let patience = request.options.unmount_wait();
        let outcome = serving::serve_mount(&rt, mounted, &client, &signals, patience).await;
        hub.close().await;
        outcome
    })
}

/// Whoever wanted the mount does not wait for it any more.
pub fn interrupted() -> Failure {
    Failure::new("it was told to stop before it was mounted; nothing was changed")
}

/// The mount point, if it can be mounted on. What a process left behind that is gone is cleaned up.
fn free_mountpoint(path: &Path) -> Result<PathBuf, Failure> {
    let path = mountpoint::absolute(path)?;
    let name = path.display();
    match mountpoint::state(&path)? {
        State::Free => {}
        State::Up(status) => {
            return Err(Failure::new(format!(
                "file system {} is mounted at {name} already; unmount it with \"umount {name}\" first",
                status.fsname
            )));
        }
        State::Silent => return Err(mountpoint::silent(&path)),
        State::Dead => fuse::session::detach(&path).map_err(|error| {
            Failure::new(format!(
                "the dead mount at {name} cannot be taken away: {error}; run \"umount -l {name}\""
            ))
        })?,
        State::Foreign(entry) => {
            return Err(Failure::new(format!(
                "{} ({}) is mounted at {name}; name another mount point",
                entry.source, entry.kind
            )));
        }
    }
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(Failure::new(format!("{name} is not a directory; name a directory to mount on"))),
        Err(error) => Err(Failure::new(format!(
            "{name}: {}; make the directory first",
            crate::control::describe(&error)
        ))),
    }
}

/// One log for each mount point.
fn log_file(mountpoint: &Path) -> Result<PathBuf, Failure> {
    let directory = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/log/weft")
    } else {
        keys::user_directory("XDG_STATE_HOME", ".local/state")?
    };
    let name = mountpoint.to_string_lossy().trim_matches('/').replace('/', "-");
    Ok(directory.join(format!("mount-{name}.log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_parsed() {
        let options =
            MountOptions::parse("rw,_netdev,noauto,nosuid,key=/k,x-systemd.automount", Unknown::Refused)
                .expect("options of fstab");
        assert_eq!(options.client.key, Some(PathBuf::from("/k")));
        assert_eq!(options.to_text(), "nosuid");
        assert_eq!(MountOptions::parse("", Unknown::Refused).expect("none"), MountOptions::default());
        let engine = MountOptions::parse("ro,fuse_engine=uring", Unknown::Refused).expect("an engine");
        assert_eq!(engine.to_text(), "ro,fuse_engine=uring");
        let small =
            MountOptions::parse("max_dirty_mb=8,nosuid,max_cached_mb=1", Unknown::Refused).expect("limits");
        assert_eq!(small.to_text(), "nosuid,max_cached_mb=1,max_dirty_mb=8");
        assert_eq!(
            MountOptions::parse("max_cached_mb=0", Unknown::LetPass).map_err(|failure| failure.status),
            Err(2)
        );
        let wait = MountOptions::parse("unmount_wait=7", Unknown::Refused).expect("seconds");
        assert_eq!(
            (wait.to_text().as_str(), wait.unmount_wait()),
            ("unmount_wait=7", Duration::from_secs(7))
        );
        assert_eq!(
            MountOptions::parse("unmount_wait=soon", Unknown::LetPass).map_err(|failure| failure.status),
            Err(2)
        );
        let locking = |text| MountOptions::parse(text, Unknown::Refused).expect("options").to_text();
        assert_eq!((locking("flock").as_str(), locking("flock,localflock").as_str()), ("", "localflock"));
        assert_eq!(locking("ro,noflock"), "ro,noflock");
        assert_eq!(
            MountOptions::parse("fuse_engine=fast", Unknown::LetPass).map_err(|failure| failure.status),
            Err(2)
        );
        assert_eq!(MountOptions::parse("flok", Unknown::Refused).map_err(|failure| failure.status), Err(2));
        assert!(MountOptions::parse("flok", Unknown::LetPass).is_ok());
        for option in ["remount", "strictatime", "sync", "dirsync", "noacl"] {
            let refused = MountOptions::parse(option, Unknown::LetPass).expect_err("it cannot be had");
            assert!(refused.message.contains(option), "{}", refused.message);
        }
        let fine = "relatime,acl,nodiratime,noatime,async";
        assert_eq!(
            MountOptions::parse(fine, Unknown::Refused).expect("they are so").to_text(),
            "noatime,nodiratime"
        );
    }
}
