# Commands that may not take for ever. Sourced, not run.

# end_tree PID: kills a process and all that it started and that has not left it.
end_tree() {
  local child
  # It goes on to nothing when its children end.
  kill -STOP "$1" 2>/dev/null
  for child in $(pgrep -P "$1"); do end_tree "$child"; done
  kill -9 "$1" 2>/dev/null
}

# watched SECONDS COMMAND...: runs it, a function too, in a shell of its own, and kills it with all that it started when its time is over.
watched() {
  local seconds=$1 parent=$BASHPID status dog pid_file
  pid_file=$(mktemp) || return
  shift
  (
    # A pipe into which nobody writes.
    read -r -t "$seconds" <> <(:)
    pid=$(cat "$pid_file")
    # After an interrupt it may be anybody's number.
    [ "$(ps -o ppid= -p "$pid" | tr -d ' ')" = "$parent" ] || exit
    echo "error: it did not end within $seconds s" >&2
    end_tree "$pid"
  ) &
  dog=$!
  ( echo "$BASHPID" > "$pid_file"; "$@" )
  status=$?
  kill "$dog" 2>/dev/null
  wait "$dog" 2>/dev/null
  rm -f "$pid_file"
  return $status
}
export -f end_tree watched
