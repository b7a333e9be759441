//! A mount takes the parameters that the MGS keeps: at its start, when one is set, and with each target that it has not used before.

use std::sync::Arc;
use std::time::Duration;

use client::posix::{Errno, Result};
use client::{Caller, Client, Error, TakenSettings};
use proto::Code;
use proto::wire::messages::ChangeSetting;
use serde::{Deserialize, Serialize};

use crate::ops::Ops;
use crate::virtuals::may_administrate;
use crate::{control, parameters};

/// The attribute that has the MGS keep a parameter: a [`KeepOrder`]. For a mount of the MGS's own process, and for root and whom the
/// mount belongs to.
pub const KEEP_PARAMETER: &str = "weft.keep-parameter";
/// How long the MGS may take.
const ORDER_WAIT: Duration = Duration::from_secs(10);

/// A change of what the MGS keeps; the fields are those of [`ChangeSetting`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepOrder {
    /// Name; `*` stands for any characters.
    pub name: String,
    /// Value; `None` to delete it.
    pub value: Option<String>,
}

/// Has the MGS keep a parameter, or keep it no longer.
pub(crate) async fn change(client: &Client, caller: &Caller, value: &[u8]) -> Result<()> {
    may_administrate(caller)?;
    let KeepOrder { name, value } = control::decode(value).map_err(|_| Errno::INVALID)?;
    let change = ChangeSetting { fsname: client.admin().fsname(), name, value };
    Ok(client.admin().order_mgs(change, ORDER_WAIT).await?)
}

impl Ops {
    /// Sets what is new.
    pub async fn take_settings(&self, taken: &mut TakenSettings) {
        let admin = self.client().admin();
        for new in admin.new_settings(taken) {
            let (name, value) = (&new.setting.name, &new.setting.value);
            let status = self.status();
            let of_mount =
                parameters::set_kept(self.mount(&status), (name, value), |name| new.concerns(name)).await;
            let of_process = admin.set_kept_of_process(name, value).map_err(Errno::from);
            for taken in [of_mount, of_process] {
                match taken {
                    Ok(()) => tracing::info!(name, value, "a parameter is set as the MGS keeps it"),
                    Err(errno) if errno == Errno::from(Error::Refused(Code::NotFound)) => {}
                    Err(error) => {
                        tracing::warn!(
                            name,
                            value,
                            ?error,
                            "a parameter that the MGS keeps does not take its value: set another one with lctl set_param -P"
                        );
                    }
                }
            }
        }
    }

    /// Goes on with that until the client ends.
    pub async fn follow_settings(self: Arc<Self>, mut taken: TakenSettings) {
        while self.client().admin().until_settings(&taken).await {
            self.take_settings(&mut taken).await;
        }
    }
}
