# IOR on the mounts of lib-two.sh, for measurements. Sourced after it; `ior` is the program.

lctl() { in_two timeout 60 "$(dirname "$WEFT")/lctl" "$@" >/dev/null || echo "lctl $*: status $?" >&2; }

# cold: nothing of the files is in memory afterwards. The mounts of the file systems in `ior_fsnames` (the one of lib-two.sh if not said) give
# their locks back, and with them what they read and what the kernel has of these files; with room for 4 MiB only they give up what is left.
# Servers keep data in nothing but the kernel's page cache, which is dropped with that of the plain directory.
cold() {
  local name
  sync
  for name in "${ior_fsnames[@]:-$two_fsname}"; do
    lctl set_param "ldlm.namespaces.$name-*-osc-*.lru_size=clear" "ldlm.namespaces.$name-*-mdc-*.lru_size=clear"
    lctl set_param "llite.$name-*.max_cached_mb=4"
    lctl set_param "llite.$name-*.max_cached_mb=512"
  done
  sync
  echo 3 > /proc/sys/vm/drop_caches
}

# io RANKS write|read FILE OPTION...: MiB/s.
io() {
  local ranks=$1 step=$2 file=$3 how=(-r -k)
  shift 3
  [ "$step" = read ] || how=(-w -e -k)
  timeout 180 mpirun -np "$ranks" "$ior" "${how[@]}" -o "$file" "$@" 2>&1 | tee "$work/run.log" | awk -v step="$step" '$1 == step { print $2; exit }'
}
