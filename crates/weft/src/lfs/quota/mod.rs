//! `lfs quota` and `lfs setquota`: what users, groups and projects have, and may have.

mod grace;
mod set;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fuse::quotas::{Asked, Owner, QUOTA};
use fuse::session::MountEntry;
use proto::wire::messages::{
    QUOTA_DEFAULT_ID, QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER, QuotaState, QuotaUse, TargetUsage,
};
use proto::wire::{Body, Reader};
use proto::{DataTarget, TargetId};

use crate::ask;
use crate::failure::Failure;
use crate::lfs::Outcome;
use crate::lfs::find::numbers::{Database, Outside, World, name_of};

pub use set::{Arguments as SetArguments, run as set};

/// Print what a user, group or project has, and may have; without -u, -g and -p what the caller and its groups have.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// A user, by name or number
    #[arg(short = 'u', long, value_name = "USER", num_args = 0..=1, default_missing_value = "")]
    user: Option<String>,
    /// A group, by name or number
    #[arg(short = 'g', long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "", conflicts_with = "user")]
    group: Option<String>,
    /// A project, by its number
    #[arg(short = 'p', long, value_name = "PROJECT", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["user", "group"])]
    projid: Option<String>,
    /// What users may have of whom nothing else was said
    #[arg(short = 'U', long, conflicts_with_all = ["user", "group", "projid"])]
    default_usr: bool,
    /// The same of groups
    #[arg(short = 'G', long, conflicts_with_all = ["user", "group", "projid", "default_usr"])]
    default_grp: bool,
    /// The same of projects
    #[arg(short = 'P', long, conflicts_with_all = ["user", "group", "projid", "default_usr", "default_grp"])]
    default_prj: bool,
    /// Without titles
    #[arg(short = 'q', long)]
    quiet: bool,
    /// How long all users or groups may be above their soft limits
    #[arg(short = 't', long)]
    times: bool,
    /// Space with units
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// What of it lies on which target, too
    #[arg(short = 'v', long)]
    verbose: bool,
    /// What lies on the OSTs of a pool; without a name that of each pool
    #[arg(long, value_name = "POOL", num_args = 0..=1, default_missing_value = "")]
    pool: Option<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
    /// A path in the file system
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Whose quota a line is about.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    /// One of `QUOTA_*`; none if none was said.
    kind: Option<u8>,
    /// Its name or number; empty if none was said.
    name: String,
    path: PathBuf,
}

impl Named {
    /// What holds for all of a kind.
    fn default_of(kind: u8, path: Option<&PathBuf>) -> Result<Named, Failure> {
        let path = path.ok_or_else(no_path)?;
        Ok(Named { kind: Some(kind), name: String::new(), path: path.clone() })
    }

    /// What follows `-u`, `-g` or `-p` is the path if nothing else is, and if it cannot be a name or number.
    fn of([user, group, project]: [Option<&String>; 3], path: Option<&PathBuf>) -> Result<Named, Failure> {
        let kinds = [(QUOTA_USER, user), (QUOTA_GROUP, group), (QUOTA_PROJECT, project)];
        let said = kinds.into_iter().find_map(|(kind, name)| Some((kind, name?.clone())));
        let (kind, name) = said.map_or((None, String::new()), |(kind, name)| (Some(kind), name));
        match path {
            Some(path) => Ok(Named { kind, name, path: path.clone() }),
            None if name.contains('/') || name.starts_with('.') => {
                Ok(Named { kind, name: String::new(), path: name.into() })
            }
            None => Err(no_path()),
        }
    }
}

fn no_path() -> Failure {
    Failure::usage("error: quota: name a path in the file system: lfs quota [-q] [-u USER] PATH")
}

/// The pool that is named, if any is, and the path: a pool's name has no slash, so what has one is the path.
fn pool_and_path(arguments: &Arguments) -> (Option<&str>, Option<PathBuf>) {
    let pool = arguments.pool.as_deref();
    match pool.filter(|pool| arguments.path.is_none() && (pool.contains('/') || pool.starts_with('.'))) {
        Some(path) => (Some(""), Some(path.into())),
        None => (pool, arguments.path.clone()),
    }
}

/// Of which pools is asked: `None` is all that there is.
fn pools_of(mount: &MountEntry, pool: Option<&str>) -> Result<Vec<Option<String>>, Failure> {
    match pool {
        None => Ok(vec![None]),
        Some("") => {
            let told = crate::pools::names(mount).map_err(|error| refused("quota", mount, &error))?;
            Ok(told.names.into_iter().map(Some).collect())
        }
        Some(pool) => named_pool("quota", pool).map(|pool| vec![Some(pool)]),
    }
}

/// A pool that one can ask for.
fn named_pool(command: &str, pool: &str) -> Result<String, Failure> {
    crate::pools::check_name(command, pool).map(|()| pool.to_owned())
}

/// Runs `lfs quota`.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { user, group, projid, .. } = arguments;
    let (pool, path) = pool_and_path(arguments);
    let kinds = [arguments.default_usr, arguments.default_grp, arguments.default_prj];
    if let Some(kind) = default_kind(kinds) {
        return of_all(arguments, (&Named::default_of(kind, path.as_ref())?, pool), kind);
    }
    let said = [user, group, projid].map(Option::as_ref);
    // Grace times are those of all: what follows -u, -g or -p is no name.
    let only = said.into_iter().flatten().next().filter(|_| arguments.times);
    let path = path.or_else(|| only.map(PathBuf::from));
    let Named { kind, name, path } = Named::of(said, path.as_ref())?;
    if arguments.times {
        return times(&path, kind.unwrap_or(QUOTA_USER), pool);
    }
    let owners = match (kind, name.as_str()) {
        (Some(QUOTA_PROJECT), "") => return Err(Failure::usage("-p takes the number of a project")),
        (Some(kind), "") => vec![own(kind)],
        (Some(kind), name) => vec![owner(kind, name)?],
        (None, _) => own_owners(),
    };
    let mount = mount_of("quota", &path)?;
    let pools = pools_of(&mount, pool)?;
    for owner in owners {
        if !arguments.quiet {
            crate::out::print(titles(owner));
        }
        for pool in &pools {
            let state = read(&mount, owner, pool).map_err(|error| refused("quota", &mount, &error))?;
            crate::out::print(title_of(arguments, pool));
            let rows = Rows { human: arguments.human_readable, verbose: arguments.verbose };
            crate::out::print(rows.of(&mount, &state) + &of_whom(owner, &state));
        }
    }
    Ok(0)
}

/// The kind of owners of which -U, -G or -P asks for what all may have.
fn default_kind([user, group, project]: [bool; 3]) -> Option<u8> {
    let kinds = [(QUOTA_USER, user), (QUOTA_GROUP, group), (QUOTA_PROJECT, project)];
    kinds.into_iter().find_map(|(kind, is_meant)| is_meant.then_some(kind))
}

/// The line above that of a pool, if all are listed.
fn title_of(arguments: &Arguments, pool: &Option<String>) -> String {
    let is_one = arguments.pool.as_ref() == pool.as_ref();
    pool.as_ref().filter(|_| !is_one).map_or(String::new(), |pool| format!("Quotas for pool: {pool}\n"))
}

/// What all owners of a kind may have.
fn of_all(arguments: &Arguments, (named, pool): (&Named, Option<&str>), kind: u8) -> Outcome {
    let mount = mount_of("quota", &named.path)?;
    let pools = pools_of(&mount, pool)?;
    if !arguments.quiet {
        crate::out::print(default_titles(kind));
    }
    for pool in &pools {
        let state = read(&mount, Owner { kind, id: QUOTA_DEFAULT_ID }, pool);
        let state = state.map_err(|error| refused("quota", &mount, &error))?;
        crate::out::print(title_of(arguments, pool));
        crate::out::print(
            Rows { human: arguments.human_readable, verbose: false }.of_all(&mount.path, &state),
        );
    }
    Ok(0)
}

/// The caller's user or group.
fn own(kind: u8) -> Owner {
    let id = match kind {
        QUOTA_USER => rustix::process::geteuid().as_raw(),
        _ => rustix::process::getegid().as_raw(),
    };
    Owner { kind, id }
}

/// The caller, and the groups that it is in.
fn own_owners() -> Vec<Owner> {
    let mut owners = vec![own(QUOTA_USER), own(QUOTA_GROUP)];
    for group in rustix::process::getgroups().unwrap_or_default() {
        let group = Owner { kind: QUOTA_GROUP, id: group.as_raw() };
        if !owners.contains(&group) {
            owners.push(group);
        }
    }
    owners
}

/// A user or group by name or number.
fn owner(kind: u8, name: &str) -> Result<Owner, Failure> {
    let (database, what) = match kind {
        QUOTA_USER => (Some(Database::Users), "user"),
        QUOTA_GROUP => (Some(Database::Groups), "group"),
        _ => (None, "project"),
    };
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    // 4294967295 is nobody: chown(2) takes it for "as before".
    let id = match is_number {
        true => name.parse().ok().filter(|id| *id != u32::MAX),
        false => database.and_then(|database| Outside.id(database, OsStr::new(name))),
    };
    let id = id.ok_or_else(|| match is_number {
        true => Failure::usage(format!("{name} is no {what}'s number; the largest is {}", u32::MAX - 1)),
        false => Failure::usage(format!("there is no {what} \"{name}\"; write its number")),
    })?;
    Ok(Owner { kind, id })
}

/// The mount that holds `path`.
fn mount_of(command: &str, path: &Path) -> Result<MountEntry, Failure> {
    let mounts = super::mounts(Some(path))?.mounts;
    let nowhere = || Failure::new(format!("{command}: {} is not in a weft file system", path.display()));
    mounts.into_iter().next().ok_or_else(nowhere)
}

fn read(mount: &MountEntry, owner: Owner, pool: &Option<String>) -> io::Result<QuotaState> {
    let asked = Asked { owner, pool: pool.clone() };
    let bytes = ask::bytes(mount, &format!("{QUOTA}{asked}"))?;
    QuotaState::take_fields(&mut Reader::new(Bytes::from(bytes)))
        .map_err(|_| io::Error::other("its answer is not understood; it may run another version"))
}

/// Why the MDT, or the mount, did not do it.
fn refused(command: &str, mount: &MountEntry, error: &io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) if command == "quota" => {
            "only root sees what is not its own or its groups'".to_owned()
        }
        Some(libc::EPERM) => "only root sets quotas".to_owned(),
        Some(libc::EOPNOTSUPP | libc::ENODATA | libc::ENOTTY) => {
            "its MDT, or the mount, runs an older version without quotas, or without those of pools"
                .to_owned()
        }
        Some(libc::ENOENT) => "there is no such pool; lfs pool_list shows those that there are".to_owned(),
        Some(libc::EHOSTUNREACH) => "its MDT does not answer".to_owned(),
        Some(libc::EINVAL) => "the soft limit is above the hard one".to_owned(),
        Some(libc::ERANGE) => "the time is too long".to_owned(),
        Some(libc::E2BIG) => "there are too many limits; take some away with --delete".to_owned(),
        _ => crate::control::describe(error),
    };
    Failure::new(format!("{command}: {}: {why}", mount.path.display()))
}

fn times(path: &Path, kind: u8, pool: Option<&str>) -> Outcome {
    let mount = mount_of("quota", path)?;
    for pool in pools_of(&mount, pool)? {
        let state = read(&mount, own(kind), &pool).map_err(|error| refused("quota", &mount, &error))?;
        let blocks = state.bytes.map_or("none".to_owned(), |bytes| grace::text(bytes.grace_s));
        out!("Block grace time: {blocks}; Inode grace time: {}", grace::text(state.inodes.grace_s));
    }
    Ok(0)
}

/// Lustre's short name of a kind, and the letter before "id".
fn kind_name(kind: u8) -> (&'static str, char) {
    match kind {
        QUOTA_USER => ("usr", 'u'),
        QUOTA_GROUP => ("grp", 'g'),
        _ => ("prj", 'p'),
    }
}

/// Lines that say that an owner has no limits of its own, as Lustre writes them; here only if there are some for all.
fn of_whom(owner: Owner, state: &QuotaState) -> String {
    let (_, short) = kind_name(owner.kind);
    let line = |what: &str, of: Option<&QuotaUse>| match of.is_some_and(|of| of.is_default) {
        true => format!("{short}id {} is using default {what} quota setting\n", owner.id),
        false => String::new(),
    };
    line("block", state.bytes.as_ref()) + &line("file", Some(&state.inodes))
}

/// Two lines of titles of what all of a kind may have.
fn default_titles(kind: u8) -> String {
    let mut text = format!("Disk default {} quota:\n{:>15} ", kind_name(kind).0, "Filesystem");
    for title in ["bquota", "blimit", "bgrace"] {
        text += &format!("{title:>8}");
    }
    text.push(' ');
    for title in ["iquota", "ilimit", "igrace"] {
        text += &format!("{title:>8}");
    }
    text + "\n"
}

/// Two lines of titles, as `lfs` 2.16 writes them.
fn titles(owner: Owner) -> String {
    let database = match owner.kind {
        QUOTA_USER => Some(Database::Users),
        QUOTA_GROUP => Some(Database::Groups),
        _ => None,
    };
    let (kind, short) = kind_name(owner.kind);
    let name = database.and_then(|database| name_of(database, owner.id));
    let name = name.unwrap_or_else(|| owner.id.to_string());
    let id = owner.id;
    let mut text = format!("Disk quotas for {kind} {name} ({short}id {id}):\n");
    let columns = ["kbytes", "bquota", "blimit", "bgrace", "files", "iquota", "ilimit", "igrace"];
    text += &format!("{:>15}", "Filesystem");
    columns.iter().for_each(|title| text += &format!("{title:>8}"));
    text.push('\n');
    text
}

/// How the numbers are written.
#[derive(Clone, Copy)]
struct Rows {
    /// Space with units.
    human: bool,
    /// A line for each target.
    verbose: bool,
}

impl Rows {
    /// The lines of one owner, as `lfs` 2.16 writes them.
    fn of(self, mount: &MountEntry, state: &QuotaState) -> String {
        // The source ends with it: `10.1.1.2@tcp:/weft`.
        let fsname = mount.source.rsplit('/').next().unwrap_or_default();
        self.lines(&mount.path, fsname, state)
    }

    fn lines(self, mount: &Path, fsname: &str, state: &QuotaState) -> String {
        let mount = mount.display().to_string();
        let mut text = if mount.len() > 15 { format!("{mount}\n{:>15}", "") } else { format!("{mount:>15}") };
        let is_known = state.targets.iter().all(|of| of.bytes.is_some());
        let nothing = "      -       -       -       -";
        match &state.bytes {
            Some(bytes) => text += &columns(bytes, |number| self.space(number), is_known),
            None => text += &format!(" {nothing}"),
        }
        text += &columns(&state.inodes, |number| number.to_string(), true);
        text.push('\n');
        for TargetUsage { target, bytes } in state.targets.iter().filter(|_| self.verbose) {
            let used = bytes.map_or("[0]".to_owned(), |bytes| self.space(bytes));
            let name = match target {
                DataTarget::Ost(ost) => TargetId::ost(*ost),
                DataTarget::Mdt(mdt) => TargetId::mdt(*mdt),
            };
            let files = match target {
                DataTarget::Ost(_) => "-".to_owned(),
                DataTarget::Mdt(_) => state.inodes.used.to_string(),
            };
            text += &format!("{fsname}-{name}_UUID\n{:>15} {used:>7}  {:>6} {:>7} {:>7}", "", "-", "-", "-");
            text += &format!(" {files:>7}  {:>6} {:>7} {:>7}\n", "-", "-", "-");
        }
        if !is_known {
            text += "Some targets do not answer. The numbers in \"[]\" are too small.\n";
        }
        text
    }

    /// The line of what all owners of a kind may have.
    fn of_all(self, mount: &Path, state: &QuotaState) -> String {
        let limits = |of: &QuotaUse, number: &dyn Fn(u64) -> String| {
            format!(" {:>7} {:>7} {:>7}", number(of.soft), number(of.hard), grace::text(of.grace_s))
        };
        let bytes = match &state.bytes {
            Some(bytes) => limits(bytes, &|number| self.space(number)),
            None => format!(" {:>7} {:>7} {:>7}", "-", "-", "-"),
        };
        let inodes = limits(&state.inodes, &|number| number.to_string());
        format!("{:>15} {bytes} {inodes}\n", mount.display().to_string())
    }

    /// Bytes in KiB, or with a unit.
    fn space(self, bytes: u64) -> String {
        let kib = bytes.div_ceil(1024);
        match self.human {
            false => kib.to_string(),
            true if kib < 1024 => format!("{kib}k"),
            true => crate::size::cooked(bytes, 1024.0).trim().to_owned(),
        }
    }
}

/// What an owner has, and its two limits, and the time that is left.
fn columns(of: &QuotaUse, number: impl Fn(u64) -> String, is_known: bool) -> String {
    let QuotaUse { used, soft, hard, deadline_s, left_s, .. } = *of;
    let is_full = hard != 0 && used >= hard;
    let grace = match left_s {
        _ if is_full || deadline_s == 0 => "-".to_owned(),
        0 => "none".to_owned(),
        left_s => grace::text(left_s),
    };
    let star = if is_full || deadline_s != 0 { '*' } else { ' ' };
    let used = if is_known { number(used) } else { format!("[{}]", number(used)) };
    format!(" {used:>7}{star} {:>6} {:>7} {grace:>7}", number(soft), number(hard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::OstIndex;

    #[test]
    fn a_number_is_an_owners_only_if_one_can_have_it() {
        let user = |text: &str| owner(QUOTA_USER, text).map(|owner| owner.id);
        assert_eq!(user("0"), Ok(0));
        assert_eq!(user("4294967294"), Ok(u32::MAX - 1));
        for wrong in ["4294967295", "4294967296", "99999999999999999999", ""] {
            assert!(user(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_path_may_stand_where_a_name_could() {
        let text = |text: &str| text.to_owned();
        let path = PathBuf::from("/mnt");
        let named = |user: &str, path| Named::of([Some(&text(user)), None, None], path);
        let of_bob = Named { kind: Some(QUOTA_USER), name: text("bob"), path: path.clone() };
        assert_eq!(named("bob", Some(&path)), Ok(of_bob));
        let of_none = Named { kind: Some(QUOTA_USER), name: String::new(), path: path.clone() };
        assert_eq!(named("/mnt", None), Ok(of_none));
        let of_all = Named { kind: None, name: String::new(), path: path.clone() };
        assert_eq!(Named::of([None; 3], Some(&path)), Ok(of_all));
        assert!(Named::of([None; 3], None).is_err());
        assert_eq!(named("./d", None).map(|named| named.path), Ok(PathBuf::from("./d")));
        for owner in ["0", "bob", ""] {
            let told = named(owner, None).map_err(|failure| failure.message);
            assert!(told.is_err_and(|told| told.ends_with("lfs quota [-q] [-u USER] PATH")), "{owner}");
        }
    }

    fn lines(mount: &str, inodes: &QuotaUse, bytes: Option<&QuotaUse>, rows: Rows) -> String {
        let ost = |index, bytes| TargetUsage { target: OstIndex(index).into(), bytes };
        let targets = match rows.verbose {
            true => vec![ost(0, Some(4096)), ost(10, None)],
            false => Vec::new(),
        };
        let state = QuotaState { inodes: inodes.clone(), bytes: bytes.cloned(), targets };
        rows.lines(Path::new(mount), "w", &state)
    }

    const PLAIN: Rows = Rows { human: false, verbose: false };

    #[test]
    fn the_table_is_lustres() {
        let inodes = QuotaUse {
            used: 12,
            soft: 10,
            hard: 20,
            deadline_s: 1,
            left_s: 3661,
            grace_s: 604_800,
            is_default: false,
        };
        let owner = Owner { kind: QUOTA_USER, id: u32::MAX - 1 };
        let expected = "\
Disk quotas for usr 4294967294 (uid 4294967294):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace
              /       -       -       -       -      12*     10      20  1h1m1s
";
        assert_eq!(titles(owner) + &lines("/", &inodes, None, PLAIN), expected);
        let none = QuotaUse {
            used: 3,
            soft: 0,
            hard: 0,
            deadline_s: 0,
            left_s: 0,
            grace_s: 604_800,
            is_default: false,
        };
        let bytes = QuotaUse { used: 5 << 20, soft: 0, hard: 4 << 20, ..none.clone() };
        let expected = "\
/mnt/a/long/path
                   5120*      0    4096       -       3       0       0       -
";
        assert_eq!(lines("/mnt/a/long/path", &none, Some(&bytes), PLAIN), expected);
        let late = QuotaUse { left_s: 0, ..inodes.clone() };
        assert!(lines("/", &late, None, PLAIN).ends_with("12*     10      20    none\n"));
        let full = QuotaUse { used: 20, ..inodes };
        assert!(lines("/", &full, None, PLAIN).ends_with("20*     10      20       -\n"));
    }

    #[test]
    fn targets_have_lines_of_their_own() {
        let none =
            QuotaUse { used: 1, soft: 0, hard: 0, deadline_s: 0, left_s: 0, grace_s: 0, is_default: false };
        let bytes = QuotaUse { used: 4096, hard: 3 << 29, ..none.clone() };
        let rows = Rows { human: true, verbose: true };
        // A first line that begins with blanks cannot follow a line end that is left out.
        let expected = "              /    [4k]      0k    1.5G       -       1       0       0       -
w-OST0000_UUID
                     4k       -       -       -       -       -       -       -
w-OST000a_UUID
                    [0]       -       -       -       -       -       -       -
Some targets do not answer. The numbers in \"[]\" are too small.
";
        assert_eq!(lines("/", &none, Some(&bytes), rows), expected);
    }

    /// `print_quota_title` and `print_quota` of Lustre's `lfs`.
    #[test]
    fn what_all_may_have_has_a_line_of_its_own() {
        let inodes = QuotaUse {
            used: 0,
            soft: 10,
            hard: 20,
            deadline_s: 0,
            left_s: 0,
            grace_s: 604_800,
            is_default: true,
        };
        let bytes = QuotaUse { soft: 0, hard: 5 << 20, ..inodes.clone() };
        let state = QuotaState { inodes, bytes: Some(bytes), targets: Vec::new() };
        let shown = default_titles(QUOTA_PROJECT) + &PLAIN.of_all(Path::new("/mnt/w"), &state);
        let expected = "Disk default prj quota:
     Filesystem   bquota  blimit  bgrace   iquota  ilimit  igrace
         /mnt/w        0    5120      1w       10      20      1w
";
        assert_eq!(shown, expected);
        let owner = Owner { kind: QUOTA_USER, id: 1000 };
        let said =
            "uid 1000 is using default block quota setting\nuid 1000 is using default file quota setting\n";
        assert_eq!(of_whom(owner, &state), said);
        let inodes = QuotaUse { is_default: false, ..state.inodes.clone() };
        let said = "uid 1000 is using default block quota setting\n";
        assert_eq!(of_whom(owner, &QuotaState { inodes, ..state }), said);
    }
}
