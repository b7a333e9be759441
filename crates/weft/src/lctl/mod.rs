//! `lctl`: what an administrator asks of a node. Most of Lustre's sub-commands are not available yet and say so.

mod changelog;
pub mod conf;
mod devices;
mod dk;
mod drain;
pub mod kept;
mod lfsck;
mod orders;
pub mod params;
mod pools;
mod processes;
pub mod reach;
mod removal;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{Failure, Outcome, exit};
use crate::usage;
use params::Printed;
use reach::Reach;

/// Look at the file systems of this machine, and give orders to its servers.
#[derive(Parser)]
#[command(name = "lctl", version)]
struct Arguments {
    /// The device that a command is for: its name, or its number in "lctl dl"
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The servers' key: reach the servers of every file system that is mounted here, too
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List devices: number, state, type, name, uuid, references
    #[command(visible_alias = "device_list")]
    Dl,
    /// Print parameters
    #[command(name = "get_param")]
    GetParam {
        /// Print the value only
        #[arg(short = 'n')]
        value_only: bool,
        /// Print the name only
        #[arg(short = 'N', conflicts_with = "value_only")]
        name_only: bool,
        /// Names; * stands for anything
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// List names of parameters
    #[command(name = "list_param")]
    ListParam {
        /// List what is below as well
        #[arg(short = 'R')]
        recursive: bool,
        /// Put = behind those that can be set
        #[arg(short = 'F')]
        classify: bool,
        /// Names; * stands for anything
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Set parameters
    #[command(name = "set_param")]
    SetParam {
        /// Do not print the names
        #[arg(short = 'n')]
        value_only: bool,
        /// Have the MGS keep it for every process of the file system that has such a parameter, now and at each start
        #[arg(short = 'P', long = "perm")]
        keep: bool,
        /// With -P: the MGS keeps it no longer
        #[arg(short = 'd', long, requires = "keep")]
        delete: bool,
        /// With -P or -F: the file system, where the MGS of several is reached
        #[arg(long, value_name = "FSNAME")]
        fsname: Option<String>,
        /// Have the MGS keep what is in a file, in lines as "lctl llog_print params" prints them
        #[arg(short = 'F', long, value_name = "FILE", conflicts_with_all = ["value_only", "delete", "settings"])]
        file: Option<PathBuf>,
        /// Names, * standing for anything, and values
        #[arg(required_unless_present = "file", value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
    /// Have the MGS keep parameters, which are named by the device first, as in w-OST0001.osc.active=0
    #[command(name = "conf_param")]
    ConfParam {
        /// The MGS keeps it no longer
        #[arg(short = 'd')]
        delete: bool,
        /// The target or the file system, a layer, a parameter of it, and the value
        #[arg(required = true, value_name = "TARGET.PARAMETER=VALUE")]
        settings: Vec<String>,
    },
    /// Print what the MGS keeps: its parameters ("params")
    #[command(name = "llog_print")]
    LlogPrint {
        /// What to print: params
        #[arg(value_name = "LOG")]
        log: String,
    },
    /// End the recovery of a target: clients that have not come back are evicted
    #[command(name = "abort_recovery")]
    AbortRecovery {
        /// The target [default: the one that --device names]
        #[arg(value_name = "DEVICE")]
        device: Option<String>,
    },
    /// Register one more reader of an MDT's changelog: from now on changes are recorded for it
    #[command(name = "changelog_register")]
    ChangelogRegister {
        /// Print the reader's name only
        #[arg(short = 'n', long = "nameonly")]
        brief: bool,
    },
    /// Register a reader of an MDT's changelog no more
    #[command(name = "changelog_deregister")]
    ChangelogDeregister {
        /// The reader, as in cl1
        #[arg(value_name = "ID", value_parser = crate::changelog::user)]
        user: u32,
    },
    /// Have a client write everything and give back all that it holds, before its machine is turned off
    Drain {
        /// The client: its UUID, or the address of a machine, as in 10.0.0.7@tcp
        #[arg(value_name = "CLIENT")]
        client: String,
    },
    /// Make a pool, which has no OSTs yet
    #[command(name = "pool_new")]
    PoolNew(pools::Pool),
    /// Add OSTs to a pool
    #[command(name = "pool_add")]
    PoolAdd(pools::Members),
    /// Take OSTs out of a pool
    #[command(name = "pool_remove")]
    PoolRemove(pools::Members),
    /// Destroy a pool that has no OSTs
    #[command(name = "pool_destroy")]
    PoolDestroy(pools::Pool),
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList(pools::Listed),
    /// Take an OST out of the file system; what files still have on it cannot be read then
    #[command(name = "del_ost")]
    DelOst(removal::Removal),
    /// Check the file system while it is in use: names, objects, data
    #[command(name = "lfsck_start")]
    LfsckStart(lfsck::Start),
    /// End a check
    #[command(name = "lfsck_stop")]
    LfsckStop(lfsck::At),
    /// Say how far a check is, and what it found. Exit status 1: it found something; 4: the MDT could not be asked
    #[command(name = "lfsck_query")]
    LfsckQuery(lfsck::Query),
    /// Print the last lines that the servers and mounts of this machine have logged, in order of time, and forget them
    #[command(name = "debug_kernel", visible_alias = "dk")]
    DebugKernel {
        /// Write them to a file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Forget what the servers and mounts of this machine have logged
    Clear,
    /// Write a line into the log of each server and mount of this machine
    Mark {
        /// The line [default: the time]
        #[arg(value_name = "TEXT")]
        text: Vec<String>,
    },
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Lustre's sub-commands that are not available yet.
const NOT_YET: &[&str] = &[
    "activate",
    "apply_yaml",
    "attach",
    "barrier_freeze",
    "barrier_rescan",
    "barrier_stat",
    "barrier_thaw",
    "blockdev_attach",
    "blockdev_detach",
    "cleanup",
    "clear_conf",
    "conn_list",
    "deactivate",
    "debug_daemon",
    "debug_file",
    "debug_list",
    "detach",
    "erase_lcfg",
    "filter",
    "find_param",
    "fork_lcfg",
    "help_param",
    "lcfg_clear",
    "lcfg_erase",
    "lcfg_fork",
    "list_nids",
    "llog_cancel",
    "llog_catlist",
    "llog_info",
    "llog_remove",
    "lock_server",
    "modules",
    "net",
    "network",
    "nodemap_activate",
    "nodemap_add",
    "nodemap_add_idmap",
    "nodemap_add_range",
    "nodemap_del",
    "nodemap_del_idmap",
    "nodemap_del_range",
    "nodemap_info",
    "nodemap_modify",
    "nodemap_set_fileset",
    "nodemap_test_id",
    "nodemap_test_nid",
    "panic",
    "pcc",
    "pcc_add",
    "pcc_clear",
    "pcc_del",
    "pcc_list",
    "peer_list",
    "ping",
    "readonly",
    "recover",
    "replace_nids",
    "route_list",
    "setup",
    "show_route",
    "snapshot_create",
    "snapshot_destroy",
    "snapshot_list",
    "snapshot_modify",
    "snapshot_mount",
    "snapshot_umount",
    "somsync",
    "which_nid",
];

/// How lines for `lctl` are written.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// The program called as `lctl`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    match usage::parse(arguments) {
        Ok(arguments) => exit("lctl", run(arguments)),
        Err(status) => status,
    }
}

fn run(arguments: Arguments) -> Outcome {
    let reach = || Reach::new(arguments.key.as_deref());
    match arguments.command {
        Command::Dl => devices::list(&reach()?),
        Command::GetParam { value_only, name_only, names } => {
            let shown = match (value_only, name_only) {
                (true, _) => Printed::Value,
                (_, true) => Printed::Name,
                _ => Printed::Both,
            };
            params::get(&mut reach()?, &names, shown)
        }
        Command::ListParam { classify, names, .. } => {
            params::get(&mut reach()?, &names, if classify { Printed::Classified } else { Printed::Name })
        }
        Command::SetParam { file: Some(file), fsname, .. } => {
            kept::set_from(&mut reach()?, fsname.as_deref(), &file)
        }
        Command::SetParam { keep: true, delete, fsname, settings, .. } => {
            kept::set(&mut reach()?, fsname.as_deref(), &settings, delete)
        }
        Command::ConfParam { delete, settings } => kept::set_of_devices(&mut reach()?, &settings, delete),
        Command::SetParam { fsname: Some(_), .. } => {
            Err(Failure::usage("--fsname says whose MGS keeps a parameter: add -P, or leave it out"))
        }
        Command::SetParam { value_only, settings, .. } => params::set(&mut reach()?, &settings, value_only),
        Command::LlogPrint { log } => kept::print(&mut reach()?, &log),
        Command::ChangelogRegister { brief } => {
            let mut reach = reach()?;
            let device = devices::find_mdt(&reach, arguments.device, "changelog_register")?;
            changelog::register(&mut reach, &device, brief)
        }
        Command::ChangelogDeregister { user } => {
            let mut reach = reach()?;
            let device = devices::find_mdt(&reach, arguments.device, "changelog_deregister cl1")?;
            changelog::deregister(&mut reach, &device, user)
        }
        Command::AbortRecovery { device } => {
            let named = device.or(arguments.device);
            let named = named
                .ok_or_else(|| Failure::usage("name the target: lctl --device w-MDT0000 abort_recovery"))?;
            let mut reach = reach()?;
            let device = devices::find(&reach, &named)?;
            orders::abort_recovery(&mut reach, &device).map(|()| 0)
        }
        Command::Drain { client } => drain::run(&mut reach()?, &client),
        Command::PoolNew(asked) => pools::make(&mut reach()?, &asked),
        Command::PoolAdd(asked) => pools::add(&mut reach()?, &asked),
        Command::PoolRemove(asked) => pools::remove(&mut reach()?, &asked),
        Command::PoolDestroy(asked) => pools::destroy(&mut reach()?, &asked),
        Command::PoolList(asked) => pools::list(&mut reach()?, &asked),
        Command::DelOst(_) if arguments.device.as_ref().is_some_and(|device| device != "MGS") => {
            Err(Failure::usage("the MGS takes OSTs out: lctl --device MGS del_ost --target w-OST0001"))
        }
        Command::DelOst(asked) => removal::run(&mut reach()?, &asked),
        Command::LfsckStart(asked) => lfsck::start(&mut reach()?, &asked, arguments.device.as_deref()),
        Command::LfsckStop(at) => lfsck::stop(&mut reach()?, &at, arguments.device.as_deref()),
        Command::LfsckQuery(asked) => lfsck::query(&mut reach()?, &asked, arguments.device.as_deref()),
        Command::DebugKernel { file } => dk::fetch(&mut reach()?, file.as_deref()),
        Command::Clear => dk::clear(&mut reach()?),
        Command::Mark { text } => dk::mark(&mut reach()?, &text.join(" ")),
        Command::Other(words) => Err(usage::no_command("lctl", &words, NOT_YET)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn commands_are_parsed() {
        for (line, fine) in [
            ("lctl --device w-MDT0000 abort_recovery", true),
            ("lctl abort_recovery w-MDT0000", true),
            ("lctl get_param -n mdt.*.recovery_status obdfilter.*.recovery_status", true),
            ("lctl list_param -F -R mdt.*", true),
            ("lctl --key /k set_param mdt.*.evict_client=nid:10.0.0.7@tcp", true),
            ("lctl drain 10.0.0.7@tcp", true),
            ("lctl drain", false),
            ("lctl pool_new w.flash", true),
            ("lctl pool_add w.flash OST[0-3] 7", true),
            ("lctl pool_add w.flash", false),
            ("lctl pool_remove --nowait w.flash w-OST0000-w-OST0003_UUID", true),
            ("lctl pool_list w", true),
            ("lctl dk", true),
            ("lctl debug_kernel /tmp/log", true),
            ("lctl mark so far so good", true),
            ("lctl clear", true),
            ("lctl lfsck_start -M w-MDT0000 -t layout,scrub --delete-orphans --rate 100M", true),
            ("lctl --device w-MDT0000 lfsck_start -t all", true),
            ("lctl lfsck_start -t everything", false),
            ("lctl lfsck_stop", true),
            ("lctl lfsck_query -w", true),
            ("lctl set_param", false),
            ("lctl set_param -F /tmp/params", true),
            ("lctl set_param -P -F /tmp/params --fsname w", true),
            ("lctl set_param -F /tmp/params debug=info", false),
            ("lctl set_param -F /tmp/params -P -d", false),
            ("lctl conf_param w-OST0001.osc.active=0 w.sys.jobid_var=disable", true),
            ("lctl conf_param -d w-OST0001.osc.active", true),
            ("lctl conf_param", false),
            ("lctl --devic 1 dl", false),
        ] {
            assert_eq!(Arguments::try_parse_from(line.split(' ')).is_ok(), fine, "{line}");
        }
    }
}
