#!/bin/sh
# Starts a Slurm of its own on the loopback address, makes a system of it, and runs jobs there. It
# needs root, Slurm and munge (Debian: apt-get install slurm-wlm munge) and ./pawl (make build). It
# leaves nothing.
set -eu
cd "$(dirname "$0")/../.."
pawl=${PAWL:-$PWD/pawl}
[ "$(id -u)" -eq 0 ] || { echo 'a node of Slurm needs root: run this as root, in a container for example' >&2; exit 1; }
dir=$(mktemp -d)
export PAWL_DIR="$dir/pawl" SLURM_CONF="$dir/slurm.conf"
munged='' ctld='' node='' run=''

end() {
	kill $run 2>/dev/null || true
	timeout 10 scancel --partition=debug 2>/dev/null || true
	timeout 10 sh -c 'while squeue -h 2>/dev/null | grep -q .; do sleep 0.2; done' || true
	kill $node $ctld $munged 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap end EXIT

say() { printf '\n== %s\n' "$*"; }

say 'A private Slurm with one node, which pretends to have 64 cores'
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
until [ -S "$at/sock" ]; do sleep 0.1; done
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
		SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/spool
		SlurmctldPidFile=$dir/slurmctld.pid
		SlurmdPidFile=$dir/slurmd.pid
		SlurmdParameters=config_overrides
		NodeName=$host NodeAddr=127.0.0.1 CPUs=64 RealMemory=20000
		PartitionName=debug Nodes=$host Default=YES MaxTime=INFINITE State=UP
	CONFIG
	/usr/sbin/slurmctld -D -f "$SLURM_CONF" >"$dir/slurmctld.log" 2>&1 &
	ctld=$!
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

say 'The word count of examples/wordcount, with system: cluster'
sed 's/^name:/system: cluster\nname:/' examples/wordcount/job.yaml >"$dir/job.yaml"
cp examples/wordcount/poem.txt "$dir"
"$pawl" run "$dir/job.yaml"

say 'The sweep of examples/pi: twenty jobs'
sed 's/^defaults:/defaults:\n  system: cluster/' examples/pi/jobs.yaml >"$dir/jobs.yaml"
"$pawl" run "$dir/jobs.yaml" | tail -n 1
for job in $("$pawl" list --label sweep=pi -o name); do "$pawl" output "$job" pi.txt; done |
	awk '{ sum += $2 } END { printf "%d estimates, mean %.3f\n", NR, sum/NR }'

say 'A job that somebody cancels in Slurm, one that pawl cancels, and one that Slurm refuses'
cat >"$dir/ends.yaml" <<'JOBS'
defaults:
  system: cluster
  command: [sleep, '600']
jobs:
  - {name: stopped}
  - {name: canceled}
  - {name: refused, resources: {partition: nowhere}}
JOBS
"$pawl" run "$dir/ends.yaml" >"$dir/ends.log" 2>&1 &
run=$!
running() { "$pawl" list --state RUNNING -o name 2>/dev/null | grep -c .; }
until [ "$(running)" -eq 2 ]; do sleep 0.2; done
timeout 10 squeue -o '%i %T %j'
"$pawl" cancel canceled
timeout 10 scancel --partition=debug
wait $run || true
run=''
"$pawl" list | head -n 4
