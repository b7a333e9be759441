//! What can be read of a target, and set, by name: what every target has, and what its role adds.
//!
//! Names and values are Lustre's where the meaning is the same. Values are text, ready to be shown.

use std::sync::Arc;

use proto::parameters::{CLEARS, Glob, Parameter, TargetPlaces, TargetTree, Tree, Unit};
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Code, Whom};
use rpc::{Peer, Role};

use crate::admin::only_servers;
use crate::clients::DEADLINE;
use crate::recovery::PATIENCE;
use crate::returns::Returns;
use crate::{Handler, Target, recovery_status};

/// Says whom a target has no session with.
const NO_CLIENT: &str =
    "no such client has a session there; write its UUID, or nid:ADDRESS as in nid:10.0.0.7@tcp";

/// The parameters of a target, as somebody reads or sets them.
struct Parameters<'a, H: Handler> {
    target: &'a Target<H>,
    /// Who that is, as the log says it.
    from: &'a dyn std::fmt::Display,
    /// Whether it is told who the clients are.
    is_server: bool,
    /// The space of the target's disk, if it is asked for.
    space: Option<&'a msg::Space>,
}

impl<H: Handler> Target<H> {
    pub(crate) fn set_parameters(&self, peer: &Peer, set: &msg::SetParameters) -> Result<Reply, Code> {
        only_servers(peer)?;
        if set.parameters.len() > msg::PARAMETERS_MAX {
            return Err(Code::TooBig);
        }
        for msg::Parameter { name, value } in &set.parameters {
            self.set_by(&peer.from, name, value)?;
            tracing::info!(target = %self.store.label().target, from = %peer.from, name, value, "an operator sets a parameter");
        }
        Ok(Reply::SetParameters(msg::Done {}))
    }

    pub(crate) async fn read_parameters(
        &self,
        peer: &Peer,
        read: &msg::ReadParameters,
    ) -> Result<Reply, Code> {
        let space = self.space_for(read).await;
        if space.is_some() {
            self.disk_queues.look().await;
        }
        let is_server = peer.role == Role::Server;
        let parameters = Parameters { target: self, from: &peer.from, is_server, space: space.as_ref() };
        Ok(Reply::ReadParameters(parameters.registered(Tree::new(read)?).page()))
    }

    /// The space of its disk, if `read` asks for it. Of a disk that does not say nothing is shown.
    async fn space_for(&self, read: &msg::ReadParameters) -> Option<msg::Space> {
        let label = self.store.label();
        let place = TargetPlaces::new(label.fsname.as_str(), label.target).disk?;
        let may_fit = |pattern: &String| Glob::new(pattern).may_begin_with(&format!("{place}."));
        if !read.patterns.iter().any(may_fit) {
            return None;
        }
        self.handler.space().await.ok()
    }

    /// Sets those of the process itself whose names fit `pattern`.
    pub(crate) fn set_here(&self, pattern: &str, value: &str) -> Result<(), Code> {
        self.set_by(&"itself", pattern, value)
    }

    /// Sets those whose names fit what the MGS keeps. An order is given once: nobody keeps it.
    pub(crate) fn set_kept(&self, pattern: &str, value: &str) -> Result<(), Code> {
        let space = msg::Space::default();
        let parameters = Parameters { target: self, from: &"the MGS", is_server: true, space: Some(&space) };
        let found = parameters.registered(Tree::to_set(pattern)?).found()?;
        let mut kept = found.into_iter().filter(Parameter::is_kept);
        kept.try_for_each(|parameter| parameter.set(value)?)
    }

    fn set_by(&self, from: &dyn std::fmt::Display, pattern: &str, value: &str) -> Result<(), Code> {
        let space = msg::Space::default();
        let parameters = Parameters { target: self, from, is_server: true, space: Some(&space) };
        let found = parameters.registered(Tree::to_set(pattern)?).found()?;
        found.into_iter().try_for_each(|parameter| parameter.set(value)?)
    }
}

impl<'a, H: Handler> Parameters<'a, H> {
    /// All that a target has is registered here or by its role.
    fn registered(&self, tree: Tree<'a>) -> Tree<'a> {
        let target = self.target;
        let label = target.store.label();
        let mut tree = TargetTree::new(label.fsname.as_str(), label.target, tree);
        // Where changes of different clients do not rest on each other, nobody is waited for, and nobody has to be evicted.
        if H::ORDERED {
            self.sessions_in(&mut tree);
            tree.of_locks(Parameter::gauge("lock_count", Unit::None, move || target.handler.held_count()));
        }
        target.handler.parameters(&mut tree);
        target.measures.timing.parameters(&target.rt, H::STATS, &mut tree);
        target.measures.jobs.parameters(&target.rt, &mut tree);
        if H::ORDERED {
            self.recovery_in(&mut tree);
        }
        if let Some(space) = self.space {
            space_in(space, &mut tree);
            target.disk_queues.parameters(&target.rt, &mut tree);
        }
        tree.into_tree()
    }

    fn sessions_in(&self, tree: &mut TargetTree<'a>) {
        let (target, from) = (self.target, self.from);
        let evict = move |text: &str| {
            let whom = Whom::parse(text).ok_or(Code::NotFound)?;
            target.evict_clients(from, &whom)
        };
        tree.of_device(Parameter::order("evict_client", NO_CLIENT, evict));
        if self.is_server && tree.says("exports.") {
            for (nid, sessions) in target.exports.by_nid() {
                let sessions: Arc<[_]> = sessions.into();
                let clients = sessions.clone();
                let lines =
                    move || clients.iter().map(|of| of.client().to_string()).collect::<Vec<_>>().join("\n");
                tree.of_device(Parameter::text(format!("exports.{nid}.uuid"), lines));
                if let Some(stats) = H::STATS {
                    let by_client = &target.measures.by_client;
                    tree.of_device(by_client.of_nid((&target.rt, stats), &nid, sessions));
                }
            }
        }
        if H::STATS.is_some() {
            target.measures.by_client.switch_in(&target.rt, &target.exports, tree);
        }
        let sessions = &target.exports.sessions;
        tree.of_device(Parameter::gauge("num_exports", Unit::None, move || sessions.count()));
        tree.of_device(Parameter::text("recovery_status", move || recovery_status::text(&target.state())));
    }

    /// As in Lustre, whatever is written to a statistic clears it.
    fn recovery_in(&self, tree: &mut TargetTree<'a>) {
        let recovery = &self.target.recovery;
        let histogram = move || {
            let (began, ended, returns) = recovery.returns();
            returns.histogram(began, ended)
        };
        let clear = |what: fn(&mut Returns)| {
            move |_: &str| {
                recovery.clear_returns(what);
                Ok(())
            }
        };
        let classes = Parameter::histogram("recovery_reconnect_histogram", histogram);
        tree.of_device(classes.settable(CLEARS, clear(Returns::clear_classes)));
        let top = Parameter::text("recovery_reconnect_top", move || recovery.returns().2.top());
        tree.of_device(top.settable(CLEARS, clear(Returns::clear_last)));
        // How long a client may be out of reach while somebody waits for what it holds; how long one is waited for that lives;
        // and one of which nothing is known.
        let times =
            [("ldlm_timeout", DEADLINE), ("recovery_time_hard", DEADLINE), ("recovery_time_soft", PATIENCE)];
        for (name, time) in times {
            tree.of_device(Parameter::gauge(name, Unit::Seconds, move || time.as_secs()));
        }
    }
}

fn space_in<'a>(space: &'a msg::Space, tree: &mut TargetTree<'a>) {
    tree.of_disk(Parameter::text("fstype", || "weft"));
    let sizes = [
        ("kbytestotal", space.bytes_total >> 10),
        ("kbytesfree", space.bytes_free >> 10),
        ("kbytesavail", space.bytes_available >> 10),
        ("filestotal", space.files_total),
        ("filesfree", space.files_free),
    ];
    for (name, size) in sizes {
        tree.of_disk(Parameter::gauge(name, Unit::None, move || size));
    }
}
