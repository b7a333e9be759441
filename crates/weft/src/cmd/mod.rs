//! The sub-commands of `weft`, a file for each: arguments as given, resolved, then run.

mod ask_mount;
mod burst;
mod check;
mod copytool;
mod down;
mod drain;
mod du;
mod exporter;
mod failover;
pub mod format;
mod guard_mount;
mod load;
mod manual;
mod mount;
pub mod mount_helper;
mod policy;
mod rank_mount;
mod rankfs;
mod remount;
mod serve;
mod stage;
mod stat;
mod status;
mod survey;
mod sync;
mod tune;
pub mod umount_helper;
mod up;
mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::ask;
use crate::failure::exit;
use crate::usage;

/// A program that was built together with the simulator can leave mechanisms out; `tools/install-bin.sh` does not take it.
const VERSION: &str = if rpc::habits::EXPERIMENTS {
    concat!(env!("CARGO_PKG_VERSION"), " with experiments")
} else {
    env!("CARGO_PKG_VERSION")
};

/// A parallel file system in user space.
#[derive(Parser)]
#[command(
    name = "weft",
    version = VERSION,
    after_help = "Start here: weft up /mnt/weft\n\nThe same program called as lfs or lctl, or \"weft lfs\" and \"weft lctl\", is those tools."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Stat(stat::Arguments),
    Load(load::Arguments),
    Survey(survey::Arguments),
    Tune(tune::Arguments),
    Format(format::Arguments),
    Serve(serve::Arguments),
    Failover(failover::Arguments),
    Mount(mount::Arguments),
    Check(check::Arguments),
    Sync(sync::Arguments),
    Drain(drain::Arguments),
    Stage(stage::Arguments),
    Policy(policy::Arguments),
    Copytool(copytool::Arguments),
    Du(du::Arguments),
    Rankfs(rankfs::Arguments),
    RankMount(rank_mount::Arguments),
    Burst(burst::Arguments),
    Exporter(exporter::Arguments),
    Web(web::Arguments),
    Manual(manual::Arguments),
    #[command(name = fuse::abort::GUARD_COMMAND, hide = true)]
    GuardMount(guard_mount::Arguments),
    #[command(name = ask::COMMAND, hide = true)]
    AskMount(ask_mount::Arguments),
}

/// How lines for `weft` are written.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// The program called as `weft`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments: Arguments = match usage::parse(arguments) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let outcome = match arguments.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Down(arguments) => down::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Survey(arguments) => survey::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Format(arguments) => format::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Failover(arguments) => failover::run(&arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Sync(arguments) => sync::run(&arguments),
        Command::Drain(arguments) => drain::run(&arguments),
        Command::Stage(arguments) => stage::run(&arguments),
        Command::Copytool(arguments) => copytool::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Rankfs(arguments) => rankfs::run(&arguments),
        Command::RankMount(arguments) => rank_mount::run(&arguments),
        Command::Burst(arguments) => burst::run(&arguments),
        Command::Exporter(arguments) => exporter::run(&arguments),
        Command::Web(arguments) => web::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
        Command::GuardMount(arguments) => guard_mount::run(&arguments),
        Command::AskMount(arguments) => ask_mount::run(&arguments),
    };
    exit("weft", outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Lines, and whether they are understood.
    const LINES: &[(&str, bool)] = &[
        ("weft up /mnt/w", true),
        ("weft up /mnt/w --osts 8 --oss 4 --fsname scratch --data /d --listen 0.0.0.0@tcp", true),
        ("weft up", false),
        ("weft up /mnt/w --osts x", false),
        ("weft up /mnt/w --unknown", false),
        ("weft format --ost --fsname f --index 3 --mgsnode a@tcp --mgsnode b@tcp /d", true),
        ("weft format --ost --mdt --fsname f /d", false),
        ("weft format /d", false),
        ("weft serve /a /b --listen 10.0.0.1:7990@tcp --server oss1", true),
        ("weft serve", false),
        (
            "weft format --ost --fsname f --index 3 --mgsnode a@tcp --servicenode b@tcp --servicenode c@tcp,d@tcp /d",
            true,
        ),
        ("weft failover f-OST0003 --to oss2", true),
        ("weft failover", false),
        ("weft mount a@tcp:/f /mnt -o ro,noatime --foreground", true),
        ("weft status --json", true),
        ("weft stat -i 2 -c 5 --json /mnt", true),
        ("weft stat -i 0", false),
        ("weft load --split 2026-11-20 --split 2026-11-22T12 --json --key /k /mnt", true),
        ("weft load --hours --since 2026-11-20 --until 2026-11-21", true),
        ("weft load --since yesterday", false),
        ("weft load --hours --split 2026-11-20", false),
        ("weft survey disk /d --size 64M --seconds 2", true),
        ("weft survey net 10.0.0.1:9000@tcp --key /k --json", true),
        ("weft survey net 10.0.0.1:9000@tcp", false),
        ("weft survey all /d /mnt/w", true),
        ("weft survey", false),
        ("weft tune", true),
        ("weft tune --check --json /srv/ost0 /srv/ost1", true),
        ("weft tune --apply", true),
        ("weft tune --check --apply", false),
        ("weft down /mnt", true),
        ("weft check /d", true),
        ("weft sync", true),
        ("weft drain /mnt", true),
        ("weft stage in /a /b --list /l --state /s --streams 8 --json", true),
        ("weft stage out /a /b", true),
        ("weft stage /a /b", false),
        ("weft stage in /a", false),
        ("weft du --by user --json /a /b", true),
        ("weft du", false),
        ("weft du --by cow /a", false),
        ("weft policy check /p", true),
        ("weft policy run /p /m --rule a --rule b --dry-run --json", true),
        ("weft policy run /p", false),
        ("weft policy watch /p /m --rule a", true),
        ("weft policy watch /p /m --dry-run", false),
        ("weft rankfs create /m/a.rankfs --size 2G --job 1 --rank 2 --owner 1:2 --keep --reserve", true),
        ("weft rankfs create /m/a.rankfs", false),
        ("weft rankfs mount /m/a.rankfs /r --read-only", true),
        ("weft rankfs umount /r", true),
        ("weft rankfs run --dir /m --size 2G -- sh -c true", true),
        ("weft rankfs run --dir /m --size 2G", false),
        ("weft rankfs run --dir /m --size 2G --base /m/b.rankfs --ranks-per-ost 4 -- true", true),
        ("weft rankfs run --dir /m --size 2G --ranks-per-ost 0 -- true", false),
        ("weft rank-mount --mounts /m0,/m1 --at /scratch --rank 3 -- true", true),
        ("weft rank-mount --at /scratch -- true", false),
        (
            "weft burst start --nodes /n --data /local /mnt/b --osts 2 --port 7991 --owner 1:2 -o noatime",
            true,
        ),
        ("weft burst start --nodes /n /mnt/b", false),
        ("weft burst start --nodes /n --data /local /mnt/b --owner me", false),
        ("weft burst stop --nodes /n --data /local --fsname b --force --wait 5", true),
        ("weft rankfs export /m/a.rankfs /b", true),
        ("weft rankfs import /b /m/a.rankfs --job 1", true),
        ("weft rankfs list /m --json", true),
        ("weft rankfs gc /m --ended 1 --ended 2 --living /l --dry-run --json", true),
        ("weft rankfs gc", false),
        ("weft exporter --listen 0.0.0.0:32221 --jobs-max 10 --key /k", true),
        ("weft exporter --once", true),
        ("weft manual /usr/share", true),
        ("weft manual", false),
        ("weft exporter --once --listen 0.0.0.0:1", false),
        ("weft exporter --listen 32221", false),
        ("weft stage in /a /b --streams 0", false),
    ];

    #[test]
    fn commands_are_parsed() {
        for (line, fine) in LINES {
            assert_eq!(Arguments::try_parse_from(line.split(' ')).is_ok(), *fine, "{line}");
        }
    }
}
