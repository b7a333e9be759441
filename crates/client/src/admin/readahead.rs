//! How far a client reads ahead, and what came of it, by Lustre's names.

use proto::Code;
use proto::parameters::{CLEARS, ClientTree, Parameter, Unit};
use proto::readahead::Settings;

use super::Admin;
use super::parameters::{Setting, bytes, mebibytes};
use crate::Error;
use crate::data::Wanted;

/// A bound of read-ahead: its name, its value, where it is set, and what it cannot exceed, in bytes.
struct Bound {
    name: &'static str,
    of: fn(&Settings) -> u64,
    set: fn(&mut Wanted) -> &mut Option<u64>,
    most: fn(&Settings, cached_max: u64) -> u64,
    most_is: &'static str,
}

const BOUNDS: [Bound; 3] = [
    Bound {
        name: "max_read_ahead_mb",
        of: |settings| settings.mount_bytes_max,
        set: |wanted| &mut wanted.mount_bytes_max,
        most: |_, cached_max| cached_max / 2,
        most_is: "half of max_cached_mb",
    },
    Bound {
        name: "max_read_ahead_per_file_mb",
        of: |settings| settings.file_bytes_max,
        set: |wanted| &mut wanted.file_bytes_max,
        most: |settings, _| settings.mount_bytes_max,
        most_is: "max_read_ahead_mb",
    },
    Bound {
        name: "max_read_ahead_whole_mb",
        of: |settings| settings.whole_bytes_max,
        set: |wanted| &mut wanted.whole_bytes_max,
        most: |settings, _| settings.file_bytes_max,
        most_is: "max_read_ahead_per_file_mb",
    },
];

impl Admin {
    pub(super) fn read_ahead_in<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        let ahead = &self.shared.names.data.ahead;
        for bound in BOUNDS {
            let shown = move || mebibytes((bound.of)(&ahead.settings()));
            let most = (bound.most)(&ahead.settings(), self.cached_max());
            let takes =
                format!("write a number of MiB from 0 to {}, which is {}", mebibytes(most), bound.most_is);
            let set = move |text: &str| -> Setting<'a> {
                let bytes = bytes(text, most).filter(|bytes| *bytes <= most);
                if let Some(bytes) = bytes {
                    ahead.set(self.cached_max(), |wanted| *(bound.set)(wanted) = Some(bytes));
                }
                let set = bytes.map(|_| ()).ok_or(Error::Refused(Code::Invalid));
                Box::pin(std::future::ready(set))
            };
            tree.of_mount(Parameter::gauge(bound.name, Unit::Mebibytes, shown).settable(takes, set));
        }
        let stats = Parameter::histogram("read_ahead_stats", || ahead.print(self.shared.rt.wall()));
        tree.of_mount(stats.settable(CLEARS, |_| -> Setting<'a> {
            ahead.clear(self.shared.rt.wall());
            Box::pin(std::future::ready(Ok(())))
        }));
    }

    /// Most bytes that may be cached.
    fn cached_max(&self) -> u64 {
        self.shared.names.data.back.rooms.kept().max
    }
}
