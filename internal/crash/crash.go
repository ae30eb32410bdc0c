// Package crash names the places where a test kills or freezes the process, between any two steps
// that must survive it.
//
// A test sets PAWL_CRASH=name, or PAWL_CRASH=name:3 for the third time that the point is passed, in
// the environment of a process that it starts. The process then dies by SIGKILL: nothing is flushed
// and nothing deferred runs. With "freeze name" it is stopped there by SIGSTOP, and goes on when
// somebody sends SIGCONT. Without the variable [At] costs the load of a pointer.
package crash

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Variable is the environment variable that names the point to die at.
const Variable = "PAWL_CRASH"

// points is the table of all points, sorted. Each comment says what has been done when the point is
// reached.
var points = []string{
	"archive.announced", // a marker says that copies will be made
	"archive.cleaned",   // the job's folder is removed; the job has not ended yet
	"archive.committed", // the manifest is durable
	"archive.completed", // the manifest lies with the copies; nothing of that is in the database yet
	"archive.copied",    // a file is copied under the epoch's name
	"archive.forgotten", // what the runner kept is removed; the job's folder is still there
	"archive.heard",     // the events are written that the program has printed; its checkpoint is not recorded
	"archive.linked",    // a file has its name
	"archive.listed",    // the manifest has its name; the copies are still there
	"archive.marked",    // the job has its mark; what the runner kept is still there
	"archive.published", // the files have their names, and nothing else is left in the archive
	"archive.renamed",   // the folder of the copies has its name in the archive
	// the folder that the user named for the archive can be written; what was made there to see it
	// is still there
	"archive.tried",
	"archive.uploaded", // the files are copied under the epoch's name

	"launch.armed",   // launch.<n> holds the launcher's token; no process yet
	"launch.armfile", // script and arm file are written; launch.<n> is not touched
	"launch.linked",  // launch.<n> holds the token of each of some launches, not yet durably; no process yet
	"launch.readied", // script and arm file of each of some launches are written; launch.<n> is not touched
	"launch.started", // the wrapper is forked
	"settle.linked",  // the settler's token is at launch.<n>, or found to be too late
	"settle.revoked", // the outcome of the launch is decided; nobody was told

	"slurm.armed",     // launch.<n> holds the launcher's token; sbatch was not called
	"slurm.armfile",   // the scripts and the arm file are written; launch.<n> is not touched
	"slurm.revoked",   // the outcome of the launch is decided; nobody was told
	"slurm.settled",   // the settler's token is at launch.<n>, or found to be too late
	"slurm.submitted", // sbatch has answered; nobody was told

	"stage.copied", // an input is copied
	"stage.filled", // the job's folder is made, with all inputs, and with what was staged written down
	"stage.folder", // the job's folder is made
	"stage.listed", // what was staged is written down, beside the resolved spec
	"stage.script", // the script is in the job's folder

	// Before an operation of the store, and after it: it is durable and nobody was told. Only
	// processes that have package crashstore around their store pass these, and pawl is none.
	"store.apply.after", "store.apply.before",
	"store.begin.after", "store.begin.before",
	"store.claim.after", "store.claim.before",
	"store.clear.after", "store.clear.before",
	"store.due.after", "store.due.before",
	"store.end.after", "store.end.before",
	"store.expire.after", "store.expire.before",
	"store.held.after", "store.held.before",
	"store.pay.after", "store.pay.before",
	"store.recount.after", "store.recount.before",
	"store.renew.after", "store.renew.before",
	"store.steer.after", "store.steer.before",
	"store.submit.after", "store.submit.before",
	"store.tested.after", "store.tested.before",
	"store.watched.after", "store.watched.before",
	"store.wish.after", "store.wish.before",

	"submit.intent",   // the launch intent is durable; the host is not touched
	"submit.launched", // the program was started; the row does not say so
	"watch.applied",   // ends are durable; their messages are still in the spool
	"watch.discarded", // the message of an end is removed
	"watch.killed",    // nothing of a program runs any more, by a wish or for its time; the job has not ended yet
	"watch.overtime",  // it is recorded that a program has run too long; it still runs
	"watch.resumed",   // a program goes on; its row says that it is suspended
	"watch.suspended", // a program is suspended; its row says that it is to be
}

// Points returns the names of all points, sorted.
func Points() []string { return slices.Clone(points) }

// Some points are passed only where a call to the machine of the programs costs nothing, and others
// only where it costs a round trip.
var (
	nearOnly = []string{"archive.forgotten", "launch.armed", "launch.armfile", "stage.copied", "stage.listed"}
	farOnly  = []string{"launch.linked", "launch.readied", "stage.filled"}
	// and these only where a scheduler begins the programs
	slurmOnly = []string{"slurm.armed", "slurm.armfile", "slurm.revoked", "slurm.settled", "slurm.submitted"}
	// and these never there: it launches, and keeps the time
	notSlurm = []string{
		"launch.armed", "launch.armfile", "launch.started", "settle.linked", "settle.revoked", "watch.overtime",
	}
)

// Near returns the names of the points that are passed by jobs whose programs run on this machine,
// sorted.
func Near() []string { return without(slices.Concat(farOnly, slurmOnly)) }

// Far returns the names of the points that are passed by jobs with a few small inputs whose
// programs run on another machine, sorted.
func Far() []string { return without(slices.Concat(nearOnly, slurmOnly)) }

// Slurm returns the names of the points that are passed by jobs whose programs Slurm begins on this
// machine, sorted.
func Slurm() []string { return without(slices.Concat(farOnly, notSlurm)) }

func without(others []string) []string {
	return slices.DeleteFunc(Points(), func(p string) bool { return slices.Contains(others, p) })
}

// At dies by SIGKILL, or freezes, if the environment says so. If PAWL_CRASH is set it panics on a
// name that is not in the table: on its own, or on that which the variable has.
func At(name string) {
	s := chosen()
	if s == nil {
		return
	}
	if !slices.Contains(points, name) {
		panic(fmt.Sprintf("crash: %q is not in the table of points", name))
	}
	if s.name == name && s.left.Add(-1) == 0 {
		if s.freeze {
			Freeze()
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // cannot fail
		// the signal may take a moment; nothing more is done by this goroutine
		select {}
	}
}

// Freeze stops this process, all of it, and returns when it goes on by SIGCONT.
func Freeze() {
	woken := make(chan os.Signal, 1) // the caller might go on for a moment before the process stands still
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail
	<-woken
}

// Chosen returns the name of the point to die or freeze at; "" if there is none.
func Chosen() string {
	if s := chosen(); s != nil {
		return s.name
	}
	return ""
}

type spot struct {
	name   string
	freeze bool
	left   atomic.Int64 // passes until then
}

var chosen = sync.OnceValue(func() *spot {
	s, err := parse(os.Getenv(Variable))
	if err != nil {
		panic(err)
	}
	return s
})

// parse reads "name" or "name:count", with "freeze " before it or not; nil for "".
func parse(v string) (*spot, error) {
	if v == "" {
		return nil, nil
	}
	point, freeze := strings.CutPrefix(v, "freeze ")
	name, count, counted := strings.Cut(point, ":")
	n := 1
	if counted {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			return nil, fmt.Errorf("PAWL_CRASH=%s: want a count of 1 or more after the colon", v)
		}
	}
	if !slices.Contains(points, name) {
		return nil, fmt.Errorf("PAWL_CRASH=%s: no such point; the points are %s", v, strings.Join(points, ", "))
	}
	s := &spot{name: name, freeze: freeze}
	s.left.Store(int64(n))
	return s, nil
}
