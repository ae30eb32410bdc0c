package runnertest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

func probe(t *testing.T, b Bench) {
	k, p := b.newJob(t, "exit 3")
	ended, _ := b.run(t, k, p)
	b.settled(t, ended)
	k, p = b.newJob(t, "exec sleep 1000")
	active := b.launch(t, k, p)
	k, p = b.newJob(t, "kill -9 0")
	lost := b.launch(t, k, p)
	b.dead(t, lost)
	elsewhere := active
	elsewhere.Host = "another"

	var hs []runner.Handle
	var want []runner.State
	for range 20 {
		hs = append(hs, ended, active, lost, elsewhere)
		want = append(want, runner.Ended, runner.Active, runner.Lost, runner.Unknown)
	}
	all, err := b.Runner.Probe(t.Context(), hs)
	must(t, err)
	var got []runner.State
	for _, s := range all {
		got = append(got, s.State)
		if (s.End != nil) != (s.State == runner.Ended) || s.End != nil && s.End.Code != 3 {
			t.Errorf("status %+v", s)
		}
		if ran := time.Since(s.Started); s.State == runner.Active && (ran < 0 || ran > time.Hour) {
			t.Errorf("it has run for %s", ran)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Probe (-want +got):\n%s", diff)
	}
	if all, err := b.Runner.Probe(t.Context(), nil); err != nil || len(all) != 0 {
		t.Errorf("Probe of none: %v, %v", all, err)
	}
}

// acknowledged: an end is told by each watch, and from its beginning, until it is acknowledged.
func acknowledged(t *testing.T, b Bench) {
	if w := b.hear(t); true {
		if w.next(t); len(w.heard) > 0 {
			t.Errorf("before any launch: %+v", w.heard)
		}
		w.stop()
	}
	var keys []runner.Key
	var names []string
	var handles []runner.Handle
	w := b.hear(t)
	for code := range 3 {
		k, p := b.newJob(t, fmt.Sprint("exit ", code))
		handles, keys = append(handles, b.launch(t, k, p)), append(keys, k)
	}
	for code, k := range keys {
		if e := w.end(t, k); e.Code != code || e.Token != handles[code].Token {
			t.Errorf("%+v", e)
		}
		names = append(names, w.heard[k].Name)
	}
	w.stop()
	for left := range 3 { // so many are acknowledged by now
		w := b.hear(t)
		w.next(t)
		for i, k := range keys {
			if _, told := w.heard[k]; told != (i >= left) || b.told(t, k) != told {
				t.Errorf("with %d acknowledged, end %d is told: %t", left, i, told)
			}
		}
		done := names[:left+1]
		if left == 1 {
			done = names
		}
		for range 2 {
			must(t, b.Runner.Acknowledge(t.Context(), done))
		}
		if left == 1 {
			break
		}
	}
	w = b.hear(t)
	if w.next(t); len(w.heard) > 0 {
		t.Errorf("all are acknowledged, and told: %+v", w.heard)
	}
	for code, h := range handles {
		all, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
		must(t, err)
		if all[0].State != runner.Ended || all[0].End.Code != code {
			t.Errorf("after its acknowledgement: %+v", all[0])
		}
	}
	must(t, b.Runner.Acknowledge(t.Context(), nil))
	if err := b.Runner.Acknowledge(t.Context(), []string{"../x"}); job.KindOf(err) != job.Invalid {
		t.Errorf("a name of no end: %v", err)
	}
}

func away(t *testing.T, b Bench) {
	k, p := b.newJob(t, "exit 3")
	ended, _ := b.run(t, k, p)
	b.settled(t, ended)
	k, p = b.newJob(t, "kill -9 0")
	lost := b.launch(t, k, p)
	b.dead(t, lost)
	// What tells of a launch is in the spool, which may be on a file system that is not mounted.
	for _, c := range []struct {
		dir         string
		lost, ended runner.State
	}{
		{path.Dir(p.Dir), runner.Lost, runner.Ended},
		{p.Dir, runner.Lost, runner.Ended},
		{path.Join(p.Dir, runner.Folder), runner.Lost, runner.Ended},
		{b.Spool, runner.Unknown, runner.Unknown},
	} {
		must(t, b.Host.Files().Rename(t.Context(), c.dir, c.dir+".away"))
		if s := b.state(t, lost); s != c.lost {
			t.Errorf("without %s what is lost is %s, want %s", c.dir, s, c.lost)
		}
		if s := b.state(t, ended); s != c.ended {
			t.Errorf("without %s what ended is %s, want %s", c.dir, s, c.ended)
		}
		must(t, b.Host.Files().Rename(t.Context(), c.dir+".away", c.dir))
		if s := b.state(t, lost); s != runner.Lost {
			t.Errorf("with %s it is %s", c.dir, s)
		}
	}
	hosttest.Until(t, "an answer from before is forgotten", func() bool {
		return b.Runner.Kill(t.Context(), lost, 0) == nil
	})
}

func clean(t *testing.T, b Bench) {
	k, p := b.newJob(t, "touch result")
	h, _ := b.run(t, k, p)
	b.settled(t, h)
	for range 2 {
		must(t, b.Runner.Clean(t.Context(), k, p.Dir))
		if b.exists(t, path.Join(p.Dir, runner.Folder)) || b.told(t, k) {
			t.Error("something is left")
		}
		if !b.exists(t, p.Dir+"/result") {
			t.Error("the program's own file is gone")
		}
	}
	k.Launch++
	if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrRan) {
		t.Errorf("launched in a cleaned folder: %v", err)
	}
}

func noFolder(t *testing.T, b Bench) {
	k, p := b.newJob(t, "true")
	must(t, b.Host.Files().Remove(t.Context(), p.Dir))
	_, launchErr := b.Runner.Launch(t.Context(), k, p)
	_, settleErr := b.Runner.Settle(t.Context(), k, p.Dir)
	for what, err := range map[string]error{"Launch": launchErr, "Settle": settleErr} {
		if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), k.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b.exists(t, p.Dir) {
		t.Error("the folder was made")
	}
}

func invalid(t *testing.T, b Bench) {
	k, good := b.newJob(t, "true")
	fault := func(edit func(*runner.Plan)) runner.Plan {
		p := good
		p.Env = maps.Clone(p.Env)
		edit(&p)
		return p
	}
	for name, p := range map[string]runner.Plan{
		"no program":          fault(func(p *runner.Plan) { p.Argv = nil }),
		"an empty program":    fault(func(p *runner.Plan) { p.Argv = []string{""} }),
		"a NUL":               fault(func(p *runner.Plan) { p.Argv = []string{"true", "a\x00b"} }),
		"a NUL in a value":    fault(func(p *runner.Plan) { p.Env = map[string]string{"A": "\x00"} }),
		"a variable's name":   fault(func(p *runner.Plan) { p.Env = map[string]string{"A;id": "1"} }),
		"an empty name":       fault(func(p *runner.Plan) { p.Env = map[string]string{"": "1"} }),
		"a relative folder":   fault(func(p *runner.Plan) { p.Dir = "x" }),
		"no stdout":           fault(func(p *runner.Plan) { p.Stdout = "" }),
		"no stderr":           fault(func(p *runner.Plan) { p.Stderr = "" }),
		"a NUL in the stdout": fault(func(p *runner.Plan) { p.Stdout = "\x00" }),
	} {
		if _, err := b.Runner.Launch(t.Context(), k, p); job.KindOf(err) != job.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []runner.Key{
		{},
		{Job: k.Job, Attempt: 1},
		{Job: k.Job, Launch: 1},
		{Attempt: 1, Launch: 1},
		{Job: k.Job, Attempt: -1, Launch: 1},
	} {
		_, launch := b.Runner.Launch(t.Context(), bad, good)
		_, settle := b.Runner.Settle(t.Context(), bad, good.Dir)
		for call, err := range map[string]error{
			"Launch": launch, "Settle": settle,
			"Clean": b.Runner.Clean(t.Context(), bad, good.Dir),
		} {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%s of %+v: %v", call, bad, err)
			}
		}
	}
	if err := b.Runner.Kill(t.Context(), runner.Handle{Key: k, Host: "another"},
		0); job.KindOf(err) != job.Invalid {
		t.Errorf("Kill on another host: %v", err)
	}
	infos, err := b.Host.Files().List(t.Context(), path.Join(good.Dir, runner.Folder))
	if err != nil || len(infos) != 0 {
		t.Errorf("something was touched: %v, %v", infos, err)
	}
}
