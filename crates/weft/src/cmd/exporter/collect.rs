//! From parameters to metrics: each parameter is asked for by its name, as `lctl get_param` does, and becomes metrics here.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use super::metrics as m;
use super::text::{Exposition, Metric};
use crate::failure::Failure;
use crate::lctl::params;
use crate::lctl::reach::Reach;
use crate::statistics::{self, Samples, Table};

/// What is asked for.
const PATTERNS: &[&str] = &[
    "osd-*.*.kbytes*",
    "osd-*.*.files*",
    "obdfilter.*.stats",
    "obdfilter.*.brw_stats",
    "obdfilter.*.job_stats",
    "obdfilter.*.num_exports",
    "obdfilter.*.recovery_status",
    "mdt.*.md_stats",
    "mdt.*.job_stats",
    "mdt.*.cpu_load",
    "mdt.*.num_exports",
    "mdt.*.exports.*.uuid",
    "mdt.*.recovery_status",
    "mdd.*.changelog_users",
    "ldlm.namespaces.mdt-*.lock_count",
    "ldlm.namespaces.filter-*.lock_count",
    "llite.*.stats",
    "health_check",
];
/// What is asked for if owners are shown.
const OF_OWNERS: &[&str] = &["osd-*.*.quota_slave.acct_*"];
/// The job that stands for those that are not shown one by one.
const OTHER_JOBS: &str = "other";

/// How many are shown one by one of what there may be any number of, of each target.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Jobs, those that have done most.
    pub jobs: usize,
    /// Owners of each kind, those that have most; with 0 nobody is asked for them.
    pub owners: usize,
}

/// Asks everybody who is reached, and gives the metrics as text.
pub fn collect(reach: &mut Reach, most: Most) -> Result<String, Failure> {
    let began = Instant::now();
    // Nobody would be told of what is not there: "healthy" would be no answer.
    if reach.devices.is_empty() && reach.mounts.is_empty() && reach.left_out.is_empty() {
        return Err(Failure::new(
            "nothing of weft runs here that this user reaches: start it as root, where targets are served or a file system is mounted",
        ));
    }
    let mut all = Collected { metrics: Exposition::default(), clients: BTreeMap::new(), most };
    let of_owners = if most.owners > 0 { OF_OWNERS } else { &[] };
    let told = params::told(reach, &[PATTERNS, of_owners].concat())?;
    for (name, value) in &told.values {
        all.add(name, value);
    }
    for device in &reach.devices {
        let labels = [("filesystem", device.fsname.as_str()), ("target", device.name.as_str())];
        all.metrics.set(&m::TARGET_UP, &labels, u8::from(!told.silent.contains(&device.name)));
    }
    let answering = reach.mounts.iter().map(|mount| (&mount.entry.path, 1));
    for (path, is_up) in answering.chain(reach.left_out.iter().map(|path| (path, 0))) {
        all.metrics.set(&m::MOUNT_UP, &[("path", &path.to_string_lossy())], is_up);
    }
    for process in reach.processes()? {
        let pid = process.pid.to_string();
        for (metric, name) in [(&m::MEM_USED, "memused"), (&m::MEM_USED_MAX, "memused_max")] {
            if let Ok(value) = reach.process_value(&process, name)?
                && let Ok(bytes) = value.trim().parse::<u64>()
            {
                all.metrics.set(metric, &[("pid", &pid)], bytes);
            }
        }
    }
    for (target, count) in &all.clients {
        all.metrics.set(&m::CONNECTED_CLIENTS, &[("component", "mdt"), ("target", target)], count);
    }
    all.metrics.set(&m::SCRAPE_SECONDS, &[], began.elapsed().as_secs_f64());
    Ok(all.metrics.text())
}

struct Collected {
    metrics: Exposition,
    /// Clients of each MDT.
    clients: BTreeMap<String, usize>,
    most: Most,
}

/// A target, and what it is.
#[derive(Clone, Copy)]
struct Of<'a> {
    component: &'static str,
    target: &'a str,
}

impl<'a> Of<'a> {
    fn labels(self) -> [(&'static str, &'a str); 2] {
        [("component", self.component), ("target", self.target)]
    }

    fn operation<'b>(self, operation: &'b str) -> [(&'static str, &'b str); 3]
    where
        'a: 'b,
    {
        [("component", self.component), ("operation", operation), ("target", self.target)]
    }
}

impl Collected {
    /// Adds what the parameter `name` says.
    fn add(&mut self, name: &str, value: &str) {
        if name == "health_check" {
            return self.metrics.set(&m::HEALTHY, &[], u8::from(value == "healthy"));
        }
        if let Some(space) = name.strip_prefix("ldlm.namespaces.") {
            return self.locks(space, value);
        }
        let mut parts = name.splitn(3, '.');
        let (Some(place), Some(target), Some(last)) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        let component = if target.contains("-MDT") { "mdt" } else { "ost" };
        let of = Of { component, target };
        match (place, last) {
            ("llite", "stats") => self.mount(target, value),
            ("mdd", "changelog_users") => self.changelog(target, value),
            (_, "cpu_load") => {
                if let Ok(percent) = value.trim().parse::<f64>() {
                    self.metrics.set(&m::CPU_LOAD, &of.labels(), percent);
                }
            }
            (_, "num_exports") => self.number(&m::EXPORTS, of, value),
            (_, "stats" | "md_stats") => self.stats(of, value),
            (_, "brw_stats") => self.sizes(of, value),
            (_, "job_stats") => self.jobs(of, value),
            (_, "recovery_status") => self.recovery(of, value),
            (_, "kbytestotal") => self.number(&m::CAPACITY, of, value),
            (_, "kbytesfree") => self.number(&m::FREE, of, value),
            (_, "kbytesavail") => self.number(&m::AVAILABLE, of, value),
            (_, "filestotal") => self.number(&m::INODES_MAXIMUM, of, value),
            (_, "filesfree") => self.number(&m::INODES_FREE, of, value),
            (_, "quota_slave.acct_user") => self.owners("user", of, value),
            (_, "quota_slave.acct_group") => self.owners("group", of, value),
            (_, "quota_slave.acct_project") => self.owners("project", of, value),
            (_, exports) if exports.starts_with("exports.") => {
                *self.clients.entry(target.to_owned()).or_default() += value.lines().count();
            }
            _ => {}
        }
    }

    fn number(&mut self, metric: &'static Metric, of: Of<'_>, value: &str) {
        if let Ok(number) = value.trim().parse::<u64>() {
            self.metrics.set(metric, &of.labels(), number);
        }
    }

    /// `mdt-w-MDT0000_UUID.lock_count`.
    fn locks(&mut self, space: &str, value: &str) {
        let Some(name) = space.strip_suffix("_UUID.lock_count") else { return };
        let of = match (name.strip_prefix("mdt-"), name.strip_prefix("filter-")) {
            (Some(target), _) => Of { component: "mdt", target },
            (_, Some(target)) => Of { component: "ost", target },
            _ => return,
        };
        self.number(&m::LOCKS, of, value);
    }

    fn mount(&mut self, mount: &str, value: &str) {
        for (operation, samples) in statistics::stats(value) {
            let labels = [("component", "client"), ("operation", operation.as_str()), ("target", mount)];
            match operation.strip_suffix("_bytes") {
                Some(way) => {
                    let labels = [("operation", way), ("target", mount)];
                    self.metrics.set(&m::CLIENT_BYTES, &labels, samples.sum);
                }
                None => self.metrics.set(&m::CLIENT_STATS, &labels, samples.count),
            }
        }
    }

    fn changelog(&mut self, target: &str, value: &str) {
        if let Some(Ok(index)) =
            statistics::lines(value).get("current_index").map(|index| index.parse::<u64>())
        {
            self.metrics.set(&m::CHANGELOG_CURRENT, &[("target", target)], index);
        }
        for (user, index, idle) in statistics::readers(value) {
            let labels = [("target", target), ("user", user)];
            self.metrics.set(&m::CHANGELOG_USER, &labels, index);
            self.metrics.set(&m::CHANGELOG_IDLE, &labels, idle);
        }
    }

    fn stats(&mut self, of: Of<'_>, value: &str) {
        for (operation, samples) in statistics::stats(value) {
            let labels = of.operation(&operation);
            let bytes: Option<[&'static Metric; 4]> = match operation.as_str() {
                "read_bytes" => Some([&m::READ_BYTES, &m::READ_SAMPLES, &m::READ_MINIMUM, &m::READ_MAXIMUM]),
                "write_bytes" => {
                    Some([&m::WRITE_BYTES, &m::WRITE_SAMPLES, &m::WRITE_MINIMUM, &m::WRITE_MAXIMUM])
                }
                _ => None,
            };
            if let Some(metrics) = bytes {
                self.bytes(metrics, &of.labels(), &samples);
                continue;
            }
            self.metrics.set(&m::STATS, &labels, samples.count);
            self.metrics.set(&m::STATS_TIME_MIN, &labels, samples.min);
            self.metrics.set(&m::STATS_TIME_MAX, &labels, samples.max);
            self.metrics.set(&m::STATS_TIME, &labels, samples.sum);
        }
    }

    fn bytes(&mut self, metrics: [&'static Metric; 4], labels: &[(&str, &str)], samples: &Samples) {
        let values = [samples.sum, samples.count, samples.min, samples.max];
        for (metric, value) in metrics.into_iter().zip(values) {
            self.metrics.set(metric, labels, value);
        }
    }

    fn sizes(&mut self, of: Of<'_>, value: &str) {
        for bucket in statistics::buckets(value) {
            let metric = match bucket.table.as_str() {
                "pages per bulk r/w" => &m::BULK_PAGES,
                "discontiguous pages" => &m::DISCONTIGUOUS_PAGES,
                "discontiguous blocks" => &m::DISCONTIGUOUS_BLOCKS,
                "disk fragmented I/Os" => &m::FRAGMENTS,
                "disk I/Os in flight" => &m::IN_FLIGHT,
                "I/O time (1/1000s)" => &m::IO_TIME,
                "disk I/O size" => &m::IO_SIZE,
                _ => continue,
            };
            let size = bucket.size.to_string();
            for (operation, count) in ["read", "write"].into_iter().zip(bucket.counts) {
                let [component, operation, target] = of.operation(operation);
                self.metrics.set(metric, &[component, operation, ("size", &size), target], count);
            }
        }
    }

    /// Jobs come and go without a bound, and each is many series: those that have done most are shown one by one.
    fn jobs(&mut self, of: Of<'_>, value: &str) {
        let jobs = statistics::jobs(value);
        self.metrics.set(&m::JOBS, &of.labels(), jobs.len());
        let done = |table: &Table| table.values().map(|samples| samples.count).sum::<u64>();
        let mut order: Vec<(&String, &Table)> = jobs.iter().collect();
        order.sort_by_key(|(job, table)| (Reverse(done(table)), *job));
        let mut other = Table::new();
        for (index, (job, table)) in order.into_iter().enumerate() {
            if index < self.most.jobs {
                self.job(of, job, table);
                continue;
            }
            for (operation, samples) in table {
                other.entry(operation.clone()).or_default().add(samples);
            }
        }
        self.job(of, OTHER_JOBS, &other);
    }

    fn job(&mut self, of: Of<'_>, job: &str, table: &Table) {
        for (operation, samples) in table {
            let [component, _, target] = of.operation(operation);
            let labels = [component, ("jobid", job), target];
            let bytes: [&'static Metric; 4] = match operation.as_str() {
                "read_bytes" => {
                    [&m::JOB_READ_BYTES, &m::JOB_READ_SAMPLES, &m::JOB_READ_MINIMUM, &m::JOB_READ_MAXIMUM]
                }
                "write_bytes" => {
                    [&m::JOB_WRITE_BYTES, &m::JOB_WRITE_SAMPLES, &m::JOB_WRITE_MINIMUM, &m::JOB_WRITE_MAXIMUM]
                }
                _ => {
                    let labels = [component, ("jobid", job), ("operation", operation.as_str()), target];
                    self.metrics.set(&m::JOB_STATS, &labels, samples.count);
                    continue;
                }
            };
            self.bytes(bytes, &labels, samples);
        }
    }

    fn owners(&mut self, accounting: &str, of: Of<'_>, value: &str) {
        let mut owners = Vec::from_iter(statistics::accounts(value));
        let labels = [("accounting", accounting), ("component", of.component), ("target", of.target)];
        self.metrics.set(&m::OWNERS, &labels, owners.len());
        owners.sort_by_key(|owner| (Reverse(owner.kbytes), Reverse(owner.inodes), owner.id));
        for owner in owners.iter().take(self.most.owners) {
            let id = owner.id.to_string();
            let [accounting, component, target] = labels;
            let labels = [accounting, component, ("id", id.as_str()), target];
            self.metrics.set(&m::QUOTA_INODES, &labels, owner.inodes);
            self.metrics.set(&m::QUOTA_KBYTES, &labels, owner.kbytes);
        }
    }

    fn recovery(&mut self, of: Of<'_>, value: &str) {
        let lines = statistics::lines(value);
        let kind = if of.component == "mdt" { "MDT" } else { "OST" };
        let labels = [("kind", kind), ("target", of.target)];
        let status = match lines.get("status").copied() {
            Some("COMPLETE") => 0,
            Some("INACTIVE") => 1,
            Some("WAITING_FOR_CLIENTS") => 3,
            Some("RECOVERING") => 4,
            _ => 5,
        };
        self.metrics.set(&m::RECOVERY, &labels, status);
        let counts: [(&str, &'static Metric); 5] = [
            ("completed_clients", &m::RECOVERY_COMPLETED),
            ("connected_clients", &m::RECOVERY_CONNECTED),
            ("evicted_clients", &m::RECOVERY_EVICTED),
            ("time_remaining", &m::RECOVERY_REMAINING),
            ("recovery_duration", &m::RECOVERY_DURATION),
        ];
        for (name, metric) in counts {
            let Some((part, whole)) = lines.get(name).and_then(|text| statistics::fraction(text)) else {
                continue;
            };
            self.metrics.set(metric, &labels, part);
            if let Some(whole) = whole {
                self.metrics.set(&m::RECOVERY_TOTAL, &labels, whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(most: usize, parameters: &[(&str, &str)]) -> String {
        let most = Most { jobs: most, owners: most };
        let mut all = Collected { metrics: Exposition::default(), clients: BTreeMap::new(), most };
        parameters.iter().for_each(|(name, value)| all.add(name, value));
        let text = all.metrics.text();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn targets_become_series() {
        let got = text(
            1,
            &[
                ("osd-weft.w-OST0000.kbytesavail", "17"),
                ("osd-weft.w-MDT0000.fstype", "weft"),
                (
                    "obdfilter.w-OST0000.stats",
                    "read_bytes 6 samples [bytes] 1 9 30 4\nsync 2 samples [usecs] 3 4 7 25",
                ),
                ("ldlm.namespaces.filter-w-OST0000_UUID.lock_count", "5"),
                ("mdt.w-MDT0000.recovery_status", "status: COMPLETE\ncompleted_clients: 3/4"),
                (
                    "mdd.w-MDT0000.changelog_users",
                    "current_index: 9\nID    index (idle seconds)\ncl1   7 (45)",
                ),
                ("health_check", "device w-OST0001 reported unhealthy\nNOT HEALTHY"),
                ("something.else.entirely", "1"),
            ],
        );
        let want = r#"lustre_available_kilobytes{component="ost",target="w-OST0000"} 17
lustre_changelog_current_index{target="w-MDT0000"} 9
lustre_changelog_user_idle_sec{target="w-MDT0000",user="cl1"} 45
lustre_changelog_user_index{target="w-MDT0000",user="cl1"} 7
lustre_health_healthy 0
lustre_lock_count_total{component="ost",target="w-OST0000"} 5
lustre_read_bytes_total{component="ost",target="w-OST0000"} 30
lustre_read_maximum_size_bytes{component="ost",target="w-OST0000"} 9
lustre_read_minimum_size_bytes{component="ost",target="w-OST0000"} 1
lustre_read_samples_total{component="ost",target="w-OST0000"} 6
lustre_stats_time_max{component="ost",operation="sync",target="w-OST0000"} 4
lustre_stats_time_min{component="ost",operation="sync",target="w-OST0000"} 3
lustre_stats_time_total{component="ost",operation="sync",target="w-OST0000"} 7
lustre_stats_total{component="ost",operation="sync",target="w-OST0000"} 2
recovery_status{kind="MDT",target="w-MDT0000"} 0
recovery_status_completed_clients{kind="MDT",target="w-MDT0000"} 3
recovery_status_total_clients{kind="MDT",target="w-MDT0000"} 4"#;
        assert_eq!(got, want);
    }

    #[test]
    fn owners_are_bounded() {
        let owner = |id, inodes, kbytes| {
            format!("- id:      {id}\n  usage:   {{ inodes: {inodes:>20}, kbytes: {kbytes:>20} }}\n")
        };
        let owners = format!("usr_accounting:\n{}{}{}", owner(0, 1, 4), owner(7, 0, 400), owner(9, 5, 399));
        let got = text(2, &[("osd-weft.w-OST0000.quota_slave.acct_user", &owners)]);
        let want = r#"lustre_quota_used_inodes{accounting="user",component="ost",id="7",target="w-OST0000"} 0
lustre_quota_used_inodes{accounting="user",component="ost",id="9",target="w-OST0000"} 5
lustre_quota_used_kbytes{accounting="user",component="ost",id="7",target="w-OST0000"} 400
lustre_quota_used_kbytes{accounting="user",component="ost",id="9",target="w-OST0000"} 399
weft_owners{accounting="user",component="ost",target="w-OST0000"} 3"#;
        assert_eq!(got, want);
    }

    #[test]
    fn jobs_are_bounded() {
        let job = |id: &str, count: u32| {
            format!(
                "- job_id:  {id}\n  open:  {{ samples: {count}, unit: usecs, min: 1, max: 2, sum: 3, sumsq: 4 }}\n"
            )
        };
        let jobs = format!("job_stats:\n{}{}{}", job("a", 1), job("b", 9), job("c", 2));
        let got = text(1, &[("mdt.w-MDT0000.job_stats", &jobs)]);
        let want = r#"lustre_job_stats_total{component="mdt",jobid="b",operation="open",target="w-MDT0000"} 9
lustre_job_stats_total{component="mdt",jobid="other",operation="open",target="w-MDT0000"} 3
weft_jobs{component="mdt",target="w-MDT0000"} 3"#;
        assert_eq!(got, want);
    }
}
