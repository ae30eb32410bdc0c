package process

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// wrapper is the script of a launch, for any POSIX shell. It starts no process but the program, unless that could not be started
// (dd) or a disk is full (ln): starting processes is most of what a short program costs. The %s are: the key, its number, the token,
// the quoted spool folder and the message's name, when the host was booted in seconds since 1970, the program, the quoted
// file for its stderr.
const wrapper = `# Pawl: %s
at=%s
token=%s
spool=%s
name=%s
booted=%d

# Who am I? The name in the second field of stat may hold spaces; the start time is field 22.
read -r boot </proc/sys/kernel/random/boot_id || exit
read -r stat </proc/$$/stat || exit
set -- ${stat##*') '}
shift 19
me="taken $token $$ $1 $boot"

# Take the launch. First say who takes it, under a name that is written once (-C), even if somebody runs this script again.
# Then make the name that decides: with -C only one can. What it holds is for people.
set -C
printf '%%s\n' "$me" >.pawl/take.$at.$token || exit
printf '%%s\n' "$me" >.pawl/taken.$at || {
	read -r taken <.pawl/taken.$at
	echo "not started: taken.$at holds $taken"
	exit
}
set +C

# Room for the message, while there is some: the program may fill the disk.
printf '%%1000s' ' ' >.pawl/exit.$at

read -r began _ </proc/uptime
%s
code=$?
read -r ended _ </proc/uptime

# Was it started at all? A shell that cannot become a program says why, first thing in the program's stderr, in a line
# that begins with the name of this script. That has the token, so no program writes such a line.
why=
case $code in
126 | 127)
	stderr=%s
	newline='
'
	[ -f "$stderr" ] && why=$(dd if="$stderr" bs=%d count=1 2>/dev/null)
	why=${why%%%%"$newline"*}
	case $why in
	"$0"*) why=${why#"$0"} ;;
	*) why= ;;
	esac
	;;
esac

# Tell the end, twice: the last line says that it is whole. First over the room that was made for it (<> does not truncate):
# a disk that is full all the same must not lose it, and a folder that was removed wants none.
tell() {
	printf 'pawl-end 1\ntoken %%s\nboot %%s\ncode %%s\nbegan %%s\nended %%s\nwall %%s\n' \
		"$token" "$boot" "$code" "$began" "$ended" "$((booted + ${ended%%%%.*}))" && times &&
		{ [ -z "$why" ] || printf 'why%%s\n' "$why"; } && echo end
}
until tell 1<>.pawl/exit.$at; do
	[ -d .pawl ] || exit
	sleep 10
done
# Then as the message. Where there is no room for it a second name needs none.
until tell >"$spool/$name" || ln -f .pawl/exit.$at "$spool/$name"; do
	[ -d .pawl ] && [ -d "$spool" ] || exit
	sleep 10
done
`

// saying is how much is read of what a shell says, such as one that could not start a program, in bytes. A name that is
// longer leaves only itself of the reason.
const saying = 1000

// script returns the wrapper of a launch, or an error of kind Invalid.
func script(k runner.Key, p runner.Plan, spool, token string, booted time.Time) (string, error) {
	run, err := program(p)
	if err != nil {
		return "", err
	}
	text := wrapper
	if guard.Taken.Off() {
		text = strings.Replace(text, `>.pawl/taken.$at`, `>|.pawl/taken.$at`, 1)
	}
	return fmt.Sprintf(text, k, number(k), token, quote(spool), runner.EndName(k, 0), booted.Unix(), run, quote(inside(p.Dir, p.Stderr)), saying), nil
}

// program returns the subshell that becomes the program. Its environment is set there, so that none of it touches the
// wrapper, and never stands in an argument list, which all users of the machine can read. It is set before the outputs
// are: what a shell has to say about a value, such as a locale that it does not know, is not the program's.
func program(p runner.Plan) (string, error) {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return "", job.Errorf(job.Invalid, "no program")
	}
	if p.Stdout == "" || p.Stderr == "" {
		return "", job.Errorf(job.Invalid, "no file for stdout or stderr")
	}
	var b strings.Builder
	b.WriteString("(\n")
	stdout, stderr := inside(p.Dir, p.Stdout), inside(p.Dir, p.Stderr)
	var reserved []string
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !variable.MatchString(name) {
			return "", job.Errorf(job.Invalid, "%q is not the name of an environment variable", name)
		}
		if shellsOwn.MatchString(name) {
			reserved = append(reserved, quote(name+"="+p.Env[name]))
			continue
		}
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(p.Env[name]))
	}
	b.WriteString("exec 2>" + quote(stderr))
	if stdout == stderr {
		b.WriteString(" >&2")
	} else {
		b.WriteString(" >" + quote(stdout))
	}
	b.WriteString(" </dev/null || exit\n")
	switch name := p.Argv[0]; {
	case len(reserved) > 0 && strings.Contains(name, "="):
		return "", job.Errorf(job.Invalid, "the program %q cannot be started with the variable %s", name, reserved[0])
	case len(reserved) > 0:
		fmt.Fprintf(&b, "exec /usr/bin/env %s", strings.Join(reserved, " "))
	case strings.HasPrefix(name, "-"): // some shells take it for an option of exec; the last command is executed in place anyway
	default:
		b.WriteString("exec")
	}
	for _, a := range p.Argv {
		b.WriteString(" " + quote(a))
	}
	b.WriteString("\n)")
	if strings.ContainsRune(b.String(), 0) {
		return "", job.Errorf(job.Invalid, "a NUL in the program, its arguments, environment or files")
	}
	return b.String(), nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// shellsOwn matches the variables that some shell will not set, or reads as something of its own. They are set by
// env(1) instead.
var shellsOwn = regexp.MustCompile(`^(_|E?UID|PPID|GROUPS|OPTIND|LINENO|S?RANDOM|SECONDS|EPOCH[A-Z]*|SHELLOPTS|BASH[A-Z_]*|DIRSTACK|FUNCNAME|HIST[A-Z]*|COMP_[A-Z]*|PIPESTATUS)$`)

// quote makes a word that a shell reads as s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// inside returns the absolute name of a file that may be given relative to a folder.
func inside(dir, name string) string {
	if files.Check(name) == nil {
		return name
	}
	return path.Join(dir, name)
}
