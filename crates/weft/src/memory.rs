//! What a process has itself, whatever it serves: its memory, by Lustre's names where there is one, and its log.

use std::sync::Arc;

use proto::Code;
use proto::parameters::{Parameter, Tree, Unit};
use rt::Rt;
use rt::memory::LIMIT_BYTES_MIN;

use crate::log::Log;

/// The parameters of this process.
pub struct Own {
    rt: Rt,
    log: Option<Arc<Log>>,
}

impl Own {
    /// Those of the process whose runtime is `rt`.
    pub fn new(rt: Rt, log: Option<Arc<Log>>) -> Own {
        Own { rt, log }
    }

    /// 0 sets the first limit again.
    fn set_limit(&self, text: &str) -> Result<(), Code> {
        let memory = self.rt.memory();
        let mb: u64 = text.trim().parse().map_err(|_| Code::Invalid)?;
        let bytes =
            if mb == 0 { memory.limit_default() } else { mb.checked_mul(1 << 20).ok_or(Code::Invalid)? };
        if mb > 0 && !(LIMIT_BYTES_MIN..=memory.total()).contains(&bytes) {
            return Err(Code::Invalid);
        }
        memory.set_limit(bytes);
        // What follows from it takes a moment; a newer limit may come before it.
        let rt = self.rt.clone();
        self.rt.spawn(async move { rt.fit_memory_limit().await });
        Ok(())
    }
}

impl rpc::Process for Own {
    fn parameters<'a>(&'a self, tree: &mut Tree<'a>) {
        if let Some(log) = &self.log {
            log.parameters(tree);
        }
        let memory = self.rt.memory();
        let takes = format!(
            "write a number of MiB from {} to {}, 0 for half of the memory",
            LIMIT_BYTES_MIN >> 20,
            memory.total() >> 20
        );
        let limit = Parameter::gauge("mem_limit_mb", Unit::Mebibytes, || memory.limit() >> 20);
        tree.add("", limit.settable(takes, |text| self.set_limit(text)));
        tree.add("", Parameter::gauge("memused", Unit::Bytes, || memory.used()));
        tree.add("", Parameter::gauge("memused_max", Unit::Bytes, || memory.used_max()));
        tree.add("", Parameter::text("memused_users", || users(&memory.users())));
    }

    fn value(&self, name: &str) -> Option<String> {
        self.log.as_ref()?.value(name)
    }

    fn set_value(&self, name: &str, value: &str) -> Result<(), Code> {
        self.log.as_ref().ok_or(Code::NotFound)?.set_value(name, value)
    }
}

/// A line for each.
fn users(users: &[(&str, u64)]) -> String {
    users.iter().map(|(name, held)| format!("{name}: {held}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use proto::wire::messages::ReadParameters;

    use super::*;

    #[test]
    fn a_process_says_what_it_holds_and_takes_a_limit() {
        let node = rt::os::Node::start_without_rings(2).expect("a node");
        let own = Own::new(Rt::os(node.clone()), None);
        let value = |name: &str| {
            let read = ReadParameters { patterns: vec![name.to_owned()], skip: 0, names_only: false };
            let told = rpc::process::read(&own, &read).expect("the pattern is short").parameters;
            told.into_iter().map(|one| one.value).collect::<Vec<_>>().join(" ")
        };
        let set = |value: &str| rpc::process::set(&own, "mem_limit_mb", value);
        let first = value("mem_limit_mb");
        assert_eq!(set("64"), Ok(()));
        assert_eq!(value("mem_limit_mb"), "64");
        for bad in ["", "much", "1", "31", "99999999999", "18446744073709551615"] {
            assert_eq!(set(bad), Err(Code::Invalid), "{bad}");
        }
        assert_eq!(set("0"), Ok(()));
        assert_eq!(value("mem_limit_mb"), first);
        let bytes = |name: &str| value(name).parse::<u64>().expect("bytes");
        // The allocator counts but for a little for each counter.
        let before = bytes("memused");
        let held = vec![1u8; 64 << 20];
        assert!(bytes("memused") > before + (48 << 20), "{before}");
        assert!(bytes("memused_max") >= before + (48 << 20));
        drop(held);
        let user = Rt::os(node).memory().user("names");
        user.add(77);
        assert_eq!(value("memused_users"), "names: 77");
    }
}
