//! What can be read of a process, and set, whatever it serves: parameters beside those of its targets, and what is none, its log.
//!
//! It is asked for as a target's parameters are, outside any session, by names and patterns that begin with [`PREFIX`]; the process
//! answers itself, also while it serves none of its targets.

use std::sync::Arc;

use proto::Code;
use proto::parameters::{Parameter, Tree};
use proto::wire::messages as msg;
use proto::wire::{Reply, Request};

use crate::hub::Hub;
use crate::keys::Role;
use crate::service::{Answer, Call};

/// What the names of a process's own parameters and values begin with, where they are asked for. Answers have the names of parameters
/// without it.
pub const PREFIX: &str = "process.";

/// What a process has itself. Names come without [`PREFIX`].
pub trait Process: Send + Sync + 'static {
    /// Registers its parameters, whose whole names begin with one of [`proto::parameters::PROCESS_PLACES`].
    fn parameters<'a>(&'a self, tree: &mut Tree<'a>);

    /// A value that is no parameter, as text; `None` if there is none of that name. At most `proto::limits::XATTR_BYTES_MAX` bytes.
    fn value(&self, name: &str) -> Option<String>;

    /// Sets one. [`Code::NotFound`]: there is none of that name; [`Code::Invalid`]: the value is none.
    fn set_value(&self, name: &str, value: &str) -> Result<(), Code>;
}

/// The parameters of `process` that `read` asks for.
///
/// # Errors
/// As [`Tree::new`].
pub fn read(process: &dyn Process, read: &msg::ReadParameters) -> Result<msg::ParameterPage, Code> {
    let mut tree = Tree::new(read)?;
    process.parameters(&mut tree);
    Ok(tree.page())
}

/// Sets the parameter of `process` with this name, or what it has besides.
///
/// # Errors
/// [`Code::NotFound`]: it has nothing of that name; [`Code::Invalid`]: the value is none.
pub fn set(process: &dyn Process, name: &str, value: &str) -> Result<(), Code> {
    let mut tree = Tree::to_set(name)?;
    process.parameters(&mut tree);
    match tree.found() {
        Ok(found) => found.into_iter().try_for_each(|parameter| parameter.set(value)?),
        Err(Code::NotFound) => process.set_value(name, value),
        Err(code) => Err(code),
    }
}

/// Sets the parameters of `process` that fit what the MGS keeps.
///
/// # Errors
/// [`Code::NotFound`]: it has none of that name; [`Code::Invalid`]: the value is none.
pub fn set_kept(process: &dyn Process, name: &str, value: &str) -> Result<(), Code> {
    let mut tree = Tree::to_set(name)?;
    process.parameters(&mut tree);
    let mut kept = tree.found()?.into_iter().filter(Parameter::is_kept);
    kept.try_for_each(|parameter| parameter.set(value)?)
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
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
            Request::ReadParameters(asked) => {
                let [name] = &asked.patterns[..] else { return Err(Code::TooBig) };
                let own = without_prefix(name);
                let Some(value) = process.value(own) else {
                    let asked = msg::ReadParameters { patterns: vec![own.to_owned()], ..asked.clone() };
                    return Ok(Reply::ReadParameters(read(&**process, &asked)?));
                };
                let shown = msg::ShownParameter {
                    name: name.clone(),
                    value,
                    access: msg::PARAMETER_READABLE,
                    kind: msg::PARAMETER_TEXT,
                    unit: String::new(),
                    takes: String::new(),
                };
                Ok(Reply::ReadParameters(msg::ParameterPage { parameters: vec![shown], more: false }))
            }
            Request::SetParameters(order) => {
                let [msg::Parameter { name, value }] = &order.parameters[..] else {
                    return Err(Code::TooBig);
                };
                set(&**process, without_prefix(name), value)?;
                Ok(Reply::SetParameters(msg::Done {}))
            }
            _ => Err(Code::NotSupported),
        }
    }
}
