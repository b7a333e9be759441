#!/usr/bin/env bash
# weft under a real Slurm, PBS's and PJM's scripts beside it: jobs that have their data staged and their ranks' file systems made and taken
# away, and what is left after scancel and after kill -9 of slurmd, slurmstepd and slurmctld.
# Slurm is Debian's, with its own munged, started and stopped here, in the network of the cluster; nothing of a Slurm of this machine is used.
# Usage: tools/test-slurm.sh [CASE...]; needs root, bin/weft, e2fsprogs, loop devices. LONG=1 kills more often.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib-two.sh"

kills=${LONG:+5}
kills=${kills:-1}
slurm=$work/slurm
plain=$work/plain
home=$work/home
images=$two_a/images
local=$two_a/local
mounts=$work/jobs
packaging=$top/packaging
# A user that exists for this run only.
user=weftjob
uid=$((64000 + RANDOM % 1000))

export SLURM_CONF=$slurm/slurm.conf

# Processes of the daemons, by their names.
pid_of() { cat "$slurm/$1.pid"; }
stepds() { pgrep -f "^slurmstepd: \[$1\." || true; }

# end_pid SIGNAL PID: returns when it is gone.
end_pid() {
  kill "-$1" "$2" 2>/dev/null || return 0
  timeout 30 tail --pid="$2" -f /dev/null || kill -9 "$2"
}

leave() {
  local name job pid
  for job in $(in_slurm squeue -h -o %A 2>/dev/null); do
    for pid in $(stepds "$job"); do end_tree "$pid"; done
  done
  for name in slurmd slurmctld munged; do
    [ ! -e "$slurm/$name.pid" ] || end_pid TERM "$(pid_of $name)"
  done
  # Tasks of a job whose slurmstepd was killed.
  for pid in $(pgrep -u $uid); do end_pid KILL "$pid"; done
  awk -v work="$work/" '$1 ~ "^/dev/loop" && index($2, work) == 1 { print $2 }' /proc/mounts | while read -r mount; do umount -l "$mount"; done
  two_down
  umount /etc/passwd /etc/group /etc/weft 2>/dev/null
  [ -z "${KEEP:-}" ] || cp -r "$slurm" "$KEEP"
  rm -rf --one-file-system "$work"
}
trap leave EXIT

# within SECONDS COMMAND...: asks until it succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "not in time: $*"; tell; return 1; }
    sleep 0.2
  done
}
tell() {
  in_slurm scontrol show job || true
  in_slurm squeue -t all -o '%A %T %r | %R' || true
  in_slurm sinfo -N -o '%N %T %E' || true
  tail -n 15 "$slurm/slurmctld.log" "$slurm/slurmd.log"
}

in_slurm() { timeout 60 nsenter --net="/run/netns/$two_ns" "$@"; }
as_user() { in_slurm setpriv --reuid $uid --regid $uid --clear-groups env -C "$home" "$@"; }
# submit OPTION...: a job whose script is read from stdin; prints its number.
submit() {
  cat > "$home/script"
  as_user sbatch --parsable --no-requeue --output="$home/%j.out" "$@" "$home/script"
}
# job_says JOB NAME: one field of "scontrol show job".
job_says() { in_slurm scontrol --oneliner show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
is_state() { [ "$(job_says "$1" JobState)" = "$2" ]; }
# What squeue says why a job waits.
is_waiting_for() { in_slurm squeue -h -j "$1" -t all -o '%T %r' | grep -q "$2"; }
# The job, and all that Slurm does for it, has ended.
is_over() { [ ! -e "$images/.jobs/$1" ] && case "$(job_says "$1" JobState)" in COMPLETED | CANCELLED | FAILED | NODE_FAIL | TIMEOUT) ;; *) false ;; esac; }
has_run() { [[ $(job_says "$1" RunTime) > $2 ]]; }
has_passed() { [ $SECONDS -ge "$1" ]; }
is_idle() { in_slurm sinfo -h -o %T | grep -qx idle; }
is_there() { [ -e "$1" ]; }
has_two() { [ "$(find "$1" -name 'started.*' 2>/dev/null | wc -l)" = 2 ]; }

start_munged() {
  mungekey --create --keyfile="$slurm/munge.key"
  nsenter --net="/run/netns/$two_ns" munged --foreground --force --socket="$slurm/munge.socket" --key-file="$slurm/munge.key" \
    --pid-file="$slurm/munge.file.pid" --log-file="$slurm/munge.log" --seed-file="$slurm/munge.seed" --num-threads=2 > "$slurm/munged.out" 2>&1 &
  echo $! > "$slurm/munged.pid"
  disown
  within 20 is_there "$slurm/munge.socket"
}
start_slurmctld() {
  nsenter --net="/run/netns/$two_ns" slurmctld -D -f "$SLURM_CONF" >> "$slurm/slurmctld.out" 2>&1 &
  echo $! > "$slurm/slurmctld.pid"
  disown
  within 60 answers
}
answers() { in_slurm scontrol ping 2>/dev/null | grep -q 'is UP'; }
start_slurmd() {
  nsenter --net="/run/netns/$two_ns" slurmd -D -f "$SLURM_CONF" >> "$slurm/slurmd.out" 2>&1 &
  echo $! > "$slurm/slurmd.pid"
  disown
}

# write_conf LINE...: what a site says in /etc/weft/rankfs.conf.
write_conf() {
  printf '%s\n' "RANKFS_DIR=$images" "RANKFS_MOUNTS=$mounts" "SLURM_SCRIPTS=$packaging/slurm" \
    "PATH=$(dirname "$WEFT"):/usr/sbin:/usr/bin:/sbin:/bin" "$@" > /etc/weft/rankfs.conf
}

slurm_up() {
  local here
  here=$(uname -n)
  mkdir -p "$slurm/state" "$slurm/spool" "$images/.jobs" "$plain" "$local" "$home" "$mounts"
  chmod 700 "$images" "$images/.jobs"
  chown $uid:$uid "$local" "$plain" "$home"
  write_conf RANKFS_MAX=1G
  ln -s "$packaging/slurm/burst_buffer.lua" "$packaging/slurm/burst_buffer.conf" "$slurm"
  cat > "$SLURM_CONF" <<CONF
ClusterName=weft
SlurmctldHost=$here(127.0.0.1)
SlurmUser=root
SlurmctldPort=6817
SlurmdPort=6818
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket
CredType=cred/munge
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.file.pid
SlurmdPidFile=$slurm/slurmd.file.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.log
DebugFlags=BurstBuffer
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1
ReturnToService=2
KillWait=2
BatchStartTimeout=1
MessageTimeout=5
SlurmdParameters=config_overrides
BurstBufferType=burst_buffer/lua
Prolog=$packaging/slurm/prolog.sh
TaskProlog=$packaging/slurm/task-prolog.sh
Epilog=$packaging/slurm/epilog.sh
PrologFlags=Alloc
MailProg=/bin/true
NodeName=$here NodeAddr=127.0.0.1 CPUs=2 RealMemory=500
PartitionName=all Nodes=$here Default=YES MaxTime=60 State=UP
CONF
  # Slurm asks for addresses only where a machine has some beside 127.0.0.1.
  in_two ip address add 192.0.2.1/32 dev lo
  start_munged && start_slurmctld && start_slurmd && within 60 is_idle
}

# Nothing is left of any job.
all_gone() {
  "$WEFT" rankfs gc "$images" > "$work/gc"
  [ -z "$(ls "$images")" ]
  [ -z "$(ls -A "$images/.jobs")" ]
  [ -z "$(ls -A "$mounts")" ]
  not grep -q " $mounts/" /proc/mounts
  not has_loops
  within 60 is_idle
  find "$local" "$plain" -name '.weft-stage-*' > "$work/temporary"
  not test -s "$work/temporary"
}
has_loops() { cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -q "^$images/"; }

# a_case NAME FILES: a tree of the user's to be staged in.
a_case() {
  local n
  mkdir -p "$plain/$1"
  for n in $(seq "$2"); do head -c 20000 /dev/urandom > "$plain/$1/$n"; done
  chown -R $uid:$uid "$plain/$1"
}

# a_job NAME: its script. Each rank works in its own file system on what was staged in, and says when it has started; then it waits for
# go, if there is one to come, and leaves its result for the stage-out.
a_job() {
  cat <<JOB
#!/bin/sh
#SBATCH -n 2
#BB_LUA weft stage_in=$plain/$1:$local/$1 \\
#BB_LUA stage_out=$local/$1/results:$plain/$1.results
#BB_LUA weft rankfs=128M

mkdir $local/$1/results
exec srun sh -c '
  set -e
  cd "\$RANKDIR"
  [ "\$(stat -f -c %T .)" = ext2/ext3 ]
  [ "\$(id -u)" = $uid ]
  cp -r $local/$1 all
  touch all/\$SLURM_PROCID
  echo \$SLURM_PROCID > $local/$1/results/started.\$SLURM_PROCID
  while [ -e $home/wait ]; do sleep 0.2; done
  tar -cf $local/$1/results/\$SLURM_PROCID.tar --exclude=results all
  echo \$RANKDIR > $local/$1/results/rankdir.\$SLURM_PROCID
'
JOB
}
# has_results NAME: everything was staged, in and out, under its own name and with its content.
has_results() {
  local rank
  diff -r "$plain/$1" "$local/$1" --exclude=.weft-stage --exclude=results
  diff -r "$local/$1/results" "$plain/$1.results" --exclude=.weft-stage
  for rank in 0 1; do
    mkdir -p "$work/unpacked"
    tar -xf "$plain/$1.results/$rank.tar" -C "$work/unpacked"
    diff -r "$plain/$1" "$work/unpacked/all" --exclude=$rank --exclude=.weft-stage
    rm -r "$work/unpacked"
  done
  not cmp -s "$plain/$1.results/rankdir.0" "$plain/$1.results/rankdir.1"
  [ "$(stat -c %u "$plain/$1.results/0.tar" "$local/$1/1" | uniq)" = $uid ]
}

# runs NAME: the job has started both ranks, and waits; prints its number.
runs() {
  local job
  touch "$home/wait"
  job=$(a_job "$1" | submit)
  within 120 has_two "$local/$1" >&2
  echo "$job"
}

# Where a case has failed, the next one finds no job of it.
end_jobs() {
  local job
  rm -f "$home/wait"
  # One that took too long was killed with all that it had started.
  kill -0 "$(pid_of slurmctld)" 2>/dev/null || start_slurmctld
  kill -0 "$(pid_of slurmd)" 2>/dev/null || start_slurmd
  for job in $(in_slurm squeue -h -o %A); do in_slurm scancel --hurry "$job"; done
  within 60 has_no_jobs > /dev/null
}
has_no_jobs() { [ -z "$(in_slurm squeue -h -o %A)" ]; }

t_job() {
  local job
  a_case whole 30
  job=$(a_job whole | submit --hold)
  # While somebody else has the job's lock, its stager waits, and the job with it.
  exec 8> "$images/.jobs/$job.lock"
  flock 8
  as_user scontrol release "$job"
  within 60 is_waiting_for "$job" BurstBufferStageIn
  [ "$(job_says "$job" JobState) $(job_says "$job" NodeList)" = "PENDING " ] || [ "$(job_says "$job" NodeList)" = "(null)" ]
  not is_there "$local/whole/1"
  exec 8>&-
  within 180 is_over "$job"
  cat "$home/$job.out"
  is_state "$job" COMPLETED
  has_results whole
  all_gone
}

# A job that asks for nothing gets nothing; where the site says so it gets what everybody has.
t_unasked() {
  local job
  job=$(printf '#!/bin/sh\nsrun sh -c %s\n' "'echo at \$RANKDIR'" | submit)
  within 60 is_over "$job"
  [ "$(cat "$home/$job.out")" = at ]
  write_conf RANKFS_MAX=1G RANKFS_SIZE=64M
  job=$(printf '#!/bin/sh\nsrun -n 2 sh -c %s\n' "'echo at \$RANKDIR; touch \$RANKDIR/a'" | submit -n 2)
  within 60 is_over "$job"
  write_conf RANKFS_MAX=1G
  sort "$home/$job.out" > "$work/out"
  printf 'at %s/0\nat %s/1\n' "$mounts/$job" "$mounts/$job" | diff - "$work/out"
  within 60 is_idle
  all_gone
}

# What is asked for on the command line.
t_command_line() {
  local job
  mkdir -p "$local/words"
  echo words > "$local/words/file"
  chown -R $uid:$uid "$local/words"
  job=$(printf '#!/bin/sh\nsrun sh -c %s\n' "'echo at \$RANKDIR'" | submit --bb="#BB_LUA weft stage_out=$local/words:$plain/words rankfs=64M")
  within 120 is_over "$job"
  [ "$(cat "$home/$job.out")" = "at $mounts/$job/0" ]
  cmp "$local/words/file" "$plain/words/file"
  as_user salloc --bb="#BB_LUA weft stage_in=$plain/words:$local/again rankfs=64M" -n 1 srun sh -c "cp $local/again/file \"\$RANKDIR\" && cat \"\$RANKDIR/file\"" > "$work/out"
  [ "$(cat "$work/out")" = words ]
  within 60 is_idle
  within 60 has_no_request
  all_gone
}
has_no_request() { [ -z "$(ls -A "$images/.jobs")" ]; }

t_cancelled() {
  local job
  a_case cancelled 30
  job=$(runs cancelled)
  as_user scancel "$job"
  within 120 is_over "$job"
  is_state "$job" CANCELLED
  # What the ranks had left by then is there.
  diff -r "$local/cancelled/results" "$plain/cancelled.results" --exclude=.weft-stage
  [ "$(cat "$plain/cancelled.results/started.1")" = 1 ]
  rm "$home/wait"
  all_gone
  # Before it runs, and while it is staged in.
  a_case early 30
  job=$(a_job early | submit --hold)
  exec 8> "$images/.jobs/$job.lock"
  flock 8
  as_user scontrol release "$job"
  within 60 is_waiting_for "$job" BurstBufferStageIn
  as_user scancel "$job"
  exec 8>&-
  within 60 is_state "$job" CANCELLED
  # Slurm may have killed the teardown together with the stage-in. The next job's does it, or this.
  in_slurm "$packaging/slurm/stage.sh" tidy
  within 60 is_over "$job"
  all_gone
}

t_slurmd_killed() {
  local job n
  for n in $(seq "$kills"); do
    a_case "node$n" 30
    job=$(runs "node$n")
    end_pid KILL "$(pid_of slurmd)"
    start_slurmd
    rm "$home/wait"
    within 180 is_over "$job"
    is_state "$job" COMPLETED
    has_results "node$n"
    all_gone
  done
}

# The processes that watch the job are gone, and its ranks live: they end with the job.
t_slurmstepd_killed() {
  local job n pid
  for n in $(seq "$kills"); do
    a_case "step$n" 30
    job=$(runs "step$n")
    end_pid KILL "$(pid_of slurmd)"
    for pid in $(stepds "$job"); do end_pid KILL "$pid"; done
    # Slurm misses no batch script that may not have begun yet.
    within 60 has_run "$job" 00:00:08
    start_slurmd
    within 240 is_over "$job"
    job_says "$job" JobState
    not is_state "$job" COMPLETED
    diff -r "$local/step$n/results" "$plain/step$n.results" --exclude=.weft-stage
    rm "$home/wait"
    all_gone
  done
}

# much NAME: a job that has much to stage out; prints its number.
much() {
  a_case "$1" 3
  a_job "$1" | sed "s|^exec srun|mkdir $local/$1/results/many; for n in \$(seq 1500); do head -c 30000 /dev/urandom > $local/$1/results/many/\$n; done; exec srun|" | submit
}
# kill_slurmctld NAME: in the middle of that job's stage-out; and starts it again.
kill_slurmctld() {
  within 120 is_there "$plain/$1.results/many/1"
  end_pid KILL "$(pid_of slurmctld)"
  find "$plain/$1.results/many" -type f | wc -l
  not diff -rq "$local/$1/results" "$plain/$1.results" --exclude=.weft-stage > "$work/differs"
  start_slurmctld
}

t_slurmctld_killed() {
  local job n
  for n in $(seq "$kills"); do
    job=$(much "ctl$n")
    within 120 is_there "$images/.jobs/$job"
    # Its copying out waits until Slurm has written down that the job is over, which it does every 5 s.
    within 120 has_two "$local/ctl$n"
    exec 8>> "$images/.jobs/$job.lock"
    flock 8
    within 120 grep -q staging-out "$slurm/state/job_state"
    exec 8>&-
    kill_slurmctld "ctl$n"
    within 240 is_over "$job"
    is_state "$job" COMPLETED
    has_results "ctl$n"
    within 60 is_idle
    all_gone
  done
}

# Before Slurm has written down that the job is over: it takes the job for lost, and stages out all the same.
t_slurmctld_killed_early() {
  local job
  job=$(much early1)
  kill_slurmctld early1
  # It misses a job at a registration of its machine, some seconds after its own start.
  within 60 has_passed $((SECONDS + 8))
  in_slurm scontrol reconfigure
  within 240 is_over "$job"
  job_says "$job" JobState
  has_results early1
  within 60 is_idle
  all_gone
}

# refused WORDS TEXT: sbatch says why.
refused() {
  printf '#!/bin/sh\n#BB_LUA %s\ntrue\n' "$1" > "$home/script"
  must_fail 1 as_user sbatch "$home/script"
  grep -q "burst_buffer/lua: weft: .*$2" "$work/err" || { cat "$work/err"; return 1; }
}

t_too_much() {
  refused 'weft rankfs=2G' 'can have 1G at most'
  refused 'weft rankfs=999999T' 'can have 1G at most'
  refused 'weft rankfs=0G' 'a size is a number'
  refused 'weft rankfs=1000000' 'a size is a number'
  refused 'weft rankfs=1G rankfs=1G' 'twice'
  refused 'weft stage_in=case:/b' 'two absolute paths'
  refused 'weft stage_in=/a:/b:/c' 'two absolute paths'
  refused 'weft stage_in=/a' 'two absolute paths'
  refused 'weft stage_off=/a:/b' 'is not known'
  refused 'other' 'is not known'
  refused '' 'nothing is asked for'
  all_gone
}

t_missing() {
  local job
  job=$(a_job late | submit)
  within 60 is_waiting_for "$job" 'slurm_bb_data_in: stage_in='
  [ "$(job_says "$job" Priority)" = 0 ]
  in_slurm squeue -h -j "$job" -o %r > "$work/shown"
  cat "$work/shown"
  grep -q "stage_in=$plain/late:$local/late: .*No such file" "$work/shown"
  # Once it is there, the job goes on. Slurm takes it as held by an operator.
  a_case late 30
  in_slurm scontrol release "$job"
  within 180 is_over "$job"
  is_state "$job" COMPLETED
  has_results late
  all_gone
  # And one that nobody wants any more.
  job=$(a_job never | submit)
  within 60 is_waiting_for "$job" 'slurm_bb_data_in: stage_in='
  as_user scancel "$job"
  within 60 is_over "$job"
  all_gone
}

# What cannot be copied out stays where it is, and the job says why; the same command does it later.
t_out_failed() {
  local job
  mkdir -p "$local/kept"
  echo kept > "$local/kept/file"
  chown -R $uid:$uid "$local/kept"
  job=$(printf '#!/bin/sh\n#BB_LUA weft stage_out=%s:%s\ntrue\n' "$local/kept" "$plain/no/such/place" | submit)
  within 120 is_over "$job"
  is_state "$job" COMPLETED
  in_slurm scontrol show job "$job" > "$work/shown"
  cat "$work/shown"
  grep -q "slurm_bb_data_out:_stage_out=$local/kept:$plain/no/such/place" "$work/shown"
  as_user mkdir -p "$plain/no/such"
  as_user "$WEFT" stage out "$local/kept" "$plain/no/such/place"
  cmp "$local/kept/file" "$plain/no/such/place/file"
  # With the number of the job in its name.
  job=$(printf '#!/bin/sh\n#BB_LUA weft stage_out=%s:%s\ntrue\n' "$local/kept" "$plain/kept.%j" | submit)
  within 120 is_over "$job"
  cmp "$local/kept/file" "$plain/kept.$job/file"
  all_gone
}

# What a shell would take for more than a name is a name, and what root could read the user cannot.
t_hostile() {
  local job name="a;touch\${IFS}$work/pwned;\$(touch\${IFS}$work/pwned)\`id\`'\"|&>x*"
  local file=${name//\//_}
  mkdir -p "$plain/$file"
  echo content > "$plain/$file/file"
  chown -R $uid:$uid "$plain/$file"
  job=$(printf '#!/bin/sh\n#BB_LUA weft stage_in=%s:%s stage_out=%s:%s\ntrue\n' "$plain/$file" "$local/$file" "$local/$file" "$plain/$file.out" | submit)
  within 60 is_over "$job"
  is_state "$job" COMPLETED
  cmp "$plain/$file/file" "$plain/$file.out/file"
  [ "$(stat -c %u "$plain/$file.out/file")" = $uid ]
  mkdir -m 700 "$work/secret"
  echo secret > "$work/secret/file"
  job=$(printf '#!/bin/sh\n#BB_LUA weft stage_in=%s:%s\ntrue\n' "$work/secret" "$local/secret" | submit)
  within 60 is_waiting_for "$job" 'slurm_bb_data_in: stage_in='
  as_user scancel "$job"
  within 60 is_over "$job"
  job=$(printf '#!/bin/sh\n#BB_LUA weft stage_in=%s:%s\ntrue\n' "$plain/$file" "$work/secret/in" | submit)
  within 60 is_waiting_for "$job" 'slurm_bb_data_in: stage_in='
  as_user scancel "$job"
  within 60 is_over "$job"
  [ "$(ls "$work/secret")" = file ]
  not is_there "$local/secret/file"
  not is_there "$work/pwned"
  # Nobody but root sees what jobs have asked for, nor changes it.
  must_fail 2 as_user ls "$images/.jobs"
  all_gone
}

# With what PBS passes: arguments, an empty environment, and qstat's answer.
t_pbs() {
  mkdir -p "$work/pbs"
  ln -s "$packaging/pbs/prologue.sh" "$work/pbs/prologue"
  ln -s "$packaging/pbs/epilogue.sh" "$work/pbs/epilogue"
  # qstat is found where weft is; its directory is this test's.
  write_conf RANKFS_MAX=1G
  sed -i "s|^PATH=|PATH=$work/pbs:|" /etc/weft/rankfs.conf
  cat > "$work/pbs/qstat" <<'QSTAT'
#!/bin/sh
[ "$1 $2" = "-f 12.server" ] || exit 153
printf 'Job Id: 12.server\n    Job_Name = x\n    Variable_List = PBS_O_HOME=/home/u,PBS_O_LANG=C,WEFT_RANK\n\tFS=%s,WEFT_RANKS=2,PBS_O_QUEUE=workq\n    comment = Job run\n' "$(cat "$0.size")"
QSTAT
  chmod 755 "$work/pbs/qstat"
  echo 64M > "$work/pbs/qstat.size"
  (cd "$work/pbs" && env -i ./prologue 12.server $user $user < /dev/null)
  [ "$(ls "$images" | wc -l)" = 2 ]
  as_user env PBS_JOBID=12.server OMPI_COMM_WORLD_LOCAL_RANK=1 "$packaging/jobs/with-rankdir.sh" sh -c 'echo mine > "$RANKDIR/file" && echo $RANKDIR' > "$work/out"
  [ "$(cat "$work/out")" = "$mounts/12.server/1" ]
  must_fail 1 as_user env PBS_JOBID=12.server OMPI_COMM_WORLD_LOCAL_RANK=2 "$packaging/jobs/with-rankdir.sh" true
  (cd "$work/pbs" && env -i ./epilogue 12.server $user $user x 1 cput=1 cput=1 workq account 0 < /dev/null)
  all_gone
  echo 2G > "$work/pbs/qstat.size"
  must_fail 1 env -i "$work/pbs/prologue" 12.server $user $user
  grep -q 'more than' "$work/err"
  must_fail 1 env -i "$work/pbs/prologue" ../x $user $user
  write_conf RANKFS_MAX=1G
  all_gone
}

# With what PJM sets. What the job sets is no order to root.
t_pjm() {
  local run=(env -i "PJM_JOBID=345" "PJM_O_LOGNAME=$user" "PJM_PROC_BY_NODE=2" "PJM_NODE=1" "PJM_MPI_PROC=2")
  "${run[@]}" "$packaging/pjm/prolog.sh"
  [ -z "$(ls "$images")" ]
  echo "touch $work/pwned" > "$home/conf"
  "${run[@]}" WEFT_RANKFS=64M WEFT_RANKFS_CONF="$home/conf" PATH="$home" "$packaging/pjm/prolog.sh"
  [ "$(ls "$images" | wc -l)" = 2 ]
  as_user env PJM_JOBID=345 MPI_LOCALRANKID=1 "$packaging/jobs/with-rankdir.sh" sh -c 'echo mine > "$RANKDIR/file"'
  # One that outlives the job there.
  setpriv --reuid $uid --regid $uid --clear-groups sleep 600 < /dev/null > "$mounts/345/0/out" 2>&1 &
  "${run[@]}" "$packaging/pjm/epilog.sh"
  not wait $!
  not is_there "$work/pwned"
  all_gone
  must_fail 1 "${run[@]}" WEFT_RANKFS='1G;id' "$packaging/pjm/prolog.sh"
  must_fail 1 "${run[@]}" WEFT_RANKFS=4G "$packaging/pjm/prolog.sh"
  all_gone
}

case "$(uname -n)" in *[!A-Za-z0-9.-]*) echo "Slurm takes no such name for a machine"; exit 1 ;; esac
"$top/tools/deps.sh" slurm || exit 1
! getent passwd $uid > /dev/null || { echo "there is a user $uid"; exit 1; }
mkdir -p /etc/weft "$work/etc"
mount --bind "$work/etc" /etc/weft
for file in passwd group; do cp "/etc/$file" "$work/$file"; done
echo "$user:x:$uid:$uid::/:/bin/sh" >> "$work/passwd"
echo "$user:x:$uid:" >> "$work/group"
mount --bind "$work/passwd" /etc/passwd
mount --bind "$work/group" /etc/group
two_up >/dev/null || { echo "no cluster"; exit 1; }
slurm_up || { echo "no Slurm"; cat "$slurm"/*.out; exit 1; }
for case in ${*:-job unasked too_much missing out_failed hostile command_line cancelled slurmd_killed slurmstepd_killed slurmctld_killed slurmctld_killed_early pbs pjm}; do
  check "$case" "t_$case"
  end_jobs
done
finish
