#!/bin/sh
# Starts a Slurm of its own on the loopback address, makes a system of it, and runs jobs there. It
# needs root, Slurm and munge (Debian: apt-get install slurm-wlm munge) and ./pawl (make build). It
# leaves nothing. It takes about two minutes, for one job runs until its minute is over; QUICK=yes
# leaves that job out, and JOBS=40 makes the sweep and the node smaller.
set -eu
cd "$(dirname "$0")/../.."
pawl=${PAWL:-$PWD/pawl}
[ "$(id -u)" -eq 0 ] || { echo 'a node of Slurm needs root: run this as root, in a container for example' >&2; exit 1; }
dir=$(mktemp -d /tmp/pawl-slurm.XXXXXX) # munged is another user, who may not reach $TMPDIR
export PAWL_DIR="$dir/pawl" SLURM_CONF="$dir/slurm.conf"
munged='' ctld='' node='' ends='' sweep=''
jobs=${JOBS:-100}
cores=$((jobs * 64 / 100)) early=$((jobs / 5))

end() {
	kill $ends $sweep 2>/dev/null || true
	timeout 10 scancel --partition=debug 2>/dev/null || true
	timeout 10 sh -c 'while squeue -h 2>/dev/null | grep -q .; do sleep 0.2; done' || true
	kill $node $ctld $munged 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap end EXIT

controller() {
	/usr/sbin/slurmctld -D -f "$SLURM_CONF" >"$dir/slurmctld.log" 2>&1 &
	ctld=$!
}

# repair does what an administrator would: it lets go on what Slurm holds, for the node was too busy
# to begin it, and lets the node take jobs again.
repair() {
	if timeout 5 sinfo -h -o %T | grep -q 'drain\|down'; then
		timeout 5 scontrol update nodename="$host" state=resume
	fi
	timeout 5 squeue -h -r -t PENDING -o '%i %r' | awk '/held/ { print $1 }' | xargs -r -n 1 timeout 5 scontrol release
}

say() { printf '\n== %s\n' "$*"; }

say 'A private Slurm with one node, which pretends to have '$cores' cores'
host=$(hostname -s)
chmod 755 "$dir"
mkdir -m 711 "$dir/munge"
mkdir -m 755 "$dir/state" "$dir/spool"
mkdir -m 700 "$PAWL_DIR"
head -c 1024 /dev/urandom >"$dir/munge/key"
chmod 400 "$dir/munge/key"
chown -R munge:munge "$dir/munge"
at=$dir/munge
setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged --foreground --socket="$at/sock" \
	--key-file="$at/key" --pid-file="$at/pid" --log-file="$at/log" --seed-file="$at/seed" >/dev/null 2>&1 &
munged=$!
until [ -S "$at/sock" ]; do
	kill -0 $munged # or it has ended: then so does this script
	sleep 0.1
done
port=$((20000 + $$ % 10000))
until
	cat >"$SLURM_CONF" <<-CONFIG
		ClusterName=try
		SlurmctldHost=$host(127.0.0.1)
		SlurmctldPort=$port
		SlurmdPort=$((port + 1))
		SlurmUser=root
		SlurmdUser=root
		AuthType=auth/munge
		AuthInfo=socket=$at/sock
		CredType=cred/munge
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_CPU
		MpiDefault=none
		SwitchType=switch/none
		MailProg=/bin/true
		ReturnToService=2
		PropagateResourceLimits=NONE
		AccountingStorageType=accounting_storage/none
		JobCompType=jobcomp/none
		KillWait=2
		MessageTimeout=60
		SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/spool
		SlurmctldPidFile=$dir/slurmctld.pid
		SlurmdPidFile=$dir/slurmd.pid
		SlurmdParameters=config_overrides
		NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=20000
		PartitionName=debug Nodes=$host Default=YES MaxTime=INFINITE State=UP
	CONFIG
	controller
	until grep -q 'Running as primary\|Address already in use\|fatal' "$dir/slurmctld.log"; do sleep 0.1; done
	grep -q 'Running as primary' "$dir/slurmctld.log"
do port=$((port + 2)); done
/usr/sbin/slurmd -D -f "$SLURM_CONF" -N "$host" >"$dir/slurmd.log" 2>&1 &
node=$!
until timeout 5 sinfo -h -o %T 2>/dev/null | grep -q idle; do sleep 0.2; done
timeout 5 sinfo

say 'The system cluster: where Slurm is installed, two lines do'
"$pawl" apply -f - <<DOCUMENT
kind: system
name: cluster
runner: slurm
env: {SLURM_CONF: $SLURM_CONF}
DOCUMENT

say 'One job file, with system: local and with system: cluster'
cp examples/wordcount/poem.txt "$dir"
for system in local cluster; do
	{ echo "system: $system" && cat examples/wordcount/job.yaml; } >"$dir/job.yaml"
	"$pawl" run "$dir/job.yaml"
	echo "count.txt of system $system: $("$pawl" output wordcount count.txt)"
done

say 'Jobs that do not end well. One more is that of somebody else, by sbatch'
late='- {name: late, resources: {minutes: 1}}' lasting=1
[ -z "${QUICK:-}" ] || late='' lasting=0
cat >"$dir/ends.yaml" <<JOBS
defaults:
  system: cluster
  labels: {show: ends}
  command: [sleep, '600']
jobs:
  $late
  - {name: canceled}
  - {name: stopped}
  - {name: refused, resources: {partition: nowhere}}
JOBS
other=$(timeout 10 sbatch --parsable --output=/dev/null --wrap 'sleep 3600')
"$pawl" run "$dir/ends.yaml" >"$dir/ends.log" 2>&1 &
ends=$!
until [ "$("$pawl" list --state RUNNING -o name 2>/dev/null | grep -c .)" -eq $((lasting + 2)) ]; do sleep 0.2; done
timeout 10 squeue -o '%i %T %j'
"$pawl" cancel canceled
id=$("$pawl" show stopped | sed -n 's/.*Slurm job \([0-9_]*\) .*/\1/p' | head -n 1)
timeout 10 scancel "$id"
until [ "$("$pawl" list --state RUNNING -o name | grep -c .)" -eq $lasting ]; do sleep 0.2; done
echo "pawl cancel canceled; scancel $id.${late:+ Job late runs on, until its minute is over}"

say 'A sweep of '$jobs' jobs. Each program adds its number to a file; those above '$early' then wait until the pipe go is opened'
cat >"$dir/sweep.yaml" <<JOBS
defaults:
  name: sweep
  system: cluster
  labels: {show: sweep}
  script: |
    #!/bin/sh
    echo "\$1 \$PAWL_LAUNCH" >>$dir/started
    [ \$1 -le $early ] || : <$dir/go
    echo \$((\$1 * \$1)) >square.txt
jobs:
JOBS
seq -f '- arguments: [%g]' $jobs >>"$dir/sweep.yaml"
before=$(timeout 10 squeue -h -t all -o %F | sort -n | tail -n 1)
: >"$dir/started"
mkfifo "$dir/go"
"$pawl" run "$dir/sweep.yaml" >"$dir/sweep.log" 2>&1 &
sweep=$!

# Two cores of the node are taken, or one once job late is over.
full() {
	[ "$(sort -u "$dir/started" | wc -l)" -ge $((early + cores - 2)) ] && [ "$(timeout 10 squeue -h -r -t RUNNING | wc -l)" -eq $cores ]
}
until full; do
	repair || true
	sleep 0.3
done
# slurmctld saves what it knows some seconds after a change. Once the last change is in the file, all are.
timeout 10 scontrol update jobid="$other" comment="the last change"
until grep -q 'the last change' "$dir/state/job_state"; do sleep 0.2; done
queue() {
	timeout 10 squeue -h -t all -r -o '%F %T' | awk -v before="$before" '
		$1 > before { all++; if (!seen[$1]++) calls++; state[$2]++ }
		END {
			printf "%d jobs in Slurm, by %d calls of sbatch:", all, calls
			for (s in state) printf " %d %s", state[s], s
			print ""
		}'
}
queue

say 'slurmctld is killed in the middle (kill -9), and started again'
kill -9 $ctld
wait $ctld || true
exec 8<>"$dir/go" # those that have it open go on; for those that open it later it is a file
: >"$dir/gone"
mv "$dir/gone" "$dir/go"
exec 8>&-
controller
until timeout 5 sinfo -h -o %T 2>/dev/null | grep -q .; do sleep 0.2; done
queue

# A node refuses what it still runs. Then Slurm holds that, and drains the node, until an
# administrator comes.
while kill -0 $sweep 2>/dev/null; do
	repair || true
	sleep 0.5
done
wait $sweep || true
sweep=''

say 'Every job is accounted for, and none was started twice'
tail -n 1 "$dir/sweep.log"
sort -u "$dir/started" | awk '
	{ if (++by[$1] == 1) all++; else twice++ }
	END { printf "%d programs started by pawl, %d of them twice\n", all, twice }'
echo "$(($(wc -l <"$dir/started") - $(sort -u "$dir/started" | wc -l))) started again by Slurm itself"
for job in $("$pawl" list --label show=sweep -o name); do "$pawl" output "$job" square.txt; done |
	awk '{ sum += $1 } END { printf "%d squares, sum %d\n", NR, sum }'
timeout 10 squeue -h -j "$other" -o 'the job of somebody else: %T'

say 'How the others ended'
wait $ends || true
ends=''
"$pawl" list --label show=ends
