package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// On a host that is a [host.Shell] the shell does what launchByFiles does, under the same names and
// in the same order, for all launches that wait. Three round trips do that: the shell writes the
// files, the file system links the names that decide, and the shell makes them durable by one sync
// and starts the wrappers. Where something is not as usual the launch goes on by files.
//
// What is linked and what it holds become durable together. So after a power failure a file may
// have the name that decides, and no content. Whoever linked it had not gone on: nothing was
// started, and nobody was told. So Settle revokes such a launch.

// An order is a launch that waits.
type order struct {
	spool.Names
	dir   string // the job's folder
	mark  string // of the job
	armed string // what launch.<a>.<n> is to hold
	text  string // the script of the wrapper

	is     answer
	answer chan answer
}

// An answer says what has become of an order.
type answer struct {
	outcome outcome
	process host.Process // the wrapper
	err     error        // why the outcome is open
}

// An outcome is what a request says of an order.
type outcome string

const (
	leftOpen  outcome = ""      // it may be armed, and its wrapper may run
	isReady   outcome = "ready" // its files are there
	isArmed   outcome = "armed" // it is linked, by this order
	started   outcome = "started"
	wasMarked outcome = "marked" // the job was cleaned here: nothing was touched
	wasArmed  outcome = "late"   // somebody else has armed or revoked the launch
	notDone   outcome = "files"  // nothing was armed, and the way by files tells why, or does it
)

const (
	maxOrders = 32        // launches in one request
	maxText   = 256 << 10 // bytes of a script in it
	maxSaid   = 300       // bytes of what it says that an error tells
)

// launchFar launches by the shell of the host, together with the others that wait.
func (r *Runner) launchFar(ctx context.Context, sh host.Shell, o *order) answer {
	o.answer = make(chan answer, 1)
	r.orders.Add(o, maxOrders, func(batch []*order) {
		// It goes on when ctx ends: the others wait for it, too. The host bounds each request.
		r.carryOut(context.WithoutCancel(ctx), sh, batch)
	})
	select {
	case a := <-o.answer:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
}

// carryOut launches some orders.
func (r *Runner) carryOut(ctx context.Context, sh host.Shell, batch []*order) {
	out, code, err := sh.Run(ctx, readying(batch), nil)
	crash.At("launch.readied")
	ready := hear(string(out), batch, code, err, isReady)
	var all sync.WaitGroup
	for _, o := range ready {
		all.Go(func() {
			err := files.QuickLink(ctx, r.FS, o.Own("arm"), o.Arming())
			switch {
			case err == nil:
				o.is = answer{outcome: isArmed}
			case errors.Is(err, fs.ErrExist):
				o.is = answer{outcome: wasArmed}
			default:
				o.is = answer{err: err}
			}
		})
	}
	all.Wait()
	crash.At("launch.linked")
	armed := slices.DeleteFunc(ready, func(o *order) bool { return o.is.outcome != isArmed })
	if len(armed) > 0 {
		out, code, err = sh.Run(ctx, starting(armed), nil)
		hear(string(out), armed, code, err, started)
	}
	for _, o := range batch {
		o.answer <- o.is
	}
}

// heard has a request tell what the shell says of its errors: [hear] leaves out what it does not
// know.
const heard = "exec 2>&1\n"

// looking are functions that look at a name: whether it is there, and whether it is a folder in
// which nothing can be seen.
const looking = `there() { [ -e "$1" ] || [ -L "$1" ]; }
shut() { there "$1" && [ ! -x "$1" ]; }
`

// ready is a function that looks whether a launch may go on, and writes the files of its own.
const ready = looking + `umask 077
ready() { # number in the request, folder, end of names, token, mark, words, script
	if there "$5"; then echo "$1 marked"; return; fi
	d=${5%/*}
	if shut "$d" || shut "${d%/*}"; then echo "$1 files"; return; fi
	if there "$2/launch.$3"; then echo "$1 late"; return; fi
	if printf '%s' "$7" >"$2/run.$3.$4" && printf '%s\n' "$6" >"$2/arm.$3.$4"; then
		echo "$1 ready"
	else
		echo "$1 files"
	fi
}
`

// readying is the first request.
func readying(batch []*order) string {
	var b strings.Builder
	b.WriteString(heard + ready)
	for i, part := range wrapperParts {
		fmt.Fprintf(&b, "part%d=%s\n", i, spool.Quote(part))
	}
	for i, o := range batch {
		fmt.Fprintf(&b, "ready %d %s %s %s %s %s ", i, spool.Quote(o.Folder), o.Number, o.Token, spool.Quote(o.mark),
			spool.Quote(o.armed))
		rest := o.text
		for i, part := range wrapperParts {
			if before, after, ok := strings.Cut(rest, part); ok {
				fmt.Fprintf(&b, "%s\"$part%d\"", spool.Quote(before), i)
				rest = after
			}
		}
		b.WriteString(spool.Quote(rest) + "\n")
	}
	return b.String()
}

// wrapperParts are the long parts that all wrappers have in common, in order. A request has them
// once.
var wrapperParts = spool.Parts(spool.MakeRoom + take + spool.Stay)

// starting is the second request. Each wrapper tells by itself that it is there. Its standard
// output is a file, so it tells by another descriptor, and what tells is read until all have closed
// it.
//
// A shell ignores SIGINT and SIGQUIT for what it starts in the background, and setsid -f would be
// another process for each. So the wrappers are parts of a pipeline, which is their only use of it.
// Its last part ends the subshell that would wait for the others.
func starting(batch []*order) string {
	var b strings.Builder
	b.WriteString(heard + "path=$PATH; PATH=/usr/bin:/bin:/usr/local/bin:$PATH\nsync")
	for _, o := range batch {
		b.WriteString(" " + spool.Quote(o.Arming()))
	}
	for _, o := range batch {
		b.WriteString(" " + spool.Quote(o.Folder))
	}
	b.WriteString(" || exit\n" + start + "[ -x \"$setsid\" ] || exit\ntold=$(\nexec 3>&1\nread -r me rest </proc/self/stat\n")
	for i, o := range batch {
		fmt.Fprintf(&b, "start %d %s %s %s %s |\n", i, spool.Quote(o.Folder), o.Number, o.Token, spool.Quote(o.dir))
	}
	b.WriteString("kill -9 \"$me\"\n)\necho \"$told\"\n")
	return b.String()
}

// start is a function that becomes the wrapper of a launch, with the environment of programs.
const start = `for setsid in /usr/bin/setsid /bin/setsid /usr/local/bin/setsid; do [ -x "$setsid" ] && break; done
start() { # number in the request, folder, end of names, token, job's folder
	cd "$5" || exit
	unset OLDPWD
	export ` + host.LaunchVariable + `="$4"
	PATH=$path
	exec "$setsid" /bin/sh "` + runner.Folder + `/run.$3.$4" </dev/null >>"$2/log.$3.$4" 2>>"$2/log.$3.$4"
}
`

// telling is what the wrapper says then. Whoever reads it waits until the descriptor is closed.
const telling = `
# Somebody waits to be told that this shell is there.
echo "$token $boot $$ $1" >&3
exec 3>&-
`

// hear notes what a request says of its orders, and returns those that are as they should be. The
// outcome of one of which it says nothing is open, because of err, or because the shell could not
// do what it was asked: the account may have too many processes, or its files may be no larger.
func hear(out string, batch []*order, code int, err error, as outcome) (list []*order) {
	if err == nil {
		why := fmt.Sprintf("it ended with exit code %d", code)
		if code > 128 {
			why += fmt.Sprintf(" (signal %d, %v)", code-128, syscall.Signal(code-128))
		}
		if said := strings.TrimSpace(out); said != "" {
			why += fmt.Sprintf(", and has said only %q", said[max(0, len(said)-maxSaid):])
		}
		err = &host.Trouble{Code: job.ShellBroken, Err: errors.New(
			"the shell of the host does not say what became of the launch: " + why)}
	}
	tokens := make(map[string]*order, len(batch))
	for _, o := range batch {
		o.is, tokens[o.Token] = answer{err: err}, o
	}
	for line := range strings.Lines(out) {
		switch f := strings.Fields(line); len(f) {
		case 2:
			i, err := strconv.Atoi(f[0])
			switch what := outcome(f[1]); {
			case err != nil || i < 0 || i >= len(batch):
			case what == isReady, what == wasMarked, what == wasArmed, what == notDone:
				batch[i].is = answer{outcome: what}
			}
		case 4:
			pid, err1 := strconv.Atoi(f[2])
			start, err2 := strconv.ParseUint(f[3], 10, 64)
			if o := tokens[f[0]]; o != nil && err1 == nil && err2 == nil {
				o.is = answer{outcome: started, process: host.Process{PID: pid, Start: start, Boot: f[1]}}
			}
		}
	}
	for _, o := range batch {
		if o.is.outcome == as {
			list = append(list, o)
		}
	}
	return list
}

// launched reports whether an order was carried out, one way or the other.
func (a answer) launched() (host.Process, error, bool) {
	switch a.outcome {
	case wasMarked:
		return host.Process{}, job.Errorf(job.Conflict, "%w", runner.ErrRan), true
	case wasArmed:
		return host.Process{}, job.Errorf(job.Conflict, "%w", runner.ErrArmed), true
	case notDone:
		return host.Process{}, nil, false
	}
	return a.process, a.err, true
}

// nothing is a function that says that a host knows of no launch of a job after launch $5: the job
// has no mark, and no such launch is armed. Where it cannot see that, it says nothing.
const nothing = looking + `nothing() { # number in the request, mark, its folder, the one above, launch,
	# the job's folder, the one above, the runner's
	if there "$2" || shut "$3" || shut "$4" || [ ! -x "$7" ] || shut "$6" || shut "$8"; then return; fi
	for f in "$8"/launch.*; do
		case ${f##*/launch.} in
		'*' | *[!0-9.]*) ;;
		*) [ "${f##*.}" -le "$5" ] || return ;;
		esac
	done
	echo "$1 nothing"
}
`

// A question is whether a host knows of a launch.
type question struct {
	words  string // for nothing
	answer chan bool
}

// unknown reports whether the host knows of no launch after k, and has no mark of the job. If it
// does not, the files tell.
func (r *Runner) unknown(ctx context.Context, k runner.Key, dir string) bool {
	sh := r.Shell()
	if sh == nil || k.Job.IsZero() || files.Check(dir) != nil {
		return false
	}
	mark := r.MarkName(k.Job)
	q := &question{answer: make(chan bool, 1)}
	for _, word := range []string{
		mark, path.Dir(mark), r.PastDir, strconv.Itoa(k.Launch), dir, path.Dir(dir), path.Join(dir, runner.Folder),
	} {
		q.words += " " + spool.Quote(word)
	}
	r.questions.Add(q, maxOrders, func(batch []*question) {
		script := nothing
		for i, q := range batch {
			script += fmt.Sprintf("nothing %d%s\n", i, q.words)
		}
		out, _, err := sh.Run(context.WithoutCancel(ctx), script, nil)
		said := "\n" + string(out)
		for i, q := range batch {
			q.answer <- err == nil && strings.Contains(said, fmt.Sprintf("\n%d nothing\n", i))
		}
	})
	select {
	case unknown := <-q.answer:
		return unknown
	case <-ctx.Done():
		return false
	}
}
