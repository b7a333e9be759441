//! `weft-sim`: runs seeds and says what they did.
//!
//! `weft-sim twice SEED` runs a seed twice and compares the traces; `weft-sim seeds FIRST COUNT [SECONDS]` runs
//! seeds one after another, at most that long; `weft-sim one SEED` runs one and prints its report. `weft-sim restart
//! SEED` and `weft-sim restarts FIRST COUNT [SECONDS]` do the same where only servers lose power, `weft-sim coherence
//! SEED` and `weft-sim coherences FIRST COUNT [SECONDS]` where many clients share a few files and names, and `weft-sim
//! coherence-restart SEED` and `weft-sim coherence-restarts FIRST COUNT [SECONDS]` where servers lose power meanwhile, and
//! `weft-sim cut-off SEED` and `weft-sim cut-offs FIRST COUNT [SECONDS]` where clients lose their way to servers. `weft-sim
//! dead SEED` and `weft-sim deads FIRST COUNT [SECONDS]` have some die, and restart servers afterwards. `weft-sim cuts FIRST
//! COUNT [SECONDS]` cuts the power at every sync of one seed after the other, until that many runs are done, and `weft-sim cut
//! SEED SYNC before|during|after` does one of them twice. `weft-sim failover SEED` and `weft-sim failovers FIRST COUNT [SECONDS]` have
//! everything fail in clusters in which servers take each other's targets over. `weft-sim switches` leaves out one mechanism of recovery
//! after the other, and `weft-sim without MECHANISM FIRST [COUNT]` looks for seeds that fail without it.
//!
//! Experiments print tables: `weft-sim herd CLIENTS [SECONDS]` has all clients come back to an OST that was away so long,
//! `weft-sim evictions ROUNDS [CLIENTS [VARIANT]]` cuts some off from what others want, and `weft-sim quiet OSTS` listens when
//! nobody does anything. `weft-sim journal` compares synchronous with asynchronous commits on disks with heads.

// The program measures real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use weft_sim::cuts::{self, Cut, Found, MOMENTS};
use weft_sim::scenario::{self, Faults, Report, Scale};
use weft_sim::storm::Injected;
use weft_sim::{board, coherence, dead, failover, herd, journal, quiet, restart, switches};

const SCALE: Scale = Scale { clients: 64, osts: 8, steps: 40 };
const DEAD_SCALE: Scale = Scale { clients: 100, osts: 8, steps: 10 };
const CUT_SCALE: Scale = Scale { clients: 2, osts: 2, steps: 40 };
const RESTART_SCALE: Scale = Scale { clients: 16, osts: 4, steps: 60 };

/// All clients of a restarted OST are served again within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

/// One seed of one scenario.
type Run = fn(u64) -> Report;

fn run(seed: u64) -> Report {
    scenario::run(seed, SCALE)
}

fn run_restart(seed: u64) -> Report {
    restart::run(seed, RESTART_SCALE)
}

fn run_dead(seed: u64) -> Report {
    dead::run(seed, DEAD_SCALE)
}

fn main() -> ExitCode {
    // `RUST_LOG=debug weft-sim one SEED` shows what the roles log.
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .init();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    match (args.first().map(String::as_str), number(1), number(2)) {
        (Some("one"), Some(seed), _) => {
            print(seed, &run(seed));
            ExitCode::SUCCESS
        }
        (Some("restart"), Some(seed), _) => {
            print(seed, &run_restart(seed));
            ExitCode::SUCCESS
        }
        (Some("coherence"), Some(seed), _) => twice(coherence::run, seed),
        (Some("coherence-restart"), Some(seed), _) => twice(coherence::run_with_restarts, seed),
        (Some("cut-off"), Some(seed), _) => twice(coherence::run_with_cut_off_clients, seed),
        (Some("dead"), Some(seed), _) => twice(run_dead, seed),
        (Some("evictions"), Some(rounds), clients) => {
            evictions(rounds, clients.unwrap_or(96) as usize, number(3))
        }
        (Some("quiet"), Some(osts), _) => listen(osts),
        (Some("herd"), Some(clients), outage) => herds(clients as usize, outage.unwrap_or(5)),
        (Some("cut-offs"), Some(first), Some(count)) => {
            seeds(coherence::run_with_cut_off_clients, "cut-off", first, count, number(3))
        }
        (Some("deads"), Some(first), Some(count)) => seeds(run_dead, "dead", first, count, number(3)),
        (Some("twice"), Some(seed), _) => twice(run, seed),
        (Some("seeds"), Some(first), Some(count)) => seeds(run, "one", first, count, number(3)),
        (Some("journal"), None, None) => {
            compare_journals();
            ExitCode::SUCCESS
        }
        (Some("switches"), None, None) => show_switches(),
        (Some("without"), None, Some(first)) => without(&args[1], first, number(3).unwrap_or(1)),
        (Some("failover"), Some(seed), None) => fail_over_twice(seed),
        (Some("failovers"), Some(first), Some(count)) => fail_over(first, count, number(3)),
        (Some("cut"), Some(seed), Some(sync)) => cut(seed, sync, args.get(3).map(String::as_str)),
        (Some("cuts"), Some(first), Some(count)) => power_cuts(first, count, number(3)),
        (Some("restarts"), Some(first), Some(count)) => {
            seeds(run_restart, "restart", first, count, number(3))
        }
        (Some("coherences"), Some(first), Some(count)) => {
            seeds(coherence::run, "coherence", first, count, number(3))
        }
        (Some("coherence-restarts"), Some(first), Some(count)) => {
            seeds(coherence::run_with_restarts, "coherence-restart", first, count, number(3))
        }
        _ => {
            eprintln!(
                "usage: weft-sim one|twice|restart|coherence|coherence-restart|cut-off|dead|failover SEED | \
                 seeds|restarts|coherences|coherence-restarts|cut-offs|deads|failovers|cuts FIRST COUNT [SECONDS] | \
                 herd CLIENTS [SECONDS] | evictions ROUNDS [CLIENTS [VARIANT]] | quiet OSTS | \
                 cut SEED SYNC before|during|after | journal | switches | without MECHANISM FIRST [COUNT]"
            );
            ExitCode::from(2)
        }
    }
}

/// Prints who is evicted when some of `clients` are cut off while all of them extract files into one directory; of one
/// variant only if it is named.
fn evictions(rounds: u64, clients: usize, variant: Option<u64>) -> ExitCode {
    println!("{}", board::Tally::HEADER);
    let mut failed = false;
    for (number, one) in board::VARIANTS.into_iter().enumerate() {
        if variant.is_none_or(|wanted| wanted == number as u64) {
            let start = Instant::now();
            let tally = board::run(one, clients, rounds);
            println!("| {} | {tally} {:.1} s |", one.name, start.elapsed().as_secs_f64());
            failed |= !tally.is_as_expected(one);
        }
    }
    if failed {
        eprintln!("all that is on should evict nobody, and all that is off somebody");
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints who says what when nobody does anything.
fn listen(osts: u64) -> ExitCode {
    let silence = quiet::run(u32::try_from(osts).unwrap_or(u32::MAX));
    println!("{silence}");
    // A renewal every 5 s, and a question for news every 29 s.
    let (renewals, questions) = (12 * quiet::MINUTES, 60 * quiet::MINUTES / 29);
    let is_quiet = silence.idle == 0
        && silence.held as u64 == osts
        && silence.renewals.abs_diff(renewals) <= 1
        && silence.holder <= silence.renewals + questions + 1;
    if is_quiet { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what it takes until all clients of a restarted OST are served again, for growing numbers of them up to `clients`,
/// and for as many of which some are dead.
fn herds(clients: usize, outage_secs: u64) -> ExitCode {
    let (outage, start) = (Duration::from_secs(outage_secs), Instant::now());
    println!("{}", herd::Stampede::HEADER);
    let (mut sizes, mut late) = (vec![clients], false);
    while let Some(smaller) = sizes.last().map(|size| size / 4).filter(|size| *size >= 64 && sizes.len() < 3)
    {
        sizes.push(smaller);
    }
    for clients in sizes.into_iter().rev() {
        for dead_percent in [0, 5] {
            let row = herd::run(1, herd::Herd { clients, dead_percent, outage }, &|| start.elapsed());
            println!("{row}");
            late |= row.all > RECOVERY_MAX;
        }
    }
    if late { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn world(seed: u64) -> cuts::World {
    cuts::World { seed, scale: CUT_SCALE, sync_lies: rt::sim::Chance::NEVER }
}

fn cut(seed: u64, sync: u64, moment: Option<&str>) -> ExitCode {
    let named = |name| MOMENTS.into_iter().find(|moment| format!("{moment:?}").eq_ignore_ascii_case(name));
    let Some(moment) = moment.and_then(named) else {
        eprintln!("usage: weft-sim cut SEED SYNC before|during|after");
        return ExitCode::from(2);
    };
    let run = || cuts::run(world(seed), Cut { sync, moment });
    let (one, other) = (run(), run());
    println!("seed {seed}, sync {sync}, {moment:?}: {one}");
    one.findings.iter().for_each(|finding| println!("  {finding}"));
    if one != other {
        eprintln!("the same seed gave two traces");
    }
    if one == other && one.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cuts the power at every sync of one seed after the other.
fn power_cuts(first: u64, runs_max: u64, seconds: Option<u64>) -> ExitCode {
    let start = Instant::now();
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs);
    let (mut runs, mut syncs, mut seeds, mut all) = (0, 0, 0, Found::default());
    let mut failed = 0;
    while runs < runs_max && start.elapsed() < limit {
        let seed = first + seeds;
        let count = cuts::count_syncs(world(seed));
        (seeds, syncs) = (seeds + 1, syncs + count);
        for (sync, moment) in (1..=count).flat_map(|sync| MOMENTS.map(|moment| (sync, moment))) {
            if runs == runs_max || start.elapsed() > limit {
                break;
            }
            runs += 1;
            match std::panic::catch_unwind(|| cuts::run(world(seed), Cut { sync, moment })) {
                Ok(found) if found.findings.is_empty() => all.add(found),
                outcome => {
                    failed += 1;
                    let again = format!("{moment:?}").to_lowercase();
                    eprintln!("it failed: weft-sim cut {seed} {sync} {again}");
                    all.add(outcome.unwrap_or_default());
                }
            }
        }
    }
    println!(
        "{runs} runs at {syncs} syncs of {seeds} seeds in {:.1} seconds: {all}; {failed} runs failed",
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs for each mechanism of recovery a seed with it and without.
fn show_switches() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    println!("| without | what is left out | seed | with it | without it |\n|---|---|---|---|---|");
    let mut failed = false;
    for mechanism in switches::MECHANISMS {
        let Some(shown) = mechanism.show() else {
            failed = true;
            println!("| `{}` | {} | | | nothing fails |", mechanism.name, mechanism.without);
            continue;
        };
        failed |= shown.with.is_err();
        println!(
            "| `{}` | {} | `{} {}` | {} | {} |",
            mechanism.name,
            mechanism.without,
            mechanism.command(),
            shown.seed,
            shown.with.err().unwrap_or_else(|| "passes".to_owned()),
            shown.without
        );
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Looks for seeds that fail without a mechanism.
fn without(name: &str, first: u64, count: u64) -> ExitCode {
    let Some(mechanism) = switches::MECHANISMS.into_iter().find(|mechanism| mechanism.name == name) else {
        let names: Vec<&str> = switches::MECHANISMS.iter().map(|mechanism| mechanism.name).collect();
        eprintln!("mechanisms: {}", names.join(", "));
        return ExitCode::from(2);
    };
    std::panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    for seed in first..first + count {
        if let Err(why) = mechanism.run_without(seed) {
            println!("{} {seed} fails: {why}", mechanism.command());
            failed += 1;
        }
    }
    println!("{failed} of {count} seeds fail without {name}");
    ExitCode::SUCCESS
}

fn fail_over_twice(seed: u64) -> ExitCode {
    let (one, other) = (failover::run(seed), failover::run(seed));
    print(seed, &one.report);
    println!("{}; {} late writes; all went on within {:?}", one.injected, one.writes_late, one.go_on);
    if one == other {
        println!("the same seed gave the same trace twice");
        return ExitCode::SUCCESS;
    }
    print(seed, &other.report);
    eprintln!("the same seed gave two traces");
    ExitCode::FAILURE
}

/// Everything that may fail fails, one seed after the other.
fn fail_over(first: u64, count: u64, seconds: Option<u64>) -> ExitCode {
    let start = Instant::now();
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs);
    let (mut ran, mut compared, mut elapsed, mut late) = (0, 0, Duration::ZERO, 0);
    let (mut faults, mut injected, mut failed) = (Faults::default(), Injected::default(), Vec::new());
    let (mut go_on, mut slowest) = (Duration::ZERO, 0);
    for seed in first..first + count {
        if start.elapsed() > limit {
            break;
        }
        ran += 1;
        let Ok(outcome) = std::panic::catch_unwind(|| failover::run(seed)) else {
            eprintln!("seed {seed} failed: weft-sim failover {seed}");
            failed.push(seed);
            continue;
        };
        compared += outcome.report.compared;
        elapsed += outcome.report.elapsed;
        late += outcome.writes_late;
        faults.add(outcome.report.faults);
        injected.add(&outcome.injected);
        if outcome.go_on > go_on {
            (go_on, slowest) = (outcome.go_on, seed);
        }
    }
    println!(
        "{ran} seeds, {:.1} virtual hours in {:.0} seconds; {injected}; {faults}; {late} writes arrived late; {compared} results \
         compared; longest time to go on {go_on:?} (seed {slowest}); {} failed: {failed:?}",
        elapsed.as_secs_f64() / 3600.0,
        start.elapsed().as_secs_f64(),
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each table with as many writes in flight as clients have had in its time.
fn compare_journals() {
    for (clients, in_flight) in [(1, 1), (4, 1), (1, 8), (4, 8)] {
        let file_bytes = (512 << 20) / u64::from(clients);
        println!("{}", journal::compare(journal::Setup { clients, file_bytes, in_flight }));
    }
}

fn print(seed: u64, report: &Report) {
    println!(
        "seed {seed}: {} results compared in {:.3} virtual seconds, trace {:016x}; {}",
        report.compared,
        report.elapsed.as_secs_f64(),
        report.trace_hash,
        report.faults
    );
}

fn twice(run: Run, seed: u64) -> ExitCode {
    let (one, other) = (run(seed), run(seed));
    print(seed, &one);
    if one == other {
        println!("the same seed gave the same trace twice");
        return ExitCode::SUCCESS;
    }
    print(seed, &other);
    eprintln!("the same seed gave two traces");
    ExitCode::FAILURE
}

/// Runs seeds of one scenario; `command` runs a single one again.
fn seeds(run: Run, command: &str, first: u64, count: u64, seconds: Option<u64>) -> ExitCode {
    let start = Instant::now();
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs);
    let (mut ran, mut compared, mut elapsed) = (0, 0, Duration::ZERO);
    let mut faults = Faults::default();
    let mut failed = Vec::new();
    for seed in first..first + count {
        if start.elapsed() > limit {
            break;
        }
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(report) => {
                compared += report.compared;
                elapsed += report.elapsed;
                faults.add(report.faults);
            }
            Err(_) => {
                eprintln!("seed {seed} failed: weft-sim {command} {seed}");
                failed.push(seed);
            }
        }
        ran += 1;
    }
    println!(
        "{ran} seeds, {compared} results compared, {:.1} virtual seconds in {:.1} seconds; {faults}; {} failed: {failed:?}",
        elapsed.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
