//! The parameters that the MGS keeps for everybody, as they come to a client.

use std::pin::pin;

use proto::parameters::device_name;
use proto::wire::messages::Setting;
use rt::wait::unless;

use super::Admin;

/// Which of them a client has taken: those up to this version of the configuration.
#[derive(Debug, Default)]
pub struct TakenSettings {
    version: u64,
}

/// One that is to be set now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSetting {
    /// Name and value.
    pub setting: Setting,
    /// What the names of the parameters have in them that are meant; `None` for all.
    part: Option<String>,
}

impl NewSetting {
    /// Whether the parameter `name`, which fits, is meant.
    pub fn concerns(&self, name: &str) -> bool {
        self.part.as_ref().is_none_or(|part| name.contains(part))
    }
}

impl Admin {
    /// What is to be set now: what the MGS keeps anew, and for each target that was not used before what it keeps.
    pub fn new_settings(&self, taken: &mut TakenSettings) -> Vec<NewSetting> {
        let fresh = self.shared.targets.take_fresh();
        let config = self.shared.targets.config();
        let settings = config.settings();
        let mut new = Vec::new();
        for target in fresh {
            let part = Some(format!("{}-", device_name(config.fsname(), target)));
            let all = settings.all().iter().filter(|setting| setting.version <= taken.version);
            new.extend(all.map(|setting| NewSetting { setting: setting.clone(), part: part.clone() }));
        }
        new.extend(
            settings.behind(taken.version).map(|setting| NewSetting { setting: setting.clone(), part: None }),
        );
        let newest = settings.all().last().map_or(0, |setting| setting.version);
        taken.version = taken.version.max(newest);
        new
    }

    /// Waits until something may have to be set; false once the client ends.
    pub async fn until_settings(&self, taken: &TakenSettings) -> bool {
        let targets = &self.shared.targets;
        let news = async {
            loop {
                let mut changed = pin!(targets.changed().notified());
                changed.as_mut().enable();
                let is_new = targets.config().settings().behind(taken.version).next().is_some();
                if is_new || (targets.has_fresh() && !targets.config().settings().all().is_empty()) {
                    return;
                }
                changed.await;
            }
        };
        unless(self.shared.lease.ended(), news).await.is_some()
    }
}
