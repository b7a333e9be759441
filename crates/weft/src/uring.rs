//! The machine's switch of FUSE over io_uring, which only root may set.

use std::fs;
use std::io;

use fuse::engine::Choice;
use fuse::engine::uring::ENABLED;

/// Switches it on where the kernel has it and it is off, if `engine` leaves the choice. Gives what is to be told.
pub fn permit(engine: Choice) -> Option<String> {
    permit_at(ENABLED, engine)
}

fn permit_at(switch: &str, engine: Choice) -> Option<String> {
    if engine != Choice::Auto || fs::read_to_string(switch).ok()?.trim() != "N" {
        return None;
    }
    Some(match write(switch) {
        Ok(()) => {
            format!("FUSE over io_uring is on from now on ({switch}); with --no-uring it is left as it is")
        }
        Err(_) => format!(
            "FUSE over io_uring is faster, and off: as root run \"echo Y > {switch}\", then mount again"
        ),
    })
}

fn write(switch: &str) -> io::Result<()> {
    // The file is the kernel's: it is there, or nothing is made.
    io::Write::write_all(&mut fs::File::options().write(true).open(switch)?, b"Y\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_switched_on_once_and_only_if_nobody_chose() {
        let directory = tempfile::tempdir().expect("a directory");
        let switch = directory.path().join("enable_uring");
        let name = switch.to_str().expect("text");
        assert_eq!(permit_at(name, Choice::Auto), None, "a kernel without it");
        assert!(!switch.exists());
        fs::write(&switch, "N\n").expect("a file");
        assert_eq!(permit_at(name, Choice::Dev), None);
        assert_eq!(fs::read_to_string(&switch).expect("a file"), "N\n");
        assert!(permit_at(name, Choice::Auto).is_some_and(|told| told.contains("is on from now on")));
        assert_eq!(fs::read_to_string(&switch).expect("a file"), "Y\n");
        assert_eq!(permit_at(name, Choice::Auto), None);
    }
}
