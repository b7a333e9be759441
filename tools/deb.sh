#!/usr/bin/env bash
# Makes the Debian packages weft and weft-dbg of the program that was built. Usage: tools/deb.sh [DIR]; needs dpkg-deb, binutils.
# weft-dbg has the debug information.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-.}
version=$(bin/weft --version | awk '{ print $2 }')
architecture=$(dpkg --print-architecture)
# The newest version of a symbol of the C library that the program uses.
libc=$(objdump -T bin/weft | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
make --no-print-directory install-built DESTDIR="$stage/weft" PREFIX=/usr > /dev/null
install -d "$stage/weft-dbg/usr/lib"
mv "$stage/weft/usr/lib/debug" "$stage/weft-dbg/usr/lib/debug"
find "$stage/weft/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 644 LICENSE "$stage/weft/usr/share/doc/weft/copyright"
install -D -m 644 LICENSE "$stage/weft-dbg/usr/share/doc/weft-dbg/copyright"

# control PACKAGE SECTION LINES...
control() {
  local package=$1 section=$2
  shift 2
  install -d "$stage/$package/DEBIAN"
  {
    printf 'Package: %s\nVersion: %s-1\nArchitecture: %s\n' "$package" "$version" "$architecture"
    printf 'Maintainer: weft <weft@localhost>\nSection: %s\nPriority: optional\n' "$section"
    printf 'Installed-Size: %s\n' "$(du -sk --exclude=DEBIAN "$stage/$package" | cut -f 1)"
    printf '%s\n' "$@"
  } > "$stage/$package/DEBIAN/control"
}
control weft admin "Depends: libc6 (>= ${libc#GLIBC_})" "Recommends: fuse3, e2fsprogs" "Suggests: bash-completion" \
  "Description: parallel file system in user space" \
  " One POSIX name space over many clients and servers, with the words of Lustre" \
  " (lfs, lctl, striping, recovery), as one program in user space."
control weft-dbg debug "Depends: weft (= $version-1)" \
  "Description: parallel file system in user space (debug information)" \
  " What gdb and perf need to name functions and lines of weft."
install -m 755 -t "$stage/weft/DEBIAN" packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm
for package in weft weft-dbg; do
  find "$stage/$package" -type d -exec chmod 755 {} +
  dpkg-deb --root-owner-group -Zzstd --build "$stage/$package" "$out/${package}_$version-1_$architecture.deb"
done
