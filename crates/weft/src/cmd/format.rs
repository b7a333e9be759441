//! `weft format`: makes a target in a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proto::parameters::{Glob, may_fit_any};
use proto::settings::SETTINGS_MAX;
use proto::{ClientId, FsName, Nid, TargetId};
use rpc::Role;
use rt::Rt;
use store::{Label, Store, StoreError};

use crate::failure::{Failure, Outcome};
use crate::lctl::{conf, kept};
use crate::{keys, serving};

/// Make a target in a directory.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("kind").required(true))]
pub struct Arguments {
    /// Make the management server
    #[arg(long, group = "kind")]
    mgs: bool,
    /// Make a metadata target
    #[arg(long, group = "kind")]
    mdt: bool,
    /// Make an object storage target
    #[arg(long, group = "kind")]
    ost: bool,
    /// Name of the file system: 1 to 8 letters, digits, - or _
    #[arg(long, value_name = "NAME")]
    fsname: FsName,
    /// Index among the targets of its kind; not used before
    #[arg(long, value_name = "N")]
    index: Option<u32>,
    /// Where the management server is, for example 10.1.1.2@tcp; can be given several times
    #[arg(long, value_name = "NID")]
    mgsnode: Vec<String>,
    /// An address of a server that may serve the target, the first one before the others; given several times if several
    /// servers reach the directory
    #[arg(long, value_name = "NID[,NID]")]
    servicenode: Vec<String>,
    /// Take the place of the OST with this index, which is lost or was removed
    #[arg(long, conflicts_with_all = ["mdt", "mgs"])]
    replace: bool,
    /// A parameter that the MGS is to keep from the first start of the target on, as "lctl conf_param" has it without the target: obdfilter.sync_journal=1;
    /// given several times for several
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "mgs")]
    param: Vec<String>,
    /// With --mgs: where to make the servers' key, and the clients' key beside it [default: /etc/weft/NAME.server.key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Directory of the target; made if missing, has to be empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Largest index of a target.
const INDEX_MAX: u32 = proto::limits::TARGETS_MAX as u32 - 1;

/// Runs the command.
pub fn run(arguments: Arguments) -> Outcome {
    let target = target(&arguments)?;
    let service = service_nodes(&arguments)?;
    let mut mgs = Vec::new();
    for node in &arguments.mgsnode {
        mgs.extend(crate::nids::parse_list(node)?);
    }
    let parameters = parameters(&arguments, target)?;
    let directory = std::path::absolute(&arguments.directory)
        .map_err(|error| Failure::new(format!("{}: {error}", arguments.directory.display())))?;
    let (node, rt) = serving::start_runtime()?;
    let Arguments { fsname, key, replace, .. } = arguments;
    let keys = node.block_on(async {
        let keys = match target {
            // A directory that is going to be refused leaves no keys behind, and keys that cannot be made leave no directory.
            TargetId::MGS if may_be_empty(&directory) => {
                let made = make_directory(&directory)?;
                let keys = make_keys(&rt, &fsname, key.as_deref());
                if keys.is_err() {
                    take_away(&made);
                }
                Some(keys?)
            }
            _ => None,
        };
        let new = NewTarget { fsname: fsname.clone(), target, mgs, service };
        format(&rt, &directory, new).await?;
        let keys = match keys {
            None if target == TargetId::MGS => Some(make_keys(&rt, &fsname, key.as_deref())?),
            keys => keys,
        };
        let unopened = |error: StoreError| {
            Failure::new(format!(
                "{} cannot be opened: {error}; remove it and try again",
                directory.display()
            ))
        };
        if replace {
            server::replace_lost(&rt, text(&directory)?).await.map_err(unopened)?;
        }
        if !parameters.is_empty() {
            server::give_parameters(&rt, text(&directory)?, &parameters).await.map_err(unopened)?;
        }
        Ok::<_, Failure>(keys)
    })?;
    let name = if target == TargetId::MGS { "the MGS of ".to_owned() } else { String::new() };
    let of = if target == TargetId::MGS { fsname.to_string() } else { format!("{fsname}-{target}") };
    out!("{name}{of} is in {}; serve it with \"weft serve {}\"", directory.display(), directory.display());
    if let Some((server, client)) = keys {
        out!(
            "the servers' key is {}, the clients' is {}; copy both to the other servers, and the second to the clients, each with mode 0600",
            server.display(),
            client.display()
        );
    }
    Ok(0)
}

fn target(arguments: &Arguments) -> Result<TargetId, Failure> {
    if arguments.mgs {
        if arguments.index.is_some_and(|index| index != 0) || !arguments.mgsnode.is_empty() {
            return Err(Failure::usage("the MGS has no --index and no --mgsnode; leave them out"));
        }
        return Ok(TargetId::MGS);
    }
    if arguments.mgsnode.is_empty() {
        return Err(Failure::usage("a target has to know where the MGS is; add --mgsnode NID"));
    }
    let index = match arguments.index {
        Some(index) if index > INDEX_MAX => {
            return Err(Failure::usage(format!("--index {index} is too large; the largest is {INDEX_MAX}")));
        }
        Some(index) => index,
        None if arguments.mdt => 0,
        None => return Err(Failure::usage("an OST needs an index that no other has; add --index N")),
    };
    match (arguments.mdt, index) {
        (true, 0) => Ok(TargetId::mdt(0)),
        (true, _) => Err(Failure::new("there is one MDT as yet; use --index 0")),
        (false, index) => Ok(TargetId::ost(index)),
    }
}

/// What the MGS is to keep, by the names that it has there. The number of parameters is bounded as that of what it keeps is.
fn parameters(arguments: &Arguments, target: TargetId) -> Result<Vec<(String, String)>, Failure> {
    if arguments.param.len() > SETTINGS_MAX {
        return Err(Failure::usage(format!(
            "a file system has at most {SETTINGS_MAX} parameters that are kept"
        )));
    }
    let device = format!("{}-{target}", arguments.fsname);
    let parsed = |text: &String| {
        let of_target = conf::parsed(&format!("{device}.{text}"), false);
        let kept = of_target.or_else(|_| conf::parsed(&format!("{}.{text}", arguments.fsname), false))?;
        kept::checked(&kept.name, &kept.value)?;
        if !may_fit_any(&Glob::new(&kept.name)) {
            return Err(Failure::usage(format!("--param {text}: nothing has a parameter {}", kept.name)));
        }
        Ok((kept.name, kept.value))
    };
    arguments.param.iter().map(parsed).collect()
}

fn service_nodes(arguments: &Arguments) -> Result<Vec<Nid>, Failure> {
    let mut service = Vec::new();
    for node in &arguments.servicenode {
        service.extend(crate::nids::parse_list(node)?);
    }
    if service.iter().any(Nid::is_lo) {
        return Err(Failure::usage("0@lo is no address that others reach; write --servicenode ADDRESS@tcp"));
    }
    if service.len() > proto::limits::NIDS_MAX {
        let max = proto::limits::NIDS_MAX;
        return Err(Failure::usage(format!("a target has at most {max} addresses of service nodes")));
    }
    if arguments.mgs && !service.is_empty() {
        return Err(Failure::usage(
            "the MGS says who serves what, and so has no service nodes itself; leave --servicenode out",
        ));
    }
    Ok(service)
}

/// Whether a target may be made there: there is nothing, or a directory with nothing in it but what `mkfs` makes.
fn may_be_empty(directory: &Path) -> bool {
    match fs::read_dir(directory) {
        Ok(entries) => entries.flatten().all(|entry| entry.file_name() == "lost+found"),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Makes the directory, and gives what it made, that and those above it that were missing.
fn make_directory(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let missing = directory.ancestors().take_while(|above| !above.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
    fs::create_dir_all(directory).map_err(|error| {
        take_away(&missing);
        let why = crate::control::describe(&error);
        Failure::new(format!("{} cannot be formatted: {why}", directory.display()))
    })?;
    Ok(missing)
}

/// Removes directories that were just made, the last one first; those with something in them stay.
fn take_away(made: &[PathBuf]) {
    made.iter().for_each(|directory| drop(fs::remove_dir(directory)));
}

/// Makes both keys of a file system, where they are missing: the servers' and the clients'.
pub fn make_keys(rt: &Rt, fsname: &FsName, server_key: Option<&Path>) -> Result<(PathBuf, PathBuf), Failure> {
    let server = keys::resolve(server_key, fsname, Role::Server)?;
    let beside = server.parent().unwrap_or(Path::new("/"));
    let client = keys::path(beside, fsname, Role::Client);
    keys::create(rt, &server)?;
    keys::create(rt, &client)?;
    Ok((server, client))
}

/// What a new target is.
pub struct NewTarget {
    /// The file system that it belongs to.
    pub fsname: FsName,
    /// Its name there.
    pub target: TargetId,
    /// Where the MGS is; nowhere, for the MGS itself.
    pub mgs: Vec<Nid>,
    /// Servers that may serve it; none if that is the one in whose directory it is.
    pub service: Vec<Nid>,
}

/// Makes a target in `directory`.
pub async fn format(rt: &Rt, directory: &Path, new: NewTarget) -> Result<(), Failure> {
    let NewTarget { fsname, target, mgs, service } = new;
    let text = text(directory)?;
    make_private(directory)?;
    let uuid = ClientId(u128::from(rt.random_u64()) << 64 | u128::from(rt.random_u64()));
    let label = Label { fsname, target, uuid, mgs, service };
    Store::format(rt, text, &label).await.map_err(|error| match error {
        StoreError::NotATarget(why) => {
            Failure::new(format!("{text} cannot be formatted: {why}; name an empty directory"))
        }
        StoreError::Io(error) => {
            Failure::new(format!("{text} cannot be formatted: {}", crate::control::describe(&error)))
        }
        other => Failure::new(format!("{text} cannot be formatted: {other}")),
    })
}

/// Takes the rights of others away from a directory that is there already, and empty: what comes into it is for the
/// servers only. One that is not empty is not touched, since it is not going to be a target.
fn make_private(directory: &Path) -> Result<(), Failure> {
    let Ok(mut entries) = fs::read_dir(directory) else { return Ok(()) };
    if entries.next().is_some() {
        return Ok(());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(|error| {
        let name = directory.display();
        Failure::new(format!(
            "others can read {name}, and its mode cannot be changed: {error}; run \"chmod 700 {name}\""
        ))
    })
}

/// The path as text, which the parts below need.
pub fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::new(format!("{}: a path has to be UTF-8 text here", path.display())))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn parameters_are_of_the_target_or_of_the_file_system() {
        let of = |kind: &str, params: &[&str]| {
            let line = ["format", kind, "--fsname", "w", "--index", "0", "--mgsnode", "10.0.0.1@tcp", "/t"];
            let params = params.iter().flat_map(|param| ["--param", param]);
            let parsed = Line::try_parse_from(line.into_iter().chain(params)).expect("a line").arguments;
            let target = target(&parsed)?;
            parameters(&parsed, target)
                .map(|all| all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        };
        let ost = of("--ost", &["obdfilter.sync_journal=1", "osc.max_dirty_mb=8", "sys.jobid_var=a=b"]);
        assert_eq!(
            ost.expect("they are its own"),
            ["obdfilter.w-OST0000.sync_journal=1", "osc.w-OST0000-*.max_dirty_mb=8", "jobid_var=a=b"]
        );
        let mdt = of("--mdt", &["lov.qos_threshold_rr=25%", "llite.max_cached_mb=64"]);
        assert_eq!(
            mdt.expect("they are its own"),
            ["lod.w-MDT0000-*.qos_threshold_rr=25%", "llite.w-*.max_cached_mb=64"]
        );
        for wrong in ["sync_journal=1", "obdfilter.sync_journal", "sys.timeout=40", "mdt.rule=a\nb"] {
            assert!(of("--ost", &[wrong]).is_err(), "{wrong}");
        }
        assert_eq!(of("--mdt", &[]).expect("none"), [""; 0]);
    }

    /// A disk of its own has a directory `lost+found`, and is empty all the same.
    #[test]
    fn an_mgs_has_keys_and_one_that_is_refused_leaves_none() {
        let temp = tempfile::tempdir().expect("a directory for tests");
        let (disk, full) = (temp.path().join("disk"), temp.path().join("full"));
        fs::create_dir_all(disk.join("lost+found")).expect("it can be made");
        fs::create_dir_all(full.join("something")).expect("it can be made");
        let made = |directory: &Path, keys: &str| {
            let key = temp.path().join(keys).join("server.key");
            let line =
                [OsStr::new("format"), "--mgs".as_ref(), "--fsname".as_ref(), "w".as_ref(), "--key".as_ref()];
            let line = line.into_iter().chain([key.as_os_str(), directory.as_os_str()]);
            let made = run(Line::try_parse_from(line).expect("a line").arguments).is_ok();
            let keys = fs::read_dir(key.parent().expect("it has one")).expect("it was made").count();
            (made, keys)
        };
        assert_eq!(made(&disk, "a"), (true, 2));
        fs::create_dir(temp.path().join("b")).expect("it can be made");
        assert_eq!(made(&full, "b"), (false, 0));
        // What was there stays.
        assert_eq!(made(&full, "a"), (false, 2));
        let (nowhere, below_a_file) = (temp.path().join("nowhere"), temp.path().join("file/below"));
        std::os::unix::fs::symlink("is/not", &nowhere).expect("it can be made");
        fs::write(temp.path().join("file"), "").expect("it can be written");
        assert_eq!(made(&nowhere, "b"), (false, 0));
        assert_eq!(made(&below_a_file, "b"), (false, 0));
        // Its key is a directory.
        fs::create_dir_all(temp.path().join("c/server.key")).expect("it can be made");
        assert_eq!(made(&temp.path().join("new/mgs"), "c"), (false, 1));
        assert!(!temp.path().join("new").exists());
    }

    #[test]
    fn a_target_is_for_nobody_else_and_no_other_directory_is_touched() {
        let temp = tempfile::tempdir().expect("a directory for tests");
        let made = |name: &str| {
            let path = temp.path().join(name);
            fs::create_dir(&path).expect("it can be made");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
            path
        };
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let (empty, full) = (made("empty"), made("full"));
        fs::write(full.join("file"), "something").expect("it can be written");
        let (node, rt) = serving::start_runtime().expect("a runtime starts");
        let format_at = |path: &Path| {
            let fsname = "weft".parse().expect("a file system name");
            let (target, mgs) = (TargetId::ost(0), vec![Nid::lo()]);
            node.block_on(format(&rt, path, NewTarget { fsname, target, mgs, service: Vec::new() }))
        };
        format_at(&empty).expect("it is empty");
        assert_eq!(mode(&empty), 0o700);
        assert!(format_at(&full).is_err());
        assert_eq!(mode(&full), 0o755);
    }
}
