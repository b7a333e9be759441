//! `lfs df`: space of every target, byte for byte as Lustre prints it.

use std::path::{Path, PathBuf};

use fuse::control::{self, Kind, SpaceValues, Spaces, TargetSpace};
use fuse::session::MountEntry;
use proto::wire::messages::Space;

use crate::ask;
use crate::lfs::{Outcome, pools};
use crate::mountpoint;
use crate::size::cooked;

/// Print the space of every target.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// With units, powers of 1024
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// With units, powers of 1000
    #[arg(short = 'H', long, conflicts_with = "human_readable")]
    si: bool,
    /// Files instead of bytes
    #[arg(short = 'i', long)]
    inodes: bool,
    /// Do not wait for targets that are away (what is always so)
    #[arg(short = 'l', long)]
    lazy: bool,
    /// Of OSTs only those of this pool
    #[arg(short = 'p', long, value_name = "POOL")]
    pool: Option<String>,
    /// Inactive targets too (what is always so)
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Without the line of titles
    #[arg(short = 'N', long)]
    no_header: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpShort)]
    help: Option<bool>,
    /// A path in the file system [default: all that are mounted here]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Bits of a target's state, and their letters.
const STATES: [(u32, char); 3] = [(Space::DEGRADED, 'D'), (Space::NO_CREATE, 'N'), (Space::FULL, 'S')];

/// How it is printed.
#[derive(Debug, Clone, Copy)]
struct Style {
    inodes: bool,
    /// With units, powers of this.
    base: Option<f64>,
    header: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let base = match (arguments.human_readable, arguments.si) {
        (true, _) => Some(1024.0),
        (_, true) => Some(1000.0),
        _ => None,
    };
    let style = Style { inodes: arguments.inodes, base, header: !arguments.no_header };
    let meant = super::mounts(arguments.path.as_deref())?;
    let mut failed = meant.left_out;
    for (mount, spaces) in
        mountpoint::all_asked(meant.mounts, |mount| ask::get::<Spaces>(mount, control::SPACE))
    {
        match spaces {
            Ok(spaces) => match of_pool(&mount, spaces, arguments.pool.as_deref()) {
                Ok(spaces) => crate::out::print(render(&mount.path, &spaces, style)),
                Err(why) => {
                    err!("error: df: {why}");
                    failed = true;
                }
            },
            Err(error) => {
                err!("error: df: {}: {}", mount.path.display(), crate::control::describe(&error));
                failed = true;
            }
        }
    }
    Ok(u8::from(failed))
}

/// What is shown: of OSTs those of the pool.
fn of_pool(mount: &MountEntry, mut spaces: Spaces, pool: Option<&str>) -> Result<Spaces, String> {
    if let Some(pool) = pool {
        let members = pools::of_df(mount, pool)?;
        spaces.targets.retain(|target| target.kind != Kind::Ost || members.contains(&target.index));
    }
    Ok(spaces)
}

fn render(mount: &Path, spaces: &Spaces, style: Style) -> String {
    let mut text = String::new();
    if style.header {
        let titles = match (style.inodes, style.base) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
            (false, Some(_)) => ["bytes", "Used", "Available", "Use%"],
            (false, None) => ["1K-blocks", "Used", "Available", "Use%"],
        };
        text += &row("UUID", titles.map(str::to_owned), "Mounted on");
    }
    let mut sum = SpaceValues::default();
    let mut osts: Vec<Space> = Vec::new();
    for target in &spaces.targets {
        let uuid = format!("{}-{}_UUID", spaces.fsname, target.id());
        let Some(space) = &target.space else {
            text += &format!("{uuid:<20}: inactive device\n");
            continue;
        };
        text += &row(&uuid, values(space, style), &place(mount, target));
        match target.kind {
            Kind::Ost => osts.push(space.into()),
            _ => {
                sum.files_total += space.files_total;
                sum.files_free += space.files_free;
            }
        }
    }
    let data = Space::sum(osts);
    (sum.bytes_total, sum.bytes_free, sum.bytes_available) =
        (data.bytes_total, data.bytes_free, data.bytes_available);
    let objects_free = data.files_free;
    // Not more files can be made than there can be objects; what is used stays what it is.
    if objects_free < sum.files_free {
        sum.files_total = sum.files_total - sum.files_free + objects_free;
        sum.files_free = objects_free;
    }
    text + "\n" + &row("filesystem_summary:", values(&sum, style), &mount.to_string_lossy()) + "\n"
}

fn place(mount: &Path, target: &TargetSpace) -> String {
    let kind = if target.kind == Kind::Ost { "OST" } else { "MDT" };
    let state = target.space.map_or(0, |space| space.state);
    let shown: String = STATES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, letter)| letter).collect();
    let gap = if shown.is_empty() { "" } else { " " };
    format!("{}[{kind}:{}]{gap}{shown}", mount.display(), target.index)
}

fn values(space: &SpaceValues, style: Style) -> [String; 4] {
    let (total, used, available) = if style.inodes {
        (space.files_total, space.files_total.saturating_sub(space.files_free), space.files_free)
    } else {
        let shift = if style.base.is_some() { 0 } else { 10 };
        let used = space.bytes_total.saturating_sub(space.bytes_free);
        (space.bytes_total >> shift, used >> shift, space.bytes_available >> shift)
    };
    let all = used as f64 + available as f64;
    let percent = if all > 0.0 { (used as f64 / all * 100.0 + 0.5) as u64 } else { 0 };
    let text = |value: u64| match style.base {
        Some(base) => cooked(value, base),
        None => value.to_string(),
    };
    [text(total), text(used), text(available), format!("{percent:3}%")]
}

fn row(name: &str, [total, used, available, percent]: [String; 4], place: &str) -> String {
    format!("{name:<20} {total:>11} {used:>11} {available:>11} {percent:>4} {place}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces() -> Spaces {
        let mib = |mib: u64| mib << 20;
        let space = |total, free, available, files_free| SpaceValues {
            bytes_total: mib(total),
            bytes_free: mib(free),
            bytes_available: mib(available),
            files_total: 1000,
            files_free,
            ..SpaceValues::default()
        };
        let degraded = |space| SpaceValues { state: Space::DEGRADED, ..space };
        let target = |kind, index, space| TargetSpace { kind, index, space };
        Spaces {
            fsname: "users".into(),
            targets: vec![
                target(Kind::Mdt, 0, Some(space(816, 813, 810, 900))),
                target(Kind::Ost, 0, Some(space(2662, 2002, 2002, 500))),
                target(Kind::Ost, 1, Some(degraded(space(2662, 2659, 2659, 500)))),
                target(Kind::Ost, 31, None),
            ],
        }
    }

    fn check(style: Style, expected: &str) {
        assert_eq!(render(Path::new("/users"), &spaces(), style), expected);
    }

    #[test]
    fn with_units() {
        check(
            Style { inodes: false, base: Some(1024.0), header: true },
            "UUID                       bytes        Used   Available Use% Mounted on\n\
             users-MDT0000_UUID        816.0M        3.0M      810.0M   0% /users[MDT:0]\n\
             users-OST0000_UUID          2.6G      660.0M        2.0G  25% /users[OST:0]\n\
             users-OST0001_UUID          2.6G        3.0M        2.6G   0% /users[OST:1] D\n\
             users-OST001f_UUID  : inactive device\n\
             \n\
             filesystem_summary:         5.2G      663.0M        4.6G  12% /users\n\
             \n",
        );
    }

    #[test]
    fn a_disk_that_osts_share_is_counted_once() {
        let mut spaces = spaces();
        for target in &mut spaces.targets {
            target.space = target.space.map(|space| SpaceValues { disk: 3, ..space });
        }
        let text =
            render(Path::new("/users"), &spaces, Style { inodes: false, base: Some(1024.0), header: false });
        let sum = text.lines().find(|line| line.starts_with("filesystem_summary:"));
        assert_eq!(sum, Some("filesystem_summary:         2.6G        3.0M        2.6G   0% /users"));
    }

    #[test]
    fn in_blocks() {
        check(
            Style { inodes: false, base: None, header: true },
            "UUID                   1K-blocks        Used   Available Use% Mounted on\n\
             users-MDT0000_UUID        835584        3072      829440   0% /users[MDT:0]\n\
             users-OST0000_UUID       2725888      675840     2050048  25% /users[OST:0]\n\
             users-OST0001_UUID       2725888        3072     2722816   0% /users[OST:1] D\n\
             users-OST001f_UUID  : inactive device\n\
             \n\
             filesystem_summary:      5451776      678912     4772864  12% /users\n\
             \n",
        );
    }

    #[test]
    fn in_files() {
        check(
            Style { inodes: true, base: None, header: false },
            "users-MDT0000_UUID          1000         100         900  10% /users[MDT:0]\n\
             users-OST0000_UUID          1000         500         500  50% /users[OST:0]\n\
             users-OST0001_UUID          1000         500         500  50% /users[OST:1] D\n\
             users-OST001f_UUID  : inactive device\n\
             \n\
             filesystem_summary:         1000         100         900  10% /users\n\
             \n",
        );
    }
}
