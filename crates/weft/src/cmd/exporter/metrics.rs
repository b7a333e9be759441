//! The metrics. Names, labels and meanings are those of lustrefs-exporter where it has them, so that dashboards and rules that
//! are made for it work; those of our own begin with `weft_`.

use super::text::{Kind, Metric};

macro_rules! metrics {
    ($($id:ident $kind:ident $name:literal $help:literal;)*) => {
        $(pub const $id: Metric = Metric { name: $name, kind: Kind::$kind, help: $help };)*
        /// All of them.
        #[cfg(test)]
        pub const ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    AVAILABLE Gauge "lustre_available_kilobytes" "Space of the target that users can fill, in KiB.";
    CAPACITY Gauge "lustre_capacity_kilobytes" "Space of the target, in KiB.";
    FREE Gauge "lustre_free_kilobytes" "Space of the target that is free, in KiB.";
    INODES_FREE Gauge "lustre_inodes_free" "Files that the target has room for.";
    INODES_MAXIMUM Gauge "lustre_inodes_maximum" "Files of the target, and those that it has room for.";

    READ_BYTES Counter "lustre_read_bytes_total" "Bytes that clients read.";
    WRITE_BYTES Counter "lustre_write_bytes_total" "Bytes that clients wrote.";
    READ_SAMPLES Counter "lustre_read_samples_total" "Requests that read.";
    WRITE_SAMPLES Counter "lustre_write_samples_total" "Requests that wrote.";
    READ_MINIMUM Gauge "lustre_read_minimum_size_bytes" "Fewest bytes that a request read.";
    WRITE_MINIMUM Gauge "lustre_write_minimum_size_bytes" "Fewest bytes that a request wrote.";
    READ_MAXIMUM Gauge "lustre_read_maximum_size_bytes" "Most bytes that a request read.";
    WRITE_MAXIMUM Gauge "lustre_write_maximum_size_bytes" "Most bytes that a request wrote.";

    STATS Counter "lustre_stats_total" "Operations that the target has carried out.";
    STATS_TIME_MIN Gauge "lustre_stats_time_min" "Shortest time of an operation, in microseconds.";
    STATS_TIME_MAX Gauge "lustre_stats_time_max" "Longest time of an operation, in microseconds.";
    STATS_TIME Counter "lustre_stats_time_total" "Time of all operations together, in microseconds.";

    BULK_PAGES Counter "lustre_pages_per_bulk_rw_total" "Requests with data of so many pages.";
    DISCONTIGUOUS_PAGES Counter "lustre_discontiguous_pages_total" "Requests with so many gaps between their pages.";
    DISCONTIGUOUS_BLOCKS Counter "lustre_discontiguous_blocks_total" "Requests with so many gaps between their blocks on the disk.";
    FRAGMENTS Counter "lustre_dio_frags" "Requests that took so many accesses to the disk.";
    IN_FLIGHT Counter "lustre_disk_io" "Accesses to the disk with so many under way.";
    IO_TIME Counter "lustre_io_time_milliseconds_total" "Accesses to the disk that took so many milliseconds at most.";
    IO_SIZE Counter "lustre_disk_io_total" "Accesses to the disk of so many bytes.";

    JOB_STATS Counter "lustre_job_stats_total" "Operations that the target has carried out for the job.";
    JOB_READ_BYTES Counter "lustre_job_read_bytes_total" "Bytes that the job read.";
    JOB_WRITE_BYTES Counter "lustre_job_write_bytes_total" "Bytes that the job wrote.";
    JOB_READ_SAMPLES Counter "lustre_job_read_samples_total" "Requests of the job that read.";
    JOB_WRITE_SAMPLES Counter "lustre_job_write_samples_total" "Requests of the job that wrote.";
    JOB_READ_MINIMUM Gauge "lustre_job_read_minimum_size_bytes" "Fewest bytes that a request of the job read.";
    JOB_WRITE_MINIMUM Gauge "lustre_job_write_minimum_size_bytes" "Fewest bytes that a request of the job wrote.";
    JOB_READ_MAXIMUM Gauge "lustre_job_read_maximum_size_bytes" "Most bytes that a request of the job read.";
    JOB_WRITE_MAXIMUM Gauge "lustre_job_write_maximum_size_bytes" "Most bytes that a request of the job wrote.";
    JOBS Gauge "weft_jobs" "Jobs that the target counts for, with those that are not shown one by one.";

    CLIENT_STATS Counter "lustre_client_stats" "Operations of the mount.";
    CLIENT_BYTES Counter "weft_client_bytes_total" "Bytes that applications read or wrote through the mount.";
    CONNECTED_CLIENTS Gauge "lustre_connected_clients" "Clients that have a session with the MDT.";
    EXPORTS Gauge "lustre_exports_total" "Sessions that the target has.";
    LOCKS Gauge "lustre_lock_count_total" "Locks that the target has granted.";

    CHANGELOG_CURRENT Counter "lustre_changelog_current_index" "Newest record of the changelog.";
    CHANGELOG_USER Counter "lustre_changelog_user_index" "Newest record that the reader has cleared.";
    CHANGELOG_IDLE Gauge "lustre_changelog_user_idle_sec" "Seconds since the reader was heard of.";

    QUOTA_INODES Gauge "lustre_quota_used_inodes" "Files of the owner on the target.";
    QUOTA_KBYTES Gauge "lustre_quota_used_kbytes" "Space of the owner on the target, in KiB.";
    OWNERS Gauge "weft_owners" "Owners of the kind that have something on the target, with those that are not shown one by one.";

    HEALTHY Gauge "lustre_health_healthy" "1: all targets that are reached from here are well.";
    MEM_USED Gauge "lustre_mem_used" "Bytes that the process holds.";
    MEM_USED_MAX Gauge "lustre_mem_used_max" "Most bytes that the process has held.";

    RECOVERY Gauge "recovery_status" "Recovery of the target. 0: complete, 1: inactive, 3: waiting for clients, 4: recovering, 5: unknown.";
    RECOVERY_COMPLETED Gauge "recovery_status_completed_clients" "Clients that have recovered.";
    RECOVERY_CONNECTED Gauge "recovery_status_connected_clients" "Clients that came back.";
    RECOVERY_EVICTED Gauge "recovery_status_evicted_clients" "Clients that were given up.";
    RECOVERY_TOTAL Gauge "recovery_status_total_clients" "Clients that were expected.";
    RECOVERY_REMAINING Gauge "recovery_status_time_remaining_seconds" "Seconds until clients are given up that do nothing.";
    RECOVERY_DURATION Gauge "recovery_status_duration_seconds" "Seconds that the recovery took.";

    CPU_LOAD Gauge "mds_cpu_load" "Percent of its processors that the process of the MDT has used in the last ten seconds.";

    TARGET_UP Gauge "weft_target_up" "1: the target answers. 0: it does not.";
    MOUNT_UP Gauge "weft_mount_up" "1: the mount answers. 0: it does not.";
    SCRAPE_SECONDS Gauge "weft_scrape_duration_seconds" "Seconds that collecting all this took.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(metric.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", metric.name);
        }
    }
}
