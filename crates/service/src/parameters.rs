//! What can be read of a target, and set, by name: what every target has, and what its role adds.
//!
//! Names and values are Lustre's where the meaning is the same. Values are text, ready to be shown.

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages as msg;
use rpc::Peer;

use crate::admin::only_servers;
use crate::clients::DEADLINE;
use crate::recovery::PATIENCE;
use crate::returns::Returns;
use crate::{Handler, Target};

/// Name: how long clients took to come back after the start.
const RECONNECT_HISTOGRAM: &str = "recovery_reconnect_histogram";
/// Name: who took longest.
const RECONNECT_TOP: &str = "recovery_reconnect_top";
/// Name: seconds that a client is waited for of which nothing is known.
const TIME_SOFT: &str = "recovery_time_soft";
/// Name: seconds that a client is waited for that lives.
const TIME_HARD: &str = "recovery_time_hard";
/// Name: locks that sessions hold.
const LOCK_COUNT: &str = "lock_count";
/// Name: seconds that a client may be out of reach while somebody waits for what it holds.
const LDLM_TIMEOUT: &str = "ldlm_timeout";

impl<H: Handler> Target<H> {
    pub(crate) fn set_parameters(&self, peer: &Peer, set: &msg::SetParameters) -> Result<Reply, Code> {
        if !set.parameters.is_empty() {
            only_servers(peer)?;
        }
        if set.parameters.len() > msg::PARAMETERS_MAX {
            return Err(Code::TooBig);
        }
        for parameter in &set.parameters {
            self.set_one(parameter)?;
            let (name, value) = (&parameter.name, &parameter.value);
            tracing::info!(target = %self.id, from = %peer.from, name, value, "an operator sets a parameter");
        }
        Ok(Reply::SetParameters(msg::Parameters { parameters: self.handler.parameters() }))
    }

    /// As in Lustre, whatever is written to a statistic clears it.
    fn set_one(&self, parameter: &msg::Parameter) -> Result<(), Code> {
        match parameter.name.as_str() {
            RECONNECT_HISTOGRAM => self.recovery.clear_returns(Returns::clear_classes),
            RECONNECT_TOP => self.recovery.clear_returns(Returns::clear_last),
            TIME_SOFT | TIME_HARD | LDLM_TIMEOUT | LOCK_COUNT => return Err(Code::Forbidden),
            _ => self.handler.set_parameter(parameter)?,
        }
        Ok(())
    }

    /// Those of the names that there are, in the order in which they are asked for.
    pub(crate) fn read_parameters(&self, read: &msg::ReadParameters) -> Result<Reply, Code> {
        if read.names.len() > msg::PARAMETERS_MAX {
            return Err(Code::TooBig);
        }
        let value = |name: &String| Some(msg::Parameter { name: name.clone(), value: self.read_one(name)? });
        let parameters = read.names.iter().filter_map(value).collect();
        Ok(Reply::ReadParameters(msg::Parameters { parameters }))
    }

    fn read_one(&self, name: &str) -> Option<String> {
        let of_all = match name {
            RECONNECT_HISTOGRAM => {
                let (began, ended, returns) = self.recovery.returns();
                returns.histogram(began, ended)
            }
            RECONNECT_TOP => self.recovery.returns().2.top(),
            LOCK_COUNT => self.handler.held().len().to_string(),
            TIME_SOFT => PATIENCE.as_secs().to_string(),
            TIME_HARD | LDLM_TIMEOUT => DEADLINE.as_secs().to_string(),
            _ => {
                let settable = self.handler.parameters().into_iter().find(|one| one.name == name);
                return settable.map(|one| one.value).or_else(|| self.handler.statistic(name));
            }
        };
        Some(of_all)
    }
}
