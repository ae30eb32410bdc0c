// Package runnertest is the test suite that every [runner.Runner] passes. It runs real programs:
// the host must have a POSIX shell.
package runnertest

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Bench is what one test works with.
type Bench struct {
	Runner runner.Runner
	Host   host.Host // where its programs run
	Work   string    // an empty folder on the host for job folders
	Spool  string    // a folder on the host in which the runner keeps what it knows of launches
	// Lives reports whether anything of a launch is alive, as its host tells. What asks to be kept
	// does not count.
	Lives func(t *testing.T, h runner.Handle) bool
	// Rounds is how often what depends on the order of events is tried; 200 by default.
	Rounds int
}

// Run tests a runner. For each test, open sets up a bench, and registers the clean-up with
// t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	tests := map[string]func(*testing.T, Bench){
		"a program runs and its end is told":               runs,
		"exit codes":                                       codes,
		"what cannot be started says so":                   cannotStart,
		"the codes of what did start are its own":          didStart,
		"what a program had used":                          usage,
		"texts arrive intact":                              intact,
		"one file for both outputs":                        oneOutput,
		"a key is launched once":                           once,
		"concurrent launches of a key":                     onceConcurrently,
		"a revoked launch never starts":                    revoked,
		"a started launch is never revoked":                started,
		"settlers against a launch":                        settlers,
		"attempts share a folder":                          attempts,
		"kill asks first":                                  killAsks,
		"kill forces what does not listen":                 killForces,
		"kill forces what is in another session":           killForcesDaemons,
		"kill ends what the program left behind":           killLeftBehind,
		"a kill that is given up says so":                  killGivenUp,
		"a kill is told":                                   killIsTold,
		"what went to another session is ended":            daemonsEnd,
		"it is found by what Settle says":                  daemonsAreSettled,
		"what asks to be kept":                             keep,
		"a program that signals its group":                 ownGroup,
		"a program that spoils its folder":                 folders,
		"logs are appended to":                             logs,
		"outputs that cannot be opened":                    noOutputs,
		"codes that are no signals":                        noSignals,
		"suspend and resume":                               suspend,
		"many are probed in order":                         probe,
		"ends are told until they are acknowledged":        acknowledged,
		"without its folders a launch is lost, or unknown": away,
		"clean": clean,
		"a cleaned job is remembered, and not launched": remembered,
		"one that left no exit code is remembered":      rememberedKilled,
		"one that was never started is not":             notRemembered,
		"what is known beyond a launch":                 beyond,
		"nothing without a folder":                      noFolder,
		"what is invalid":                               invalid,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// newJob makes the folder of a fresh job and a plan for a shell script in it.
func (b Bench) newJob(t *testing.T, script string, args ...string) (runner.Key, runner.Plan) {
	t.Helper()
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
	dir := path.Join(b.Work, k.Job.String())
	must(t, b.Host.Files().Mkdir(t.Context(), path.Join(dir, runner.Folder)))
	return k, runner.Plan{
		Dir: dir, Argv: append([]string{"sh", "-c", script, "sh"}, args...), Stdout: "stdout",
		Stderr: "stderr",
	}
}

// launch launches and makes sure that nothing is left at the test's end.
func (b Bench) launch(t *testing.T, k runner.Key, p runner.Plan) runner.Handle {
	t.Helper()
	h, err := b.Runner.Launch(t.Context(), k, p)
	must(t, err)
	t.Cleanup(func() { b.kill(t, h) })
	return h
}

func (b Bench) kill(t *testing.T, h runner.Handle) {
	t.Helper()
	must(t, b.Runner.Kill(context.WithoutCancel(t.Context()), h, 0))
}

// watch watches a folder and returns a function that waits for a name in it.
func (b Bench) watch(t *testing.T, dir string) func(name string) {
	t.Helper()
	events, err := b.Host.Watch(t.Context(), dir)
	must(t, err)
	seen := map[string]bool{}
	return func(name string) {
		t.Helper()
		for !seen[name] {
			e, ok := <-events
			if !ok || e.Overflow {
				t.Fatalf("the watch of %s broke: %+v", dir, e)
			}
			seen[e.Name] = true
		}
	}
}

// run launches, waits for the end and returns it.
func (b Bench) run(t *testing.T, k runner.Key, p runner.Plan) (runner.Handle, runner.End) {
	t.Helper()
	w := b.hear(t)
	defer w.stop()
	h := b.launch(t, k, p)
	return h, w.end(t, k)
}

// end returns the end of a launch, as a new watch tells it.
func (b Bench) end(t *testing.T, k runner.Key) runner.End {
	t.Helper()
	w := b.hear(t)
	defer w.stop()
	return w.end(t, k)
}

// An ear hears what a runner tells.
type ear struct {
	news  <-chan []runner.Notice
	heard map[runner.Key]runner.Notice // ends
	stop  func()                       // may be called again
}

// hear watches until the test ends, or stop is called.
func (b Bench) hear(t *testing.T) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	news, err := b.Runner.Watch(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	w := &ear{news: news, heard: map[runner.Key]runner.Notice{}}
	w.stop = sync.OnceFunc(func() {
		cancel()
		for range news { // until the runner is done
		}
	})
	t.Cleanup(w.stop)
	return w
}

// next hears one batch.
func (w *ear) next(t *testing.T) {
	t.Helper()
	news, ok := <-w.news
	if !ok {
		t.Fatal("the watch was lost")
	}
	for _, n := range news {
		if n.End != nil {
			w.heard[n.Key] = n
		}
	}
}

// end waits for the end of a launch.
func (w *ear) end(t *testing.T, k runner.Key) runner.End {
	t.Helper()
	for {
		if n, ok := w.heard[k]; ok {
			if n.Name == "" {
				t.Errorf("an end without a name: %+v", n)
			}
			return *n.End
		}
		w.next(t)
	}
}

// told reports whether an end of a launch waits for its acknowledgement.
func (b Bench) told(t *testing.T, k runner.Key) bool {
	t.Helper()
	all, err := b.Runner.Told(t.Context())
	must(t, err)
	return slices.ContainsFunc(all, func(n runner.Notice) bool { return n.Key == k && n.Name != "" })
}

func (b Bench) read(t *testing.T, name string) string {
	t.Helper()
	content, err := files.ReadFile(t.Context(), b.Host.Files(), name, 1<<30)
	must(t, err)
	return string(content)
}

func (b Bench) put(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	must(t, b.Host.Files().Put(t.Context(), name, strings.NewReader(content), files.PutOptions{Mode: mode}))
}

func (b Bench) exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := b.Host.Files().Stat(t.Context(), name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func (b Bench) state(t *testing.T, h runner.Handle) runner.State {
	t.Helper()
	s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	return s[0].State
}

// settled waits until nothing of a launch is under way and returns its state.
func (b Bench) settled(t *testing.T, h runner.Handle) (s runner.State) {
	t.Helper()
	hosttest.Until(t, "the wrapper is gone", func() bool {
		s = b.state(t, h)
		return s != runner.Active && s != runner.Queued
	})
	return s
}

// dead waits until a launch that was killed is lost: not all of it dies at once.
func (b Bench) dead(t *testing.T, h runner.Handle) {
	t.Helper()
	hosttest.Until(t, "nothing of it is alive", func() bool { return b.state(t, h) == runner.Lost })
}

// strange holds text that a careless way through a shell would change.
var strange = []string{
	"", " ", "a b", "it's", `'`, `"quoted"`, "new\nline\n", "\r\n\t", "$HOME", "${HOME}", "`id`", "$(id)", "-n",
	"--", "*", "[a]",
	`back\slash\`, `\'`, "ümläut", "\xff\xfe", ";", "&", "|", ">x", "#", "~", "!", "%s",
	strings.Repeat("long ", 20_000),
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
