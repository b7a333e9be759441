//! Parameters that the MGS keeps: what `lctl set_param -P` set, for every process that has a parameter of such a name, now and at each
//! start. What a change makes of them is decided here; nothing here is durable.

use crate::Code;
use crate::parameters::PATTERN_BYTES_MAX;
use crate::wire::messages::{ChangeSetting, Setting};

/// Most settings of one file system.
pub const SETTINGS_MAX: usize = 512;
/// Longest value of one, in bytes.
pub const SETTING_VALUE_BYTES_MAX: usize = 1024;
/// What all of them take together, in bytes: they are told in one answer.
pub const SETTINGS_BYTES_MAX: usize = 32 << 10;
/// What a setting takes beside its name and value, in bytes.
const ONE_BYTES: usize = 20;

/// Whether a setting may be called `name`: a name of parameters, with `*` for anything.
pub fn is_setting_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b'=';
    (1..=PATTERN_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine)
}

/// Whether a setting may have `value`.
pub fn is_setting_value(value: &str) -> bool {
    value.len() <= SETTING_VALUE_BYTES_MAX && !value.chars().any(char::is_control)
}

/// The settings of a file system, in the order in which they were set: where two have to do with one parameter, the later one holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

impl Settings {
    /// Those that were told.
    pub fn new(told: Vec<Setting>) -> Settings {
        Settings(told)
    }

    /// Every one.
    pub fn all(&self) -> &[Setting] {
        &self.0
    }

    /// Those that were set behind `version`.
    pub fn behind(&self, version: u64) -> impl Iterator<Item = &Setting> {
        self.0.iter().filter(move |setting| setting.version > version)
    }

    /// What `change` makes of them as the change of `version`. One that is there already is set anew: it holds again for
    /// whoever has been told something else meanwhile.
    ///
    /// # Errors
    /// `Invalid`: no name or value of a setting. `NotFound`: there is none to delete. `TooBig`: there are too many.
    pub fn changed(&self, change: &ChangeSetting, version: u64) -> Result<Settings, Code> {
        let ChangeSetting { name, value, .. } = change;
        let mut list: Vec<Setting> = self.0.iter().filter(|setting| setting.name != *name).cloned().collect();
        let Some(value) = value else {
            return if list.len() < self.0.len() { Ok(Settings(list)) } else { Err(Code::NotFound) };
        };
        if !is_setting_name(name) || !is_setting_value(value) {
            return Err(Code::Invalid);
        }
        list.push(Setting { name: name.clone(), value: value.clone(), version });
        let bytes: usize = list.iter().map(|one| one.name.len() + one.value.len() + ONE_BYTES).sum();
        if list.len() > SETTINGS_MAX || bytes > SETTINGS_BYTES_MAX {
            return Err(Code::TooBig);
        }
        Ok(Settings(list))
    }

    /// A line for each, as they are set.
    pub fn text(&self) -> String {
        let lines = self.0.iter().map(|setting| format!("{}={}", setting.name, setting.value));
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(settings: &Settings, version: u64, name: &str, value: Option<&str>) -> Result<Settings, Code> {
        let change = ChangeSetting { fsname: "w".into(), name: name.into(), value: value.map(str::to_owned) };
        settings.changed(&change, version)
    }

    #[test]
    fn the_later_one_is_last() {
        let none = Settings::default();
        let one = change(&none, 3, "osc.*.max_dirty_mb", Some("8")).expect("it is one");
        let two = change(&one, 5, "debug", Some("info")).expect("it is one");
        let again = change(&two, 6, "osc.*.max_dirty_mb", Some("16")).expect("it is one");
        assert_eq!(again.text(), "debug=info\nosc.*.max_dirty_mb=16");
        let behind = |version| again.behind(version).map(|one| one.name.as_str()).collect::<Vec<_>>();
        assert_eq!(behind(5), ["osc.*.max_dirty_mb"]);
        assert_eq!((behind(0).len(), behind(6).len()), (2, 0));
        let left = change(&again, 7, "debug", None).expect("it is there");
        assert_eq!(left.text(), "osc.*.max_dirty_mb=16");
        assert_eq!(change(&left, 8, "debug", None), Err(Code::NotFound));
    }

    #[test]
    fn names_values_and_their_number_are_bounded() {
        let none = Settings::default();
        let long = "x".repeat(PATTERN_BYTES_MAX + 1);
        for name in ["", "a b", "a=b", "ä", "a\nb", long.as_str()] {
            assert_eq!(change(&none, 1, name, Some("1")), Err(Code::Invalid), "{name}");
        }
        for value in ["a\nb".to_owned(), "\u{7}".to_owned(), "x".repeat(SETTING_VALUE_BYTES_MAX + 1)] {
            assert_eq!(change(&none, 1, "a", Some(&value)), Err(Code::Invalid));
        }
        assert!(change(&none, 1, "a", Some("")).is_ok());
        let fill = |value: &str| {
            let mut settings = Settings::default();
            for version in 1.. {
                match change(&settings, version, &format!("a{version}"), Some(value)) {
                    Ok(more) => settings = more,
                    Err(code) => return (settings.all().len(), code),
                }
            }
            unreachable!("there is a bound")
        };
        assert_eq!(fill("1"), (SETTINGS_MAX, Code::TooBig));
        let (many, code) = fill(&"x".repeat(SETTING_VALUE_BYTES_MAX));
        assert_eq!((many < SETTINGS_MAX, code), (true, Code::TooBig));
    }
}
