//! Clusters in virtual time, each with what a page of the documents promises. One program, so that it is built once.

mod ahead;
mod away;
mod components;
mod dead;
mod degraded;
mod failover;
mod full_sessions;
mod given;
mod heads;
mod hsm;
mod leases;
mod lfsck;
mod made;
mod migrate;
mod on_mdt;
mod qos;
mod quota_pools;
mod quotas;
mod renumbered;
mod replaced;
mod sizes;
mod spill;
mod statahead;
