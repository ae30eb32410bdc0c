package spool

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// head begins a script, for any POSIX shell. The %s are: the key, its number, the token, and the
// quoted spool folder.
const head = `# Pawl: %s
at=%s
token=%s
spool=%s
locks=%d
asked=

# Who am I? The name in the second field of stat may hold spaces; the start time is field 22.
read -r boot </proc/sys/kernel/random/boot_id || exit
read -r stat </proc/$$/stat || exit
set -- ${stat##*') '}
shift 19
me="taken $token $boot $$ $1 $locks"
`

// Head returns how the script of a launch begins. It sets at, token, spool, locks and me. locks is
// the number for the limit of file locks of its programs; 0: there is none.
func (s *Spool) Head(k runner.Key, token string, locks uint64) string {
	return fmt.Sprintf(head, k, Number(k), token, Quote(s.Dir), locks)
}

// Reserve is a file in the spool that can go: all scripts of an account share it. File systems such
// as Btrfs and ZFS never write over what is on the disk, so a room that was made while there was
// some does not help on them. Whoever cannot tell an end removes the reserve, and tries again. It
// is random, for such file systems compress.
const Reserve = ".reserve"

// MakeRoom are lines of the function makeroom, which makes room for the end in the file $room,
// while there is some: the program may fill the disk. It fails if it cannot. Then the script is to
// start nothing: dd says why, for some shells do not, and that takes room, too. Before, name is the
// name of the message. The function scarce is for a script that finds no room all the same. What a
// quota counts may only be less after a sync.
const MakeRoom = `reserve=$spool/` + Reserve + `
makeroom() {
	room=$spool/` + Rooms + `/$name
	[ -s "$reserve" ] || said=$(LC_ALL=C dd if=/dev/urandom of="$reserve" bs=65536 count=8 status=none 2>&1) || {
		rm -f "$reserve"
		sync -f "$spool" 2>/dev/null
		echo "$said" >&2
		return 1
	}
	true >"$room" || return
	printf '%1200s' ' ' 2>/dev/null >>"$room" || printf '%1200s' ' ' | LC_ALL=C dd of="$room" status=none || {
		rm -f "$room"
		return 1
	}
}
scarce() {
	[ -e "$reserve" ] || sleep 10
	rm -f "$reserve"
	sync -f "$spool" 2>/dev/null
}
`

// Stay are lines that follow when the launch is taken. From here on the shell stays, to tell the
// end: what the program sends to its group is not meant for it. Nor does anything depend on the
// job's folder any more, for the program may empty it. So the room says, too, who took the launch
// (<> does not truncate). A script may set leave to what it does when it exits.
const Stay = `
trap : HUP INT QUIT ABRT PIPE ALRM TERM USR1 USR2 XCPU VTALRM PROF
leave=
printf '%s\n' "$me" 1<>"$room"
`

// tail runs the program and tells its end. The %s are: the program, lines that follow it, how much
// is read of what the shell said, the quoted file for the program's stderr, and how much is read of
// that. It starts no process but the program, unless that could not be started (dd) or a disk is
// full (ln): starting processes is most of what a short program costs.
const tail = `code= why= signal= memory= said= newline='
'
# tell writes the end. The last line says that it is whole.
tell() {
	printf '%%s\ncode %%s\nbegan %%s\nended %%s\nbooted %%s\n' "$me" "$code" "$began" "$ended" "$booted" && times &&
		{ [ -z "$why" ] || printf 'why%%s\n' "$why"; } &&
		{ [ -z "$signal" ] || echo signal; } && { [ -z "$asked" ] || echo asked; } &&
		{ [ -z "$memory" ] || echo memory; } && echo end
}
# A shell that cannot fork ends. What is known by then is told: the end, or that there was no program.
unable() {
	[ -n "$code" ] || { code=126 why=${why:-': ` + runner.CannotFork + `'}; read -r ended _ </proc/uptime; }
	tell 1<>"$room"
	tell >"$spool/$name"
}
trap 'unable; eval "$leave"' EXIT
read -r began _ </proc/uptime
%s
code=$?
read -r ended _ </proc/uptime
%s[ $code -le 255 ] || code=$((code - 128)) # some shells say 256 + n after signal n

# Was it started at all? Where its outputs cannot be opened, the subshell says so in the log of this shell, and last that
# it did. A shell that cannot become a program says why, first thing in the program's stderr, in a line that begins with
# its own name or that of this script, or has both. They have the token, or are those of a copy that Slurm made for this
# launch, so no program writes such a line. Of a signal that ended the program the shell speaks in its own log, but for
# SIGINT and SIGPIPE.
case $code in
126 | 127 | 129 | 1[3-9]?)
	if [ ! -s /proc/$$/fd/2 ]; then
		:
	elif [ $code -gt 127 ] && [ -z "$BASH_VERSION" ]; then # bash has other things to say, too
		signal=yes
	else
		said=$(dd if=/proc/$$/fd/2 bs=%d count=1 2>/dev/null)
	fi
	;;
esac
case $code in
126 | 127)
	stderr=%s
	case $said in
	*"$token") why=${said%%"$newline"*} why=${why##*"$newline"} ;;
	*) [ -f "$stderr" ] && why=$(dd if="$stderr" bs=%d count=1 2>/dev/null) ;;
	esac
	why=${why%%%%"$newline"*}
	case $why in
	"$0"* | [EW]": $0"*) why=${why#*"$0"} ;;
	"$self"*) why=${why#"$self"} ;;
	*) why= ;;
	esac
	case $why in *" $self: "*) why="${why%%%%" $self: "*} ${why#*" $self: "}" ;; esac
	;;
*)
	said=${said##*"$newline"}
	case $said in '' | *warning:*) ;; *) signal=yes ;; esac
	;;
esac

# Tell the end, twice. First over the room that was made for it: a disk that is full all the same must
# not lose it.
trap "$leave" EXIT
until tell 1<>"$room"; do
	[ -d "$spool/` + Rooms + `" ] || exit
	scarce
done
# Then as the message. Where there is no room for it a second name needs none.
until tell >"$spool/$name" || ln -f "$room" "$spool/$name"; do
	[ -d "$spool" ] || exit
	scarce
done
bell=$spool/` + host.Bell + `
[ ! -p "$bell" ] || { echo 1<>"$bell"; } 2>/dev/null
`

// Tail returns how the script of a launch ends: it runs the program, and tells its end in the
// variables room and name. It needs booted: when the host was booted, in seconds since 1970, and
// self: the name of this script. after are lines that follow the program. They may set asked, if
// the script itself was asked to end, and memory, if the kernel ended something of the program
// because there was no more memory for it. Errors are of kind [job.Invalid].
func Tail(p runner.Plan, after string) (string, error) {
	run, err := program(p)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(tail, run, after, log, Quote(inside(p.Dir, p.Stderr)), saying), nil
}

// Parts returns the long parts that all scripts have in common, in order. between is what a runner
// has between [Spool.Head] and [Tail].
func Parts(between string) (long []string) {
	const percent = "\x00"
	between = strings.ReplaceAll(between, "%", "%%")
	text := strings.NewReplacer("%%", percent, "%d", "%s").Replace(head + "%s" + between + tail)
	for part := range strings.SplitSeq(text, "%s") {
		if len(part) > 200 {
			long = append(long, strings.ReplaceAll(part, percent, "%"))
		}
	}
	return long
}

// saying is how much is read of what a shell says in the program's stderr, such as one that could
// not start it, in bytes. A name that is longer leaves only itself of the reason. log is how much
// is read of what the wrapper's shell said itself.
const (
	saying = 1000
	log    = 8192
)

// program returns the subshell that becomes the program. It sets the environment itself, so that no
// variable touches the wrapper. A variable is never in an argument list, which all users of the
// machine can read. The environment is set before the outputs: what the shell says about a value,
// such as an unknown locale, is no output of the program.
func program(p runner.Plan) (string, error) {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return "", job.Errorf(job.Invalid, "no program")
	}
	if p.Stdout == "" || p.Stderr == "" {
		return "", job.Errorf(job.Invalid, "no file for stdout or stderr")
	}
	var b strings.Builder
	if p.Once { // before is the file of the run before: see package runner/slurm
		b.WriteString("[ -z \"$before\" ] || { why=': " + runner.RanAgain + "'; exit 126; }\n")
	}
	// Shells name the limit of file locks differently, and some not at all.
	b.WriteString("(\n[ $locks = 0 ] || ulimit -w $locks 2>&- || ulimit -x $locks 2>&-\n")
	stdout, stderr := inside(p.Dir, p.Stdout), inside(p.Dir, p.Stderr)
	var reserved []string
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !variable.MatchString(name) {
			return "", job.Errorf(job.Invalid, "%q is not the name of an environment variable", name)
		}
		if shellsOwn.MatchString(name) {
			reserved = append(reserved, Quote(name+"="+p.Env[name]))
			continue
		}
		fmt.Fprintf(&b, "export %s=%s\n", name, Quote(p.Env[name]))
	}
	// Both are emptied, and appended to: who opens one of them again under its name writes behind
	// what is there. The command that opens them does not end the shell if it fails (POSIX has exec
	// do that), so that it can say so.
	empty := func(name string) string { return "{ [ ! -s " + Quote(name) + " ] || true >" + Quote(name) + "; } && " }
	b.WriteString("{ " + empty(stdout) + "command exec </dev/null >>" + Quote(stdout))
	if stdout == stderr {
		b.WriteString(" && exec 2>&1")
	} else {
		b.WriteString(" && " + empty(stderr) + "command exec 2>>" + Quote(stderr))
	}
	b.WriteString("; } || { echo $token >&2; exit 126; }\n")
	switch name := p.Argv[0]; {
	case len(reserved) > 0 && strings.Contains(name, "="):
		return "", job.Errorf(job.Invalid, "the program %q cannot be started with the variable %s", name, reserved[0])
	case len(reserved) > 0:
		fmt.Fprintf(&b, "exec /usr/bin/env %s", strings.Join(reserved, " "))
	// some shells take it for an option of exec; the last command is executed in place anyway
	case strings.HasPrefix(name, "-"):
	default:
		b.WriteString("exec")
	}
	for _, a := range p.Argv {
		b.WriteString(" " + Quote(a))
	}
	b.WriteString("\n)")
	if strings.ContainsRune(b.String(), 0) {
		return "", job.Errorf(job.Invalid, "a NUL in the program, its arguments, environment or files")
	}
	return b.String(), nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// shellsOwn matches the variables that some shell will not set, or reads as something of its own.
// They are set by env(1) instead.
var shellsOwn = regexp.MustCompile(`^(_|E?UID|PPID|GROUPS|OPTIND|LINENO|S?RANDOM|SECONDS|` +
	`EPOCH[A-Z]*|SHELLOPTS|BASH[A-Z_]*|DIRSTACK|FUNCNAME|HIST[A-Z]*|COMP_[A-Z]*|PIPESTATUS)$`)

// Quote makes a word that a shell reads as s.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// inside returns the absolute name of a file that may be given relative to a folder.
func inside(dir, name string) string {
	if files.Check(name) == nil {
		return name
	}
	return path.Join(dir, name)
}
