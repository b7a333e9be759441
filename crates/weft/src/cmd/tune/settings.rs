//! The settings that matter, and where each has its reason. A gain is told as it was measured; what nobody has measured says so.

use std::fs;
use std::path::{Path, PathBuf};

use rt::queue::Queue;
use serde::Serialize;

/// Gain of what weft does not depend on.
const NO_GAIN: &str = "none";
/// Gain of what others recommend and no figure of weft shows.
const NOT_MEASURED: &str = "not measured";

/// Gain of `none` for disks without heads. Figures: `docs/benchmarks.md#schedulers`.
const SCHEDULER_GAIN: &str = "4.4 us of the processor in place of 5.7 for a read of 4 KiB, 32 at a time, and 4.5 in place of 6.6 for a write";

/// A setting of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// What it is called.
    pub name: String,
    /// Its value now; none if this kernel has no such setting.
    pub present: Option<String>,
    /// The value that suits.
    pub recommended: String,
    /// Whether the present value is as good.
    pub suits: bool,
    /// What the recommended value brings.
    pub gain: String,
    /// The file where it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// What is written there.
    #[serde(skip)]
    pub value: String,
}

/// What is looked at.
pub struct Machine<'a> {
    /// Where `proc` and `sys` are.
    pub root: &'a Path,
    /// Mounts of weft: mount point, and number of the device.
    pub mounts: Vec<(PathBuf, u32)>,
    /// The disks of servers.
    pub disks: Vec<Queue>,
}

/// A setting that is a file: which values suit, and which one is written.
struct File<'a> {
    name: &'a str,
    /// Below the root.
    file: String,
    value: &'a str,
    suits: Suits,
    gain: &'a str,
}

/// When a present value suits.
#[derive(Clone, Copy)]
enum Suits {
    /// It is the recommended one.
    Equal,
    /// The last number in it is not less.
    AtLeast(u64),
    /// Whatever it is.
    Any,
}

impl Machine<'_> {
    /// All settings, those of clients first. What this kernel does not have is left out, but for FUSE over io_uring.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![self.rings()];
        settings.extend(self.files().into_iter().filter_map(|file| self.look(file)));
        settings.extend(self.mounts.iter().filter_map(|(path, device)| self.read_ahead(path, *device)));
        settings.extend(self.huge_pages());
        settings.extend(self.governors());
        settings.extend(self.disks.iter().map(scheduler));
        settings
    }

    /// FUSE over io_uring, Linux 6.14 and later. Figures: `docs/benchmarks.md#fuse-engines`.
    fn rings(&self) -> Setting {
        const NAME: &str = "FUSE over io_uring";
        const GAIN: &str = "one thread: 8.2 times as many stat, 1.8 times as many writes of 47,008 bytes, 1.9 of 1 MiB, 1.2 reads of 1 MiB; of \
                            mounts that are made from then on";
        let file = "sys/module/fuse/parameters/enable_uring".to_owned();
        let rings = File { name: NAME, file, value: "Y", suits: Suits::Equal, gain: GAIN };
        self.look(rings).unwrap_or_else(|| Setting {
            name: NAME.into(),
            present: None,
            recommended: "Linux 6.14 or later".into(),
            suits: false,
            gain: GAIN.into(),
            file: None,
            value: String::new(),
        })
    }

    fn files(&self) -> Vec<File<'static>> {
        let any =
            |name, file: &str, gain| File { name, file: file.into(), value: "any", suits: Suits::Any, gain };
        let buffers =
            |name, file: &str| any(name, file, "none: weft leaves the size of socket buffers to TCP");
        let pages =
            |name, file: &str| any(name, file, "none: servers write past the page cache, and sync the rest");
        let wide = |name, file: &str, value| File {
            name,
            file: file.into(),
            value,
            suits: Suits::AtLeast(16 << 20),
            gain: "not measured; a link of 25 Gb/s and 5 ms has 16 MB on its way",
        };
        vec![
            File {
                name: "pages of a FUSE request",
                file: "proc/sys/fs/fuse/max_pages_limit".into(),
                value: "256",
                suits: Suits::AtLeast(256),
                gain: "1.5 times the data a second with requests of 1 MiB in place of 128 KiB, where nothing else limits",
            },
            wide("net.ipv4.tcp_rmem", "proc/sys/net/ipv4/tcp_rmem", "4096 131072 16777216"),
            wide("net.ipv4.tcp_wmem", "proc/sys/net/ipv4/tcp_wmem", "4096 16384 16777216"),
            buffers("net.core.rmem_max", "proc/sys/net/core/rmem_max"),
            buffers("net.core.wmem_max", "proc/sys/net/core/wmem_max"),
            pages("vm.dirty_ratio", "proc/sys/vm/dirty_ratio"),
            pages("vm.dirty_background_ratio", "proc/sys/vm/dirty_background_ratio"),
        ]
    }

    /// Mounts that root made have it. Figures: `docs/benchmarks.md#read-ahead`.
    fn read_ahead(&self, mount: &Path, device: u32) -> Option<Setting> {
        self.look(File {
            name: &format!("read_ahead_kb of {}", mount.display()),
            file: format!("sys/class/bdi/0:{device}/read_ahead_kb"),
            value: "4096",
            suits: Suits::AtLeast(4096),
            gain: "an eighth of the requests and 0.6 of the processor time of a stream through the page cache, for 128 KiB",
        })
    }

    /// Large buffers ask for them. Figures: `docs/benchmarks.md#ior`.
    fn huge_pages(&self) -> Option<Setting> {
        let file = "sys/kernel/mm/transparent_hugepage/enabled".to_owned();
        let look = File {
            name: "transparent huge pages",
            file,
            value: "madvise",
            suits: Suits::Equal,
            gain: "1.3 times as fast cold reads as with never; with always a process may hold more memory than it uses",
        };
        let mut setting = self.look(look)?;
        // `always [madvise] never`
        let chosen =
            setting.present.as_deref().and_then(|text| text.split(['[', ']']).nth(1)).map(str::to_owned);
        setting.suits = chosen.as_deref() == Some("madvise");
        setting.present = chosen;
        Some(setting)
    }

    /// One setting for all processors; virtual machines have none.
    fn governors(&self) -> Vec<Setting> {
        let policies = "sys/devices/system/cpu/cpufreq";
        let Ok(entries) = fs::read_dir(self.root.join(policies)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.retain(|name| name.starts_with("policy"));
        names.sort();
        let look = |name: &String| {
            self.look(File {
                name: &format!("frequency governor of {name}"),
                file: format!("{policies}/{name}/scaling_governor"),
                value: "performance",
                suits: Suits::Equal,
                gain: NOT_MEASURED,
            })
        };
        names.iter().filter_map(look).collect()
    }

    fn look(&self, file: File<'_>) -> Option<Setting> {
        let File { name, file, value, suits, gain } = file;
        let path = self.root.join(file);
        let present = fs::read_to_string(&path).ok()?.split_whitespace().collect::<Vec<_>>().join(" ");
        let suits = match suits {
            Suits::Equal => present == value,
            Suits::AtLeast(least) => {
                let last = present.split(' ').next_back().and_then(|number| number.parse::<u64>().ok());
                last.is_some_and(|number| number >= least)
            }
            Suits::Any => true,
        };
        Some(Setting {
            name: name.to_owned(),
            present: Some(present),
            recommended: value.to_owned(),
            suits,
            gain: gain.to_owned(),
            file: Some(path),
            value: value.to_owned(),
        })
    }
}

fn scheduler(queue: &Queue) -> Setting {
    let suitable = queue.suitable().to_owned();
    let gain = match (queue.is_suitable(), suitable.as_str()) {
        (_, rt::queue::NONE) => SCHEDULER_GAIN,
        (true, _) => NO_GAIN,
        (false, _) => NOT_MEASURED,
    };
    Setting {
        name: format!("I/O scheduler of {}", queue.disk),
        present: Some(queue.scheduler.clone()),
        suits: queue.is_suitable(),
        gain: gain.to_owned(),
        file: Some(Path::new("/sys/block").join(&queue.disk).join("queue/scheduler")),
        value: suitable.clone(),
        recommended: suitable,
    }
}

/// Sets what does not suit; whether it was set.
///
/// # Errors
/// A sentence about what the kernel refused.
pub fn apply(setting: &Setting) -> Result<bool, String> {
    if setting.suits {
        return Ok(false);
    }
    let Some(file) = &setting.file else { return Err("this kernel has no such setting".to_owned()) };
    match fs::write(file, &setting.value) {
        Ok(()) => Ok(true),
        Err(error) => Err(format!(
            "{}: {}; write {:?} there as root",
            file.display(),
            crate::control::describe(&error),
            setting.value
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose files have these contents.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
        root
    }

    fn find<'a>(settings: &'a [Setting], name: &str) -> &'a Setting {
        settings.iter().find(|setting| setting.name == name).expect(name)
    }

    #[test]
    fn what_does_not_suit_is_found_and_set_when_asked() {
        let files = [
            ("sys/module/fuse/parameters/enable_uring", "N\n"),
            ("proc/sys/fs/fuse/max_pages_limit", "256\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("sys/class/bdi/0:77/read_ahead_kb", "128\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
        ];
        let root = machine(&files);
        let queue = |scheduler: &str| Queue {
            disk: "nvme9n9".into(),
            rotational: false,
            is_virtual: false,
            scheduler: scheduler.into(),
            choices: vec!["none".into(), "mq-deadline".into()],
        };
        let machine = Machine {
            root: root.path(),
            mounts: vec![("/mnt/w".into(), 77)],
            disks: vec![queue("mq-deadline")],
        };
        let settings = machine.settings();
        let suits = |name: &str| find(&settings, name).suits;
        assert!(suits("pages of a FUSE request") && suits("net.core.rmem_max"));
        assert!(suits("transparent huge pages"));
        let unsuited = ["FUSE over io_uring", "net.ipv4.tcp_rmem", "read_ahead_kb of /mnt/w"];
        let rest = ["frequency governor of policy0", "I/O scheduler of nvme9n9"];
        for name in unsuited.into_iter().chain(rest) {
            assert!(!suits(name), "{name}");
        }
        assert!(settings.iter().all(|setting| !setting.gain.is_empty()), "each says what it brings");
        for (name, content) in files {
            assert_eq!(fs::read_to_string(root.path().join(name)).expect("it is there"), content, "{name}");
        }
        for name in unsuited {
            assert_eq!(apply(find(&settings, name)), Ok(true), "{name}");
        }
        assert_eq!(apply(find(&settings, "pages of a FUSE request")), Ok(false));
        let again = machine.settings();
        assert!(unsuited.iter().all(|name| find(&again, name).suits), "{again:?}");
        assert_eq!(find(&again, "net.ipv4.tcp_rmem").present.as_deref(), Some("4096 131072 16777216"));
    }

    #[test]
    fn huge_pages_are_for_those_that_ask() {
        let choices = [
            ("always [madvise] never", true),
            ("[always] madvise never", false),
            ("always madvise [never]", false),
        ];
        for (text, suits) in choices {
            let root = machine(&[("sys/kernel/mm/transparent_hugepage/enabled", text)]);
            let machine = Machine { root: root.path(), mounts: Vec::new(), disks: Vec::new() };
            let settings = machine.settings();
            let setting = find(&settings, "transparent huge pages");
            assert_eq!(setting.suits, suits, "{text}");
            assert!(apply(setting).is_ok());
            let now = fs::read_to_string(root.path().join("sys/kernel/mm/transparent_hugepage/enabled"))
                .expect("it is there");
            assert_eq!(now == "madvise", !suits, "{now}");
        }
    }

    #[test]
    fn an_old_kernel_is_told() {
        let root = machine(&[("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")]);
        let machine = Machine { root: root.path(), mounts: vec![("/mnt/w".into(), 77)], disks: Vec::new() };
        let settings = machine.settings();
        let rings = find(&settings, "FUSE over io_uring");
        assert!(!rings.suits && rings.present.is_none());
        assert!(apply(rings).is_err_and(|why| why.contains("this kernel")));
        assert!(!find(&settings, "transparent huge pages").suits);
        assert_eq!(settings.len(), 2, "what is not there is left out");
    }
}
