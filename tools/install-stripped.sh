#!/usr/bin/env bash
# Installs a program without its debug information, and that beside it where gdb and perf look for it.
# Usage: tools/install-stripped.sh FILE DESTDIR PREFIX
set -euo pipefail
file=$1 name=$(basename "$1") bin=$2$3/bin debug=$2$3/lib/debug$3/bin
install -d "$bin" "$debug"
objcopy --only-keep-debug "$file" "$debug/$name.debug"
chmod 644 "$debug/$name.debug"
# Built beside it and moved: a program that runs is replaced whole.
objcopy --strip-debug --strip-unneeded --add-gnu-debuglink="$debug/$name.debug" "$file" "$bin/.$name.new"
chmod 755 "$bin/.$name.new"
mv "$bin/.$name.new" "$bin/$name"
