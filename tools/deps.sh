#!/usr/bin/env bash
# Installs what is missing on Debian: `deps.sh up` for building and mounting, `deps.sh test` for the tests as well,
# `deps.sh test suites` for all foreign suites too (without, those that are not there are skipped), `deps.sh foreign` for what xfstests
# and LTP are built with.
# Installs nothing, and needs no rights, if everything is there.
set -eu

# Commands that have to be there, and the packages that bring them.
up="cc:gcc ld:binutils make:make fusermount3:fuse3"
test="bc:bc setfacl:acl etcd:etcd-server fio:fio fuse2fs:fuse2fs git:git ip:iproute2 mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs nft:nftables openssl:openssl python3:python3 sqlite3:sqlite3 unshare:util-linux"

suites="stress-ng:stress-ng psql:postgresql go:golang-go ganesha.nfsd:nfs-ganesha-vfs nfs-cat:libnfs-utils"

# The plugin for burst buffers is a file; what it lies in is asked for by a command of the same packages.
slurm="bc:bc ip:iproute2 mkfs.ext4:e2fsprogs python3:python3 setpriv:util-linux slurmctld:slurmctld slurmctld:slurm-wlm-basic-plugins slurmd:slurmd munged:munge sbatch:slurm-client"

foreign="make:make autoconf:autoconf automake:automake libtoolize:libtool pkg-config:pkg-config m4:m4 bison:bison flex:flex
msgfmt:gettext gawk:gawk attr:attr setfacl:acl bc:bc quota:quota fio:fio perl:perl"
# Headers have no command; these are asked for by their files.
headers="xfs/xfs.h:xfslibs-dev uuid/uuid.h:uuid-dev sys/acl.h:libacl1-dev attr/attributes.h:libattr1-dev libaio.h:libaio-dev gdbm.h:libgdbm-dev
sys/capability.h:libcap-dev liburing.h:liburing-dev"

case "$*" in
  up) wanted=$up ;;
  foreign) wanted="$up $test $foreign" ;;
  test) wanted="$up $test" ;;
  slurm) wanted="$up $slurm" ;;
  "test suites") wanted="$up $test $suites" ;;
  *) echo "usage: $0 up|test [suites]|foreign|slurm" >&2; exit 2 ;;
esac

packages=
for pair in $wanted; do
  # Tools for root lie where the PATH of a user does not look.
  if ! PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null; then
    packages="$packages ${pair#*:}"
  fi
done
[ -e /usr/include/stdlib.h ] || packages="$packages libc6-dev"
case "$*" in
  # The tests' server of S3 lies in an environment of its own.
  test*) python3 -c 'import ensurepip' 2>/dev/null || packages="$packages python3-venv" ;;
esac
[ "$*" = foreign ] || headers=
for pair in $headers; do
  [ -e "/usr/include/${pair%%:*}" ] || packages="$packages ${pair#*:}"
done

if [ -n "$packages" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "missing:$packages; there is no apt-get here, so install them by the means of this system" >&2
    exit 1
  fi
  root=
  [ "$(id -u)" = 0 ] || root=sudo
  echo "installing$packages (apt-get${root:+ with sudo})"
  export DEBIAN_FRONTEND=noninteractive
  $root apt-get update -qq
  # Only programs are wanted: no service may start, now or after a reboot.
  policy=
  for service in etcd munge nfs-ganesha postgresql slurmctld slurmd; do
    case "$packages" in
      *"$service"*)
        $root mkdir -p /etc/systemd/system
        [ -e "/etc/systemd/system/$service.service" ] || $root ln -sfn /dev/null "/etc/systemd/system/$service.service"
        ;;
    esac
  done
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    trap '$root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $root tee "$policy" >/dev/null
    $root chmod 755 "$policy"
  fi
  # shellcheck disable=SC2086
  $root apt-get install -y -qq --no-install-recommends $packages >/dev/null
  [ -z "$policy" ] || $root rm -f "$policy"
fi

if ! command -v cargo >/dev/null; then
  echo "cargo is missing; install Rust from https://rustup.rs" >&2
  exit 1
fi
if [ ! -e /dev/fuse ]; then
  # The module may just not be loaded; a container has to be given the device.
  { [ "$(id -u)" = 0 ] && modprobe fuse 2>/dev/null; } || true
  [ -e /dev/fuse ] || echo "warning: there is no /dev/fuse, so nothing can be mounted here" >&2
fi
