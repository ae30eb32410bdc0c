// Package script writes what runs on a node: the directives of a launch, and its script. It runs
// nothing.
package script

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// Directives returns those of a launch, but for its name.
func Directives(p runner.Plan) (string, error) {
	q := p.Resources
	var b strings.Builder
	var wrong error
	line := func(words string) {
		if !job.Directive(words) && wrong == nil {
			wrong = job.Errorf(job.Invalid, "resources: %q is no directive of Slurm", words)
		}
		fmt.Fprintf(&b, "#SBATCH %s\n", words)
	}
	set := func(name, value string) {
		if value != "" {
			line("--" + name + "=" + value)
		}
	}
	count := func(name string, n int) {
		if n > 0 {
			set(name, strconv.Itoa(n))
		}
	}
	set("output", "/dev/null")
	if p.Once {
		line("--no-requeue") // after a crash of its own Slurm runs it again all the same
	} else {
		line("--requeue")
	}
	count("nodes", q.Nodes)
	count("ntasks", q.Tasks)
	count("cpus-per-task", q.Cores)
	count("gpus-per-node", q.GPUs)
	if q.Memory > 0 {
		set("mem", strconv.FormatInt((int64(q.Memory)+1<<20-1)>>20, 10)+"M")
	}
	if q.Minutes > 0 {
		set("time", strconv.Itoa(int(math.Ceil(q.Minutes))))
	}
	set("account", q.Account)
	set("partition", q.Partition)
	set("qos", q.QOS)
	set("constraint", q.Constraint)
	set("reservation", q.Reservation)
	if q.Exclusive {
		line("--exclusive")
	}
	for _, o := range q.Options {
		line(o)
	}
	return b.String(), wrong
}

// begin are the lines of a script before it takes the launch. The %s are the time when it was
// armed, how much is told of the list of its nodes, and the number of the message without its run.
const begin = `id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
me="$me $id ${SLURMD_NODENAME:-unknown} %[1]d $SLURM_JOB_NAME${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
nodes=${SLURM_JOB_NUM_NODES:-1} list=${SLURM_JOB_NODELIST:-}
[ ${#list} -le %[2]d ] || list=$(printf %%.%[2]ds "$list")
# Where Slurm keeps the processes of the job in a control group, it ends them by itself. Where it bounds their
# memory, the kernel counts in the file kills what it ended for that.
group= kills= force=` + ByScript + `
while read -r line; do
	case $line in
	*:freezer:*/job_$SLURM_JOB_ID/step_batch)
		group=/sys/fs/cgroup/freezer${line#*:freezer:} force=` + BySlurm + `
		;;
	*:memory:*/job_$SLURM_JOB_ID/step_batch*) kills=/sys/fs/cgroup/memory${line#*:memory:}/memory.oom_control ;;
	0::*/job_$SLURM_JOB_ID/step_batch*) kills=/sys/fs/cgroup${line#0::}/memory.events ;;
	esac
	[ -z "$group" ] || [ -z "$kills" ] || break
done 2>/dev/null </proc/self/cgroup
me="$me $nodes $force ${SLURM_JOB_PARTITION:-} $list"
unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN \
	SLURM_ARRAY_TASK_STEP # the program is not to see whether others like it were submitted with it

# Which run is this? Each has a file of its own, and with -C only one can make it.
set -C
run=0 own=.pawl/take.$at.$token before=
until true >$own; do
	[ -e "$own" ] || exit
	before=$own run=$((run + 1)) own=.pawl/take.$at.$token.$run
done 2>/dev/null
printf '%%s\n' "$me" >>$own || {
	rm -f $own
	exit 1
}
name=%[3]s$run

# $clear are lines that end all that belongs to the program, of this run or the one before, on the node where they run.
clear='n=0
while [ $n -lt 60 ]; do
	left=$(grep -lsa -e "` + host.LaunchVariable + `=$token" ${mark:+-e "$mark"} /proc/[0-9]*/environ /proc/[0-9]*/limits)
	[ $? -le 2 ] && [ -z "$left" ] && break
	alive=
	for file in $left; do
		file=${file%%/*} stat=
		read -r stat <$file/stat
		case ${stat##*") "} in
		"" | [ZX]*) ;;
		*) alive=yes && kill -9 ${file##*/} ;;
		esac
	done 2>/dev/null
	[ -z "$left" ] || [ -n "$alive" ] || break
	n=$((n + 1))
	[ $n -lt 10 ] || sleep 0.1
done'
mark=
[ $locks = 0 ] || mark="^Max file locks  *$locks "

# alone reports whether the control group has this script, and nothing else.
alone() {
	seen=
	[ -n "$group" ] && while read -r pid; do
		[ "$pid" = $$ ] || return
		seen=yes
	done 2>/dev/null <"$group/cgroup.procs" && [ -n "$seen" ] || return
	for file in "$group"/*/ "${group%%/step_batch}"/step_*/; do
		case $file in */step_batch/ | */step_extern/ | */\*/) ;; *) return 1 ;; esac
	done
}

# clear does it on all nodes of the job.
clear() {
	eval "$clear"
	[ $nodes = 1 ] || [ -n "$group" ] || timeout 60 srun --quiet --overlap --mem=0 --mpi=none \
		--nodes=$nodes --ntasks=$nodes --ntasks-per-node=1 --cpus-per-task=1 \
		/bin/sh -c "token=$token mark='$mark'; $clear" </dev/null >/dev/null 2>&1
}

if [ -n "$before" ]; then
	# Its script goes first, so that it tells no end of what is ended here.
	read -r _ _ was pid start _ <"$before"
	if [ "$was" = "$boot" ] && read -r stat <"/proc/$pid/stat"; then
		set -- ${stat##*') '}
		shift 19
		[ "$1" = "$start" ] && kill -9 "$pid"
	fi 2>/dev/null
	clear
fi
if [ -e .pawl/stop.$at ]; then
	echo "not started: it was ended"
	rm -f $own
	exit
fi
if [ -n "$before" ]; then
	# A program that ended by itself does not run again. One that a signal ended may have been ended by Slurm, to run it
	# again. The signal may have met the script later than its program. A run may have stopped before it began it: the
	# newest that did begin it counts.
	n=$run began= told= code= signal=
	while [ -z "$began" ] && [ $n -gt 0 ]; do
		n=$((n - 1))
		while read -r word rest; do
			case $word in
			taken) began=yes ;;
			code) code=$rest ;;
			signal) signal=yes ;;
			asked) asked=yes ;;
			end) told=yes ;;
			esac
		done <"$spool/` + spool.Rooms + `/${name%%.*}.$n"
	done 2>/dev/null
	case $signal$code in yes137 | yes143) asked=yes ;; esac
	[ -z "$asked" ] || told= asked=
	if [ "$told" = yes ]; then
		echo "not run again: it has ended"
		exit
	fi
fi

# When was this node booted, by its clock, and is the job's folder on a disk of its own? One launch a minute finds out
# for all here: starting processes is most of what a short program costs.
read -r up _ </proc/uptime
facts=$spool/.node.${SLURMD_NODENAME:-unknown} seconds=${up%%.*}
read -r of at_second booted disk 2>/dev/null <"$facts" || of=
case $at_second in '' | *[!0-9]*) of= ;; esac
if [ "$of" != "$boot" ] || [ $at_second -gt $seconds ] || [ $((seconds - at_second)) -ge 60 ]; then
	now=$(date +%%s%%3N)
	case $now in *[!0-9]* | '') now=$(date +%%s)000 ;; esac
	booted=$((now - $seconds${up#*.}0))
	booted=${booted%%???}.${booted#"${booted%%???}"}
	disk=yes # a file system of the network has a name for good when a node has made it
	case $(stat -f -c %%T .pawl) in
	tmpfs | ramfs | nfs | lustre | gpfs | fhgfs | panfs | ceph | smb* | cifs | afs) disk=no ;;
	esac
	printf '%%s %%s %%s %%s\n' "$boot" "$seconds" "$booted" "$disk" >|"$facts"
fi 2>/dev/null
`

// after are the lines that follow the program.
const after = `alone || clear
[ $code = 0 ] || [ -z "$kills" ] || while read -r word n; do
	case $word in oom_kill) [ "$n" = 0 ] || memory=yes ;; esac
done 2>/dev/null <"$kills"
`

// take are the lines that take the launch.
const take = `
# Make room for the end. Without it nothing is started, and this was no run. The runs before have rooms, too: who looks
# for the newest stops at a gap. A run that has not made its own by now never will, and starts nothing.
fill() {
	n=$run
	while [ $n -gt 1 ]; do
		n=$((n - 1)) room=$spool/` + spool.Rooms + `/${name%.*}.$n
		[ -e "$room" ] || true >"$room" || return
	done
}
fill && makeroom || {
	[ -e "$room" ] || rm -f $own
	exit 1
}

# Take the launch. A run after run 0 finds it taken by the first. There may be room for the name, and for no more.
take() { true >.pawl/taken.$at; }
if ! take 2>/dev/null && { [ -e .pawl/taken.$at ] || ! take; }; then
	[ -e .pawl/taken.$at ] || {
		rm -f $own "$room"
		exit 1
	}
	taken=
	read -r taken 2>/dev/null <.pawl/taken.$at
	case $run$taken in
	*revoked* | 0*)
		echo "not started: taken.$at holds $taken"
		rm -f "$room"
		exit
		;;
	esac
fi
set +C
[ -s .pawl/taken.$at ] || printf '%s\n' "$me" 2>/dev/null >.pawl/taken.$at
[ "$disk" = no ] || sync .pawl/taken.$at .pawl 2>/dev/null # a node that loses its power must not forget that
`

// keeper are lines that start what ends the program by force when it is told to: by the file that
// is named by [Order], and SIGCONT. SIGKILL from Slurm would meet the script, too, and where Slurm
// follows processes by their parents (proctrack/linuxproc) it misses what is started at that
// moment. Where it has them in a control group it misses none, and there is no keeper.
const keeper = `
if [ -z "$group" ]; then
	(
		trap '' HUP INT QUIT ABRT PIPE ALRM TERM USR1 USR2 XCPU VTALRM PROF
		read -r keeper _ </proc/self/stat
		while kill -STOP $keeper; [ ! -e "$room` + order + `" ]; do :; done
		eval "$clear"
		while :; do kill -STOP $keeper; done
	) </dev/null >/dev/null 2>&1 &
	keeper=$!
	leave='kill -9 $keeper'
fi
trap "$leave" EXIT
`

// Who ends a launch by force: its script, when it is told to by [Order], or Slurm.
const (
	ByScript = "script"
	BySlurm  = "slurm"
)

// order is what is added to the name of a room.
const order = ".kill"

// Order returns the name of the file that tells a script to end its program by force, by the name
// of its room.
func Order(room string) string { return room + order }

// Of returns the script of a launch, which begins with head, or an error of kind Invalid. armed is
// when it was armed, in ms since 1970.
func Of(head string, k runner.Key, p runner.Plan, token string, armed int64) (string, error) {
	p.Env = maps.Clone(p.Env)
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	p.Env[host.LaunchVariable] = token
	if n := p.Resources.Cores; n > 0 && p.Env["SRUN_CPUS_PER_TASK"] == "" {
		p.Env["SRUN_CPUS_PER_TASK"] = strconv.Itoa(n) // srun takes no notice of the directive since 22.05
	}
	tail, err := spool.Tail(p, after)
	if err != nil {
		return "", err
	}
	first := runner.EndName(k, 0)
	return head + fmt.Sprintf(begin, armed, squeue.MaxNodes+1, first[:len(first)-1]) + spool.MakeRoom + take + spool.Stay +
		"trap 'asked=yes' TERM\ntrue 2>/dev/null >\"$spool/" + spool.Begun + "$name\"\n" + keeper + tail +
		"exit $code\n", nil
}

// A Task is a launch in a batch script.
type Task struct {
	Index int    // in its job array
	Dir   string // the folder of its job
	Run   string // the name of its script there: run.<a>.<n>.<token>
}

// Batch returns what is handed to sbatch: directives, and how each launch begins. The programs and
// their environments are in files of the jobs' folders. Slurm keeps what it is handed, and
// administrators read it. Its shell reads the file of a launch itself: to become another shell for
// that takes time. name is that of the first launch: of a task of an array it ends with _<task>.
func Batch(name, directives string, tasks []Task) string {
	var b strings.Builder
	name, _, isArray := strings.Cut(name, "_")
	fmt.Fprintf(&b, "#!/bin/sh\n#SBATCH --job-name=%s\n", name)
	begins := func(t Task) string {
		return fmt.Sprintf("set -- %s %s", spool.Quote(t.Dir), strings.TrimPrefix(t.Run, "run."))
	}
	if !isArray {
		b.WriteString(directives + begins(tasks[0]) + "\n")
	} else {
		indices := make([]string, len(tasks))
		for i, t := range tasks {
			indices[i] = strconv.Itoa(t.Index)
		}
		fmt.Fprintf(&b, "#SBATCH --array=%s\n%scase $SLURM_ARRAY_TASK_ID in\n", strings.Join(indices, ","), directives)
		for _, t := range tasks {
			fmt.Fprintf(&b, "%d) %s ;;\n", t.Index, begins(t))
		}
		b.WriteString("*) exit 1 ;;\nesac\n")
	}
	fmt.Fprintf(&b, "cd \"$1\" || exit\nexec >>%[1]s/log.$2 2>&1\nself=./%[1]s/run.$2\n. \"$self\"\n", runner.Folder)
	return b.String()
}
