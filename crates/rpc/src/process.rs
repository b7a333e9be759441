//! What can be read of a process, and set, whatever it serves: named values beside the parameters of its targets.
//!
//! They are asked for as a target's are, outside any session, by names that begin with [`PREFIX`]; the process answers
//! itself, also while it serves none of its targets.

use std::sync::Arc;

use proto::Code;
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};

use crate::hub::Hub;
use crate::keys::Role;
use crate::service::{Answer, Call};

/// What the names of a process's own values begin with, where they are asked for.
pub const PREFIX: &str = "process.";

/// Named values of a process. Names come without [`PREFIX`].
pub trait Process: Send + Sync + 'static {
    /// A value, as text; `None` if there is none of that name. At most `proto::limits::XATTR_BYTES_MAX` bytes.
    fn value(&self, name: &str) -> Option<String>;

    /// Sets one. [`Code::NotFound`]: there is none of that name; [`Code::Invalid`]: the value is none.
    fn set_value(&self, name: &str, value: &str) -> Result<(), Code>;
}

impl Hub {
    /// The answer, if `call` is for the process itself.
    pub(crate) fn process_answer(&self, call: &Call) -> Option<Answer> {
        let process = self.process()?;
        let names: Vec<&String> = match &call.request {
            Request::ReadParameters(read) => read.patterns.iter().collect(),
            Request::SetParameters(set) => set.parameters.iter().map(|one| &one.name).collect(),
            _ => return None,
        };
        if call.session != 0 || names.is_empty() || !names.iter().all(|name| name.starts_with(PREFIX)) {
            return None;
        }
        Some(match self.of_process(process, call) {
            Ok(reply) => Answer { result: Ok(reply), ..Answer::refuse(Code::Invalid) },
            Err(code) => Answer::refuse(code),
        })
    }

    /// One value at a time: each may be as long as a message. Reading needs the servers' key too: it may be a log.
    fn of_process(&self, process: &Arc<dyn Process>, call: &Call) -> Result<Reply, Code> {
        if call.peer.role != Role::Server {
            return Err(Code::Forbidden);
        }
        match &call.request {
            Request::ReadParameters(read) => {
                let [name] = &read.patterns[..] else { return Err(Code::TooBig) };
                let value = process.value(name.strip_prefix(PREFIX).unwrap_or(name));
                let shown = value.map(|value| msg::ShownParameter {
                    name: name.clone(),
                    value,
                    access: msg::PARAMETER_READABLE,
                    kind: msg::PARAMETER_TEXT,
                    unit: String::new(),
                    takes: String::new(),
                });
                let parameters = shown.into_iter().collect();
                Ok(Reply::ReadParameters(msg::ParameterPage { parameters, more: false }))
            }
            Request::SetParameters(set) => {
                let [msg::Parameter { name, value }] = &set.parameters[..] else { return Err(Code::TooBig) };
                process.set_value(name.strip_prefix(PREFIX).unwrap_or(name), value)?;
                Ok(Reply::SetParameters(msg::Done {}))
            }
            _ => Err(Code::NotSupported),
        }
    }
}
