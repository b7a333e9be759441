# make up      build, start a file system on this machine and mount it at MNT
# make down    stop it; the data stays
# make test    everything that has to pass before a change is taken
# make lint    the fast part of it
# make nightly the same as test with more seeds and longer runs
# make attack  attacks that know weft from its documentation only; a table of what they found
# make bench   a mount beside a plain directory
# make install put the program and its units under PREFIX, for packages with DESTDIR

SHELL := /bin/bash
MNT ?= $(if $(filter 0,$(shell id -u)),/mnt/weft,$(HOME)/weft)
PREFIX ?= /usr
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
BUILT := $(TARGET)/release
# Times of the longer tests, in seconds.
SIM_SECONDS ?= 120
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1

.PHONY: up down build test nightly bench install install-built deb \
  lint fmt clippy tidy test-unit test-debug test-wasm test-sim test-mount test-netns test-operators test-coherence test-suites \
  test-osts test-deb test-jobs test-burst test-slurm test-storm test-unmounts test-full test-faults test-failover test-fuzz test-deny test-doc test-foreign attack test-churn test-locks

up:
	@tools/deps.sh up
	@$(MAKE) --no-print-directory build
	@bin/weft up "$(MNT)"

down:
	@bin/weft down "$(MNT)"

build:
	cargo build --release -p weft -p xtask
	@tools/install-bin.sh "$(BUILT)" bin

test:
	@tools/test.sh

nightly:
	@WEFT_EXPORTS=200000 SIM_SECONDS=3600 SIM_SEEDS=1000000 SIM_RESTARTS=1000000 SIM_COHERENCES=5000 SIM_RESTARTED_COHERENCES=5000 SIM_COHERENCE_SECONDS=3600 SIM_CUTS=100000 SIM_CUT_SECONDS=1800 SIM_FAILOVERS=20000 SIM_FAILOVER_SECONDS=3600 SIM_HERD=4096 SIM_QUIET=10000 SIM_ROUNDS=200 SIM_RACK=96 FUZZ_SECONDS=900 FUZZ_SEED=$$(date +%Y%m%d) FIRST=$$(date +%Y%m%d00) LONG=1 LOCK_OPS=100000 tools/test.sh

bench: build
	@tools/deps.sh test
	@tools/bench.sh

install: build
	@$(MAKE) --no-print-directory install-built

# What was built, without building it.
install-built:
	tools/install-stripped.sh bin/weft "$(DESTDIR)" "$(PREFIX)"
	ln -sfn weft "$(DESTDIR)$(PREFIX)/bin/lfs"
	ln -sfn weft "$(DESTDIR)$(PREFIX)/bin/lctl"
	ln -sfn weft "$(DESTDIR)$(PREFIX)/bin/lljobstat"
	install -d "$(DESTDIR)$(PREFIX)/sbin"
	ln -sfn ../bin/weft "$(DESTDIR)$(PREFIX)/sbin/mount.weft"
	ln -sfn ../bin/weft "$(DESTDIR)$(PREFIX)/sbin/umount.fuse.weft"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib/systemd/system" packaging/*.service
	install -D -m 644 packaging/serve.conf "$(DESTDIR)$(PREFIX)/share/doc/weft/serve.conf"
	install -D -m 644 packaging/policy.toml "$(DESTDIR)$(PREFIX)/share/doc/weft/policy.toml"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/prometheus" packaging/prometheus/weft.yml
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/grafana" packaging/grafana/weft.json
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/jobs" packaging/jobs/*.sh
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/slurm" packaging/slurm/*.sh
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/pbs" packaging/pbs/*.sh
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/pjm" packaging/pjm/*.sh
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/jobs" packaging/jobs/rankfs.conf
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/doc/weft/slurm" packaging/slurm/burst_buffer.lua packaging/slurm/burst_buffer.conf
	bin/weft manual "$(DESTDIR)$(PREFIX)/share"

# Debian packages, in this directory.
deb: build
	tools/deb.sh

# The stages of `test`, each for itself.

lint: fmt clippy tidy

fmt:
	cargo fmt --all --check -- --color never

clippy:
	cargo clippy --workspace --all-targets -- -D warnings

tidy:
	cargo xtask tidy
	tools/house.py --check

test-unit:
	cargo test --workspace --release --no-fail-fast

# With all that debug builds check: the order of the client's locks.
test-debug:
	cargo test -p weft-client --lib --test files
	cargo build -p weft-sim
	"$(TARGET)/debug/weft-sim" coherences 1 100
	"$(TARGET)/debug/weft-sim" failovers 1 100
	"$(TARGET)/debug/weft-sim" restarts 1 50

test-wasm:
	cargo check -p weft-proto --target wasm32-unknown-unknown

test-sim:
	cargo build --release -p weft-sim
	WEFT_SIM="$(BUILT)/weft-sim" tools/test-sim.sh $(SIM_SECONDS)

test-mount: build
	tools/test-mount.sh

test-netns: build
	tools/test-netns.sh

test-operators: build
	tools/test-operators.sh

# The package in a fresh Debian.
test-deb: build
	tools/test-deb.sh

test-osts: build
	tools/test-osts.sh

test-jobs: build
	tools/test-jobs.sh

test-burst: build
	tools/test-burst.sh

# Under a real Slurm, which it installs.
test-slurm: build
	tools/test-slurm.sh

# And some of it with every change asked for; with LONG, all.
ASKED = create_seen unlink_seen mkdir_rmdir_seen open_unlink directory_times_seen pairs_chmod pairs_create pairs_mkdir removing_what_is_kept_is_one_request new_directory_seen_at_once many_names_at_once removed_by_both rename_directory_won_once model_names model_shared_regions
test-coherence: build
	tools/test-coherence.sh
	TWO_PARAM='llite.*.metadata_writeback=0' tools/test-coherence.sh $(if $(LONG),,$(ASKED))

test-suites: build
	tools/test-suites.sh

test-churn: build
	tools/test-churn.sh

test-locks: build
	tools/test-locks.sh

test-storm: build
	tools/test-storm.sh

test-unmounts: build
	tools/test-unmounts.sh

test-full: build
	tools/test-full.sh

test-faults: build
	tools/test-faults.sh

test-failover: build
	tools/test-failover.sh

attack: build
	tools/attack.sh

# xfstests and LTP, from built trees that XFSTESTS and LTP name.
test-foreign: build
	tools/test-foreign.sh

test-fuzz:
	cargo run --release -p weft-proto --example fuzz_decode -- $(FUZZ_SECONDS) $(FUZZ_SEED)
	cargo run --release -p weft-fuse --example fuzz_requests -- $(FUZZ_SECONDS) $(FUZZ_SEED)

test-deny:
	tools/deny.sh

test-doc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps
