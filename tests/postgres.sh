#!/usr/bin/env bash
# PostgreSQL with its data directory on DIR: pgbench, kill -9 of the server in its midst, recovery, the sums of the
# bank, checksums and pg_amcheck. Usage: postgres.sh DIR SECONDS; needs root (the server runs as user postgres).
set -eu
dir=$1
seconds=$2
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
sockets=$(mktemp -d /var/tmp/weft-pg.XXXXXX)
chown postgres "$sockets"

as() { runuser -u postgres -- env PGHOST="$sockets" PGUSER=postgres PGDATABASE=postgres "$@"; }

leave() {
  as "$bin/pg_ctl" -D "$dir/pg" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$sockets"
}
trap leave EXIT

start() {
  as "$bin/pg_ctl" -D "$dir/pg" -w -t 60 -l "$sockets/log" \
    -o "-c listen_addresses='' -c unix_socket_directories='$sockets' -c wal_sync_method=$1 -c shared_buffers=32MB -c checkpoint_timeout=30s" start \
    || { tail -n 30 "$sockets/log"; return 1; }
}

sums() {
  as "$bin/psql" -At -c "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)
    and (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers)
    and (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)"
}

mkdir -p "$dir"
chown postgres "$dir"
as "$bin/initdb" -D "$dir/pg" -k -A trust >/dev/null
for method in fdatasync open_datasync; do
  start $method
  [ -e "$dir/pg/filled" ] || as "$bin/pgbench" -i -q -s 2 2>/dev/null
  as touch "$dir/pg/filled"
  as "$bin/pgbench" -n -c 4 -j 2 -T "$seconds" > "$sockets/bench" 2>&1 &
  bench=$!
  postmaster=$(head -n 1 "$dir/pg/postmaster.pid")
  # The middle of the run.
  while [ "$(as "$bin/psql" -At -c 'select count(*) > 50 from pgbench_history')" != t ]; do
    kill -0 $bench
  done
  timeout $((seconds / 2)) tail --pid=$bench -f /dev/null || true
  backends=$(pgrep -P "$postmaster" | tr '\n' ' ')
  kill -9 "$postmaster"
  # shellcheck disable=SC2086
  for pid in $postmaster $backends; do tail --pid="$pid" -f /dev/null; done
  wait $bench || true
  before=$(as "$bin/pg_controldata" -D "$dir/pg" | sed -n 's/^Database cluster state: *//p')
  [ "$before" = "in production" ] || { echo "state after kill -9: $before"; exit 1; }
  start $method
  grep -q 'redo done\|redo is not required' "$sockets/log"
  [ "$(sums)" = t ] || { echo "the sums differ after recovery"; exit 1; }
  as "$bin/psql" -q -c 'create extension if not exists amcheck'
  as "$bin/pg_amcheck" --all --heapallindexed --install-missing
  as "$bin/psql" -At -c "select 'transactions: ' || count(*) from pgbench_history"
  as "$bin/pg_ctl" -D "$dir/pg" -m fast -w stop >/dev/null
done
as "$bin/pg_checksums" --check -D "$dir/pg"
