//! Tests of what clients keep, over all operations.

mod alone;
mod bytes;
mod changelog;
mod coherence;
mod giving_way;
mod inodes;
mod jobs;
mod keeping;
mod load;
mod missing;
mod model;
mod numbers;
mod on_mdt;
mod planning;
mod promises;
mod quota_pools;
mod quotas;
mod reclaiming;
mod revoking;
mod sharing;
