//! The parameters that the MGS keeps, as a target and its process take them: at the start, and when one is set.

use std::sync::Arc;
use std::time::Duration;

use proto::wire::messages::{GetConfig, Setting};
use proto::{Code, Nid, Settings, TargetId};
use rpc::{Hub, Import, RpcError};
use service::Watch;
use store::Store;

use crate::given;

/// How long the MGS may hold a question for news, in milliseconds.
const WAIT_MS: u32 = 60_000;
/// The same as long as the MGS has to be told what the target was given.
const GIVEN_WAIT_MS: u32 = 1000;
/// Pause after a refusal of the MGS.
const PAUSE: Duration = Duration::from_secs(1);

/// Who takes them.
pub(crate) struct Follower {
    pub hub: Hub,
    pub target: TargetId,
    pub mgs: Arc<Import>,
    /// Where the MGS is.
    pub nids: Vec<Nid>,
    pub store: Arc<Store>,
    pub watch: Arc<dyn Watch>,
}

impl Follower {
    /// Takes what the MGS keeps until the target's sessions end.
    pub async fn follow(self) {
        let (fsname, mut known) = (self.hub.fsname().as_str().to_owned(), 0);
        let mut given = given::load(&self.store).unwrap_or_else(|error| {
            tracing::error!(target = %self.target, %error, "what the target was given when it was made");
            Vec::new()
        });
        loop {
            let question = GetConfig {
                fsname: fsname.clone(),
                known,
                wait_ms: if given.is_empty() { WAIT_MS } else { GIVEN_WAIT_MS },
                pages: true,
                settings_only: true,
            };
            match self.mgs.call(question).await {
                Ok(answered) => {
                    let told = Settings::new(answered.reply.settings.unwrap_or_default());
                    told.behind(known).for_each(|setting| self.take(setting));
                    known = known.max(answered.reply.version);
                    if !given.is_empty() {
                        given = given::tell(&self.hub, &self.nids, &self.store, self.target, given).await;
                    }
                }
                Err(RpcError::Closed) => return,
                Err(RpcError::Refused(code)) => {
                    tracing::warn!(target = %self.target, %code, "the MGS does not tell which parameters it keeps");
                    self.hub.rt().sleep(PAUSE).await;
                }
            }
        }
    }

    /// Sets what fits one of them. Nothing does in most targets.
    fn take(&self, Setting { name, value, .. }: &Setting) {
        let of_target = self.watch.set_kept(name, value);
        for taken in [of_target, set_of_process(&self.hub, name, value)] {
            match taken {
                Ok(()) => {
                    tracing::info!(target = %self.target, name, value, "a parameter is set as the MGS keeps it");
                }
                Err(Code::NotFound) => {}
                Err(code) => {
                    tracing::warn!(target = %self.target, name, value, %code, "a parameter that the MGS keeps does not take its value: set another one with lctl set_param -P");
                }
            }
        }
    }
}

/// Sets what the process has of that name.
pub(crate) fn set_of_process(hub: &Hub, name: &str, value: &str) -> Result<(), Code> {
    let process = hub.process().ok_or(Code::NotFound)?;
    rpc::process::set_kept(&**process, name, value)
}
