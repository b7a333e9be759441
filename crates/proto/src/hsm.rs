//! HSM: files whose data has a copy in an archive, and may be there alone (FEATURES I7). Rules: `docs/hsm.md`.

use std::fmt;

/// Bits of [`Flags`], with the numbers of Lustre's `hsm_states`.
pub mod flag {
    /// The archive has a copy, which may be an old one.
    pub const EXISTS: u32 = 1 << 0;
    /// The data was changed since, or may have been.
    pub const DIRTY: u32 = 1 << 1;
    /// The data is in the archive alone.
    pub const RELEASED: u32 = 1 << 2;
    /// The copy in the archive is complete.
    pub const ARCHIVED: u32 = 1 << 3;
    /// The file is not to be released.
    pub const NORELEASE: u32 = 1 << 4;
    /// The file is not to be archived.
    pub const NOARCHIVE: u32 = 1 << 5;
    /// The archive has lost the copy.
    pub const LOST: u32 = 1 << 6;
}

/// What the owner of a file may set, and clear but for [`flag::DIRTY`]; all else is for the superuser.
pub const USER_FLAGS: u32 = flag::NORELEASE | flag::NOARCHIVE | flag::DIRTY;
/// What anybody may set and clear: whether the data is there is nothing that can be said.
pub const SETTABLE_FLAGS: u32 = USER_FLAGS | flag::EXISTS | flag::ARCHIVED | flag::LOST;
/// Flags that are known.
pub const KNOWN_FLAGS: u32 = SETTABLE_FLAGS | flag::RELEASED;
/// Archives have numbers from 1 to this.
pub const ARCHIVE_MAX: u32 = 32;

const WORDS: [(u32, &str); 7] = [
    (flag::RELEASED, "released"),
    (flag::EXISTS, "exists"),
    (flag::DIRTY, "dirty"),
    (flag::ARCHIVED, "archived"),
    (flag::NORELEASE, "never_release"),
    (flag::NOARCHIVE, "never_archive"),
    (flag::LOST, "lost_from_hsm"),
];

/// Flags of a file, as `lfs hsm_state` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl fmt::Display for Flags {
    /// `(0x0000000b) exists dirty archived`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:#010x})", self.0)?;
        let mut set = WORDS.iter().filter(|(bit, _)| self.0 & bit != 0);
        set.try_for_each(|(_, word)| write!(f, " {word}"))
    }
}

/// Declares the actions: number, name in the code, the words that `hsm.actions` and commands have for it.
macro_rules! actions {
    ($($(#[$doc:meta])* $number:literal $name:ident $word:literal,)*) => {
        /// What a copytool does with a file. The numbers are those of Lustre's `hsm_user_action`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Action { $($(#[$doc])* $name = $number,)* }

        impl Action {
            /// Every action.
            pub const ALL: &'static [Action] = &[$(Action::$name),*];

            /// Its word.
            pub fn word(self) -> &'static str { match self { $(Action::$name => $word,)* } }

            /// The action with this number.
            pub fn of(number: u8) -> Option<Action> { match number { $($number => Some(Action::$name),)* _ => None } }
        }
    };
}

actions! {
    /// Copies the data to the archive.
    20 Archive "ARCHIVE",
    /// Brings the data back.
    21 Restore "RESTORE",
    /// Removes the copy from the archive.
    23 Remove "REMOVE",
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How an action stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ActionState {
    /// Nobody has asked for it, or it is long over.
    None = 0,
    /// A copytool will do it.
    Waiting = 1,
    /// A copytool does it.
    Started = 2,
    /// It is done.
    Succeeded = 3,
    /// It failed.
    Failed = 4,
    /// Somebody canceled it.
    Canceled = 5,
}

impl ActionState {
    /// Every state.
    pub const ALL: &'static [ActionState] = &[
        ActionState::None,
        ActionState::Waiting,
        ActionState::Started,
        ActionState::Succeeded,
        ActionState::Failed,
        ActionState::Canceled,
    ];

    /// Lustre's word for it, as `hsm.actions` shows it.
    pub fn word(self) -> &'static str {
        match self {
            ActionState::None => "NOOP",
            ActionState::Waiting => "WAITING",
            ActionState::Started => "STARTED",
            ActionState::Succeeded => "SUCCEED",
            ActionState::Failed => "FAILED",
            ActionState::Canceled => "CANCELED",
        }
    }

    /// The state with this number.
    pub fn of(number: u8) -> Option<ActionState> {
        Self::ALL.iter().copied().find(|state| *state as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_as_lustre_shows_them() {
        let shown = |flags| Flags(flags).to_string();
        assert_eq!(shown(0), "(0x00000000)");
        assert_eq!(shown(0xb), "(0x0000000b) exists dirty archived");
        assert_eq!(shown(0xd), "(0x0000000d) released exists archived");
        assert_eq!(shown(0x70), "(0x00000070) never_release never_archive lost_from_hsm");
    }

    #[test]
    fn actions_have_lustres_numbers() {
        let numbers: Vec<u8> = Action::ALL.iter().map(|action| *action as u8).collect();
        assert_eq!(numbers, [20, 21, 23]);
        assert!(numbers.iter().all(|number| Action::of(*number).map(|action| action as u8) == Some(*number)));
        assert_eq!(Action::of(22), None);
    }
}
