//! What an administrator reads and sets of a client, by Lustre's names.

use client::{Client, Error, OpenFlags, Setting};
use proto::parameters::{ClientPlaces, ClientTree, PAGE_COUNT_MAX, Tree};
use proto::wire::messages::{
    PARAMETER_GAUGE, PARAMETER_HISTOGRAM, PARAMETER_SETTABLE, PARAMETER_TEXT, ParameterPage, ReadParameters,
};
use proto::{Code, Fid};

use crate::world::{MIB, World, create_on, root};

/// What a mount has.
const MEMORY: [&str; 14] = [
    "max_cached_mb",
    "max_dirty_mb",
    "unstable_stats",
    "max_read_ahead_mb",
    "max_read_ahead_per_file_mb",
    "max_read_ahead_whole_mb",
    "read_ahead_stats",
    "statahead_max",
    "enable_statahead_fname",
    "statahead_fname_predict_hit",
    "statahead_stats",
    "metadata_writeback",
    "metadata_writeback_stats",
    "session_stats",
];

fn registered<'a>(client: &'a Client, tree: Tree<'a, Setting<'a>>) -> Tree<'a, Setting<'a>> {
    let admin = client.admin();
    let places = ClientPlaces::new(&admin.fsname(), admin.id(), "10.0.0.1@tcp");
    let mut tree = ClientTree::new(places, tree);
    admin.parameters(&mut tree);
    tree.into_tree()
}

fn page(client: &Client, pattern: &str, skip: u32) -> ParameterPage {
    let read = ReadParameters { patterns: vec![pattern.to_owned()], skip, names_only: false };
    registered(client, Tree::new(&read).expect("the pattern is short")).page()
}

pub fn value(client: &Client, pattern: &str) -> String {
    let told = page(client, pattern, 0).parameters;
    assert_eq!(told.len(), 1, "{pattern}: {told:?}");
    told.into_iter().map(|one| one.value).collect()
}

pub async fn set(client: &Client, pattern: &str, value: &str) -> Result<(), Error> {
    let found = registered(client, Tree::to_set(pattern)?).found()?;
    let settings: Result<Vec<_>, Code> = found.into_iter().map(|one| one.set(value)).collect();
    for setting in settings? {
        setting.await?;
    }
    Ok(())
}

/// All names, in the order in which `lctl` shows them.
#[test]
fn names_are_lustres() {
    let world = World::new(1, 1);
    let client = world.mount();
    world.run(async {
        create_on(&client, b"f", 0).await;
        client.admin().statfs().await.expect("both answer");
    });
    let digits: String = client.admin().id().to_string().replace('-', "").chars().take(16).collect();
    let fsname = client.admin().fsname();
    let (mdc, osc) = (format!("{fsname}-MDT0000-mdc-{digits}"), format!("{fsname}-OST0000-osc-{digits}"));
    let mut names = Vec::new();
    for (place, of_place) in [
        (format!("llite.{fsname}-{digits}"), &MEMORY[..]),
        (format!("osc.{osc}"), &["checksums", "checksum_type", "active", "idle_timeout"]),
        (format!("mdc.{mdc}"), &["import", "state"]),
        (format!("osc.{osc}"), &["import", "state"]),
        (format!("ldlm.namespaces.{mdc}"), &["lock_count", "lock_unused_count", "lru_max_age", "lru_size"]),
        (format!("mdc.{mdc}"), &["rpc_stats", "stats"]),
        (format!("ldlm.namespaces.{osc}"), &["lock_count", "lock_unused_count", "lru_max_age", "lru_size"]),
        (
            format!("osc.{osc}"),
            &[
                "cur_dirty_bytes",
                "cur_grant_bytes",
                "max_dirty_mb",
                "unstable_stats",
                "max_rpcs_in_flight",
                "rpc_stats",
                "stats",
            ],
        ),
        (format!("mdc.{mdc}"), &["timeouts"]),
        (format!("osc.{osc}"), &["timeouts"]),
        ("mgc.MGC10.0.0.1@tcp".to_owned(), &["ir_state"]),
    ] {
        names.extend(of_place.iter().map(|name| format!("{place}.{name}")));
    }
    let told = page(&client, "*", 0);
    assert!(!told.more);
    assert_eq!(
        told.parameters.iter().map(|one| &one.name).collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>()
    );
    for one in &told.parameters {
        assert!(!one.value.is_empty(), "{one:?}");
        let kind = match one.value.parse::<u64>() {
            Ok(_) => PARAMETER_GAUGE,
            Err(_)
                if ["read_ahead_stats", "rpc_stats", ".stats"].iter().any(|end| one.name.ends_with(end)) =>
            {
                PARAMETER_HISTOGRAM
            }
            Err(_) => PARAMETER_TEXT,
        };
        assert_eq!(one.kind, kind, "{one:?}");
        assert_eq!(one.access & PARAMETER_SETTABLE != 0, !one.takes.is_empty(), "{one:?}");
    }
}

/// What was written and read is in the statistics of its session, and nothing else is.
#[test]
fn requests_for_data_are_counted() {
    let world = World::real(1, 2);
    let (client, reader) = (world.mount(), world.mount());
    world.run(async {
        let handle = create_on(&client, b"f", 0).await;
        client.files().write(handle, 0, &[7; MIB as usize]).await.expect("there is room");
        client.files().fsync(handle).await.expect("it is durable");
        let written = value(&client, "osc.*OST0000*.rpc_stats");
        assert!(written.contains("\n256:\t\t         0   0   0   |        1 100 100\n"), "{written}");
        assert!(written.contains("\nwrite RPCs in flight: 0\n"), "{written}");
        assert!(written.contains("\npending write pages:  0\n"), "{written}");
        let changes = value(&client, "mdc.*.rpc_stats");
        assert!(changes.contains("\nmodify_RPCs_in_flight:  0\n"), "{changes}");
        assert!(!changes.ends_with("0:\t\t         0   0   0"), "the file was made: {changes}");
        let fid = reader.names().lookup(&root(), Fid::ROOT, b"f").await.expect("it is there").attr.fid;
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = reader.files().open(&root(), fid, flags).await.expect("it is there");
        reader.files().read(handle, 0, MIB as u32).await.expect("it is there");
        let read = value(&reader, "osc.*OST0000*.rpc_stats");
        assert!(read.contains("\n256:\t\t         1 100 100   |        0   0   0\n"), "{read}");
        assert_eq!(set(&client, "*.rpc_stats", "0").await, Ok(()));
        assert!(value(&client, "mdc.*.rpc_stats").ends_with("\n0:\t\t         0   0   0"));
        // How long each operation took.
        let times = value(&reader, "osc.*OST0000*.stats");
        assert!(
            times.contains("\nreq_waittime ")
                && times.contains("\nRead                      1 samples [usecs] "),
            "{times}"
        );
        assert!(!times.contains("\nWrite"), "{times}");
        assert!(value(&client, "mdc.*.stats").contains("\nCreate "));
        assert_eq!(set(&client, "*.stats", "0").await, Ok(()));
        assert!(!value(&client, "mdc.*.stats").contains("samples"));
    });
}

/// How each target is reached, also one that was not used yet; and how many requests may be under way, which is bounded at once.
#[test]
fn sessions_show_how_they_are() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        create_on(&client, b"f", 0).await;
        client.admin().statfs().await.expect("all answer");
        for (target, state) in [("mdc.*", "FULL"), ("osc.*OST0000*", "FULL")] {
            assert_eq!(value(&client, &format!("{target}.state")), format!("current_state: {state}"));
            let import = value(&client, &format!("{target}.import"));
            assert!(
                import.starts_with("import:\n    target: ") && import.contains("connect_flags: [ base, "),
                "{import}"
            );
            assert!(import.contains(&format!("\n    state: {state}\n")), "{import}");
        }
        let most = async |value: &str| set(&client, "osc.*OST0000*.max_rpcs_in_flight", value).await;
        assert_eq!(value(&client, "osc.*OST0000*.max_rpcs_in_flight"), "16");
        assert_eq!((most("1").await, most("256").await, most("4\n").await), (Ok(()), Ok(()), Ok(())));
        assert_eq!(value(&client, "osc.*OST0000*.max_rpcs_in_flight"), "4");
        for wrong in ["0", "257", "-1", "many"] {
            assert_eq!(most(wrong).await, Err(Error::Refused(Code::Invalid)), "{wrong}");
        }
    });
}

/// What is authenticated has no checksum that could be switched off.
#[test]
fn checksums_are_switched_where_data_has_some() {
    let shown = |client: &Client| {
        let of = |name| value(client, &format!("osc.*OST0000*.{name}"));
        (of("checksums"), of("checksum_type"))
    };
    let refused = Err(Error::Refused(Code::Invalid));
    for (world, authenticated) in [(World::remote(1, 1), true), (World::new(1, 1), false)] {
        let client = world.mount();
        world.run(async {
            create_on(&client, b"f", 0).await;
            client.admin().statfs().await.expect("all answer");
            let switch = async |value: &str| set(&client, "osc.*OST0000*.checksums", value).await;
            for wrong in ["2", "off", ""] {
                assert_eq!(switch(wrong).await, refused, "{wrong}");
            }
            let kind = if authenticated { "crc32c [mac]" } else { "[crc32c] mac" };
            assert_eq!(shown(&client), ("1".into(), kind.into()));
            let (off, now) = if authenticated { (refused, "1") } else { (Ok(()), "0") };
            assert_eq!(switch("0").await, off);
            assert_eq!(shown(&client), (now.into(), kind.into()));
            assert_eq!(switch("1").await, Ok(()));
            assert_eq!(shown(&client), ("1".into(), kind.into()));
        });
    }
}

/// Where they are switched off, no session has any; what the mount itself counts goes on.
#[test]
fn statistics_of_sessions_can_be_switched_off() {
    let world = World::new(1, 2);
    let client = world.mount();
    world.run(async {
        let write = async |name: &[u8], ost| {
            let handle = create_on(&client, name, ost).await;
            client.files().write(handle, 0, &[7; 4096]).await.expect("there is room");
            client.files().fsync(handle).await.expect("it is durable");
            client.files().read(handle, 0, 4096).await.expect("it is there");
        };
        write(b"f", 0).await;
        assert!(client.admin().session_stats_bytes() > 0);
        assert_eq!(set(&client, "llite.*.session_stats", "0").await, Ok(()));
        assert_eq!(client.admin().session_stats_bytes(), 0, "what there was is given up");
        write(b"g", 0).await;
        write(b"h", 1).await;
        assert_eq!(client.admin().session_stats_bytes(), 0);
        for place in ["osc.*OST0000*", "osc.*OST0001*", "mdc.*"] {
            assert_eq!(value(&client, &format!("{place}.rpc_stats")), "disabled");
            assert_eq!(value(&client, &format!("{place}.stats")), "disabled");
        }
        assert!(value(&client, "llite.*.read_ahead_stats").contains("snapshot_time"));
        assert_eq!(set(&client, "llite.*.session_stats", "1").await, Ok(()));
        write(b"i", 1).await;
        assert!(value(&client, "osc.*OST0001*.rpc_stats").contains("rpcs in flight"));
        assert!(client.admin().session_stats_bytes() > 0);
        assert!(set(&client, "llite.*.session_stats", "2").await.is_err());
    });
}

#[test]
fn what_is_set_holds() {
    let world = World::real(1, 2);
    let client = world.mount();
    world.run(async {
        for ost in 0..2 {
            let handle = create_on(&client, format!("f{ost}").as_bytes(), ost).await;
            client.files().write(handle, 0, b"data").await.expect("there is room");
            client.files().release(handle).await;
        }
        client.sync_all().await.expect("it is durable");
        assert_eq!(set(&client, "llite.*.max_cached_mb", "64").await, Ok(()));
        assert!(value(&client, "llite.*.max_cached_mb").contains("\nmax_cached_mb: 64\n"));
        assert_eq!(client.admin().memory.cache_use().max, 64 * MIB);
        assert_eq!(set(&client, "llite.*.max_dirty_mb", "8M").await, Ok(()));
        assert_eq!(value(&client, "llite.*.max_dirty_mb"), "8");
        assert_eq!(value(&client, "llite.*.max_read_ahead_mb"), "32", "half of what may be cached");
        assert_eq!(set(&client, "llite.*.max_read_ahead_mb", "16").await, Ok(()));
        assert_eq!(value(&client, "llite.*.max_read_ahead_mb"), "16");
        assert!(value(&client, "llite.*.max_cached_mb").contains("\nmax_read_ahead_mb: 16\n"));
        assert_eq!(set(&client, "llite.*.max_read_ahead_per_file_mb", "1").await, Ok(()));
        assert_eq!(value(&client, "llite.*.max_read_ahead_whole_mb"), "1", "no more than of a file");
        assert_eq!(set(&client, "osc.*OST0001*.max_dirty_mb", "5").await, Ok(()));
        assert_eq!(value(&client, "osc.*OST0001*.max_dirty_mb"), "5");
        assert_ne!(value(&client, "osc.*OST0000*.max_dirty_mb"), "5");
        let (count, size) =
            ("ldlm.namespaces.*OST0000-osc-*.lock_count", "ldlm.namespaces.*OST0000-osc-*.lru_size");
        assert_eq!((value(&client, count), value(&client, size)), ("1".to_owned(), "1".to_owned()));
        assert_eq!(set(&client, size, "7").await, Ok(()));
        assert_eq!(value(&client, size), "7");
        assert_eq!(set(&client, size, "clear").await, Ok(()));
        assert_eq!(value(&client, count), "0");
        assert_eq!(value(&client, "ldlm.namespaces.*OST0001-osc-*.lock_count"), "1");
        let age = "ldlm.namespaces.*OST0000-osc-*.lru_max_age";
        assert_eq!(set(&client, age, "60s").await, Ok(()));
        assert_eq!(value(&client, age), "60000");
        let invalid = Err(Error::Refused(Code::Invalid));
        for (name, value) in [
            (size, "-1"),
            (size, "all"),
            (age, "1h"),
            ("llite.*.max_cached_mb", "3"),
            ("llite.*.max_dirty_mb", "much"),
            ("llite.*.max_read_ahead_mb", "33"),
            ("llite.*.max_read_ahead_per_file_mb", "17"),
            ("llite.*.max_read_ahead_whole_mb", "2"),
            ("osc.*.max_dirty_mb", "0"),
        ] {
            assert_eq!(set(&client, name, value).await, invalid, "{name}={value}");
        }
        assert_eq!(set(&client, count, "0").await, Err(Error::Refused(Code::Forbidden)));
        assert_eq!(
            set(&client, "osc.*OST0007*.max_dirty_mb", "5").await,
            Err(Error::Refused(Code::NotFound))
        );
    });
}

/// A client of a large site has tens of thousands of parameters. Each answer has a bounded number of them, and all answers together have
/// each once.
#[test]
fn answers_of_many_sessions_are_bounded() {
    const OSTS: usize = 3000;
    let world = World::new(1, OSTS as u32);
    let client = world.mount();
    world.run(async {
        client.admin().statfs().await.expect("all answer");
    });
    let all = |pattern: &str| {
        let mut names = Vec::new();
        loop {
            let told = page(&client, pattern, names.len() as u32);
            assert!((1..=PAGE_COUNT_MAX).contains(&told.parameters.len()));
            names.extend(told.parameters.into_iter().map(|one| one.name));
            if !told.more {
                return names;
            }
        }
    };
    let mut names = all("*");
    assert_eq!(names.len(), MEMORY.len() + 1 + (4 + 5) + OSTS * (6 + 6 + 6));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MEMORY.len() + 1 + (4 + 5) + OSTS * (6 + 6 + 6));
    assert_eq!(all("osc.*.max_dirty_mb").len(), OSTS);
    assert_eq!(all("*OST0bb7*").len(), 18);
}
