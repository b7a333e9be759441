//! Clusters of the production roles in virtual time.
//!
//! A seed decides everything: the faults of network and disks, the order of tasks, and what the clients do. The
//! checkers know the system only from outside: they compare every result with a model ([`model`]), and after a
//! crash of everything they demand what was promised ([`recovered`]). A crash of servers only may cost nothing at all
//! ([`restart`]), at whichever of their syncs it comes ([`cuts`]). What many clients see of the same few files and names has to fit into one order ([`coherence`]).
//! Some of them read and write through mappings, with the page cache of a kernel ([`kernel`]).
//! In clusters with two service nodes for each target everything fails that may fail ([`failover`], [`storm`]); what is lost without each
//! mechanism of recovery the [`switches`] show. While they work, what targets granted has to fit what clients hold ([`invariants`]).
//! What a commit costs on disks whose heads have to move is an experiment of its own ([`journal`]).
//! A run in which nobody gets on any more says who waits for what ([`progress`]).

pub mod board;
pub mod cluster;
pub mod coherence;
pub mod content;
pub mod credulous;
pub mod cut_off;
pub mod cuts;
pub mod dead;
pub mod failover;
pub mod herd;
pub mod history;
pub mod invariants;
pub mod journal;
pub mod kernel;
pub mod model;
pub mod progress;
pub mod quiet;
pub mod recovered;
pub mod restart;
pub mod rounds;
pub mod scenario;
pub mod scripted;
pub mod shared;
pub mod storm;
pub mod switches;
pub mod workload;
