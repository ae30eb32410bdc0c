package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// The server is killed with twenty jobs under way, half of which are being staged. These are one
// group; the others run on, and say since when the system is silent. When the server is back, all
// finish, each launched once.
func TestServerGone(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	goOn := w.dir + "/go"
	var run, stage []job.Spec
	for range 10 {
		run, stage = append(run, w.program("lab", goOn)), append(stage, w.program("lab", ""))
	}
	ran := w.submit(run...)
	for _, id := range ran {
		w.runs(id)
	}
	p.Hold(testenv.Up) // so that none of the others is staged to its end
	staged := w.submit(stage...)
	w.eventually("the others are under way", func() bool {
		n := 0
		for _, id := range staged {
			if j, err := w.Job(t.Context(), id); err == nil && j.Custody == job.Worker {
				n++
			}
		}
		return n >= 8 // as many as are prepared at once
	})
	s.Kill()
	p.Hold()
	for _, id := range ran {
		w.silent(id, "lab")
	}
	v, err := w.View(t.Context(), ran[0])
	if err != nil || v.State != job.Running || !strings.Contains(v.Why, "system lab does not answer since ") {
		t.Errorf("%s: %s, %v", v.State, v.Why, err)
	}
	w.eventually("the others are blocked, or wait", func() bool {
		for _, id := range staged {
			if j, err := w.Job(t.Context(), id); err != nil || j.Custody == job.Worker {
				return false
			}
		}
		return true
	})
	all, err := w.Blocked(t.Context())
	if err != nil || len(all) != 1 || all[0].Tester != "connection" {
		t.Errorf("groups: %+v, %v", all, err)
	}
	if err := os.WriteFile(goOn, nil, 0o644); err != nil { // they end, and nobody can tell of it
		t.Fatal(err)
	}
	s.Start(t)
	w.finished(append(ran, staged...)...)
	w.empty(w.work("lab", s))
	if all, err := w.Blocked(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("groups: %+v, %v", all, err)
	}
}

// A program is suspended once its machine has done it, and goes on once it has done that. What was
// asked for before its machine answers again is told as such.
func TestPauseWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	goOn := w.dir + "/go"
	id := w.submit(w.program("lab", goOn))[0]
	w.runs(id)
	for _, c := range []struct {
		wish         func(context.Context, ...job.ID) ([]store.Wished, error)
		before, then string
	}{
		{
			w.Pause, "^its program (is to be suspended|runs: cannot suspend .*); system lab does not ",
			"^its program is suspended by ",
		},
		{w.Resume, "^its program is suspended.*, and is to go on; system lab does not ", "^its program runs: goes on after "},
	} {
		says := func(what string) {
			w.until(what, id, func(*job.Job) bool {
				v, err := w.View(t.Context(), id)
				return err == nil && regexp.MustCompile(what).MatchString(v.Why)
			})
		}
		s.Kill()
		w.silent(id, "lab")
		if _, err := c.wish(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		says(c.before)
		s.Start(t)
		says(c.then)
	}
	w.write(goOn, "")
	w.finished(id)
}

// A server that grants few sessions, and lets one log in at a time, runs whole jobs side by side.
func TestFewSessions(t *testing.T) {
	t.Parallel()
	for _, sessions := range []int{1, 2} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, testenv.SSHOptions{MaxSessions: sessions, MaxStartups: "1"})
			w := open(t)
			w.system("lab", s, s.Port)
			specs := make([]job.Spec, 8)
			for i := range specs {
				specs[i] = w.program("lab", "")
			}
			ids := w.submit(specs...)
			endless := w.submit(w.program("lab", "/never"))
			w.runs(endless[0])
			if _, err := w.Cancel(t.Context(), endless...); err != nil {
				t.Fatal(err)
			}
			w.finished(ids...)
			if j, err := w.Wait(t.Context(), endless[0]); err != nil || j.State != job.Canceled {
				t.Errorf("%s (%s: %s), %v", j.State, j.Code, j.Message, err)
			}
		})
	}
}

// The server has another key. Its jobs wait until somebody trusts it; what runs, runs on.
func TestKeyReplaced(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	goOn := w.dir + "/go"
	ids := w.submit(w.program("lab", goOn))
	w.runs(ids[0])
	s.ReplaceHostKey(t)
	ids = append(ids, w.submit(w.program("lab", ""))...)
	w.until("the other is blocked", ids[1], func(j *job.Job) bool { return j.Code == job.HostKeyChanged })
	w.silent(ids[0], "lab")
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.system("lab", s, s.Port) // with the new key, as pawl systems trust writes it
	w.finished(ids...)
	w.empty(w.work("lab", s))
}

// The account is refused for a while, as while the folder with its keys is not mounted.
func TestAccountRefused(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	key, err := os.ReadFile(s.Key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	w := open(t)
	w.system("lab", s, s.Port)
	w.finished(w.submit(w.program("lab", ""))...)
	s.Authorize(t)
	s.Cut()
	ids := w.submit(w.program("lab", ""))
	w.until("it is blocked", ids[0], blocked)
	w.eventually("the test says why", func() bool {
		all, err := w.Blocked(t.Context())
		return err == nil && len(all) == 1 && strings.Contains(all[0].Result, "does not let this account in")
	})
	s.Authorize(t, strings.TrimSpace(string(key)))
	w.finished(ids...)
}

// An account that has never let the service in fails jobs soon, also after a restart. One that has
// does not.
func TestFirstLogin(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	key, err := os.ReadFile(s.Key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	s.Authorize(t)
	w := open(t)
	w.system("lab", s, s.Port)
	refused := func(code job.Code) []job.ID {
		t.Helper()
		ids := w.submit(w.program("lab", ""))
		w.until("it is blocked by "+string(code), ids[0], func(j *job.Job) bool { return blocked(j) && j.Code == code })
		return ids
	}
	again := func() {
		t.Helper()
		w.stop()
		w.start()
	}
	ids := refused(job.FirstAuthenticationFailed)
	again()
	if errs, err := w.ActOnJobs(t.Context(), groups.Release, ids...); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	w.until("it is blocked anew", ids[0], func(j *job.Job) bool {
		return blocked(j) && j.Code == job.FirstAuthenticationFailed && j.Recoveries > 0
	})
	s.Authorize(t, strings.TrimSpace(string(key)))
	w.finished(ids...)
	s.Authorize(t)
	again()
	ids = refused(job.AuthenticationFailed)
	s.Authorize(t, strings.TrimSpace(string(key)))
	w.finished(ids...)
}

// An outage goes from one condition to the next. It is one group all the time.
func TestOneGroup(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	key, err := os.ReadFile(s.Key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	w := open(t)
	w.system("lab", s, s.Port)
	w.finished(w.submit(w.program("lab", ""))...)
	w.untested()
	group := ""
	s.Kill()
	ids := w.submit(w.program("lab", ""))
	// Who asks just after a dial that failed is told why that one failed. So the job is released until
	// it has met what there is now.
	is := func(code job.Code) {
		t.Helper()
		w.until("it is blocked by "+string(code), ids[0], func(j *job.Job) bool {
			if blocked(j) && j.Code != code {
				if errs, err := w.ActOnJobs(t.Context(), groups.Release, ids...); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
			}
			return blocked(j) && j.Code == code
		})
		all, err := w.Blocked(t.Context())
		if err != nil || len(all) != 1 || all[0].Code != code || group != "" && all[0].Key != group {
			t.Fatalf("%+v, %v; want group %s", all, err, group)
		}
		group = all[0].Key
	}
	is(job.HostRefused)
	s.ReplaceHostKey(t) // at no moment is there a server that lets the watch in, which would end the group
	is(job.HostKeyChanged)
	s.Authorize(t)
	w.system("lab", s, s.Port)
	is(job.AuthenticationFailed)
	s.Authorize(t, strings.TrimSpace(string(key)))
	if _, err := w.ActOnGroup(t.Context(), groups.TryNow, group); err != nil {
		t.Fatal(err)
	}
	w.finished(ids...)
}

// Results that are here are read also while their system does not answer.
func TestResultsWhileAway(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	id := w.submit(job.Spec{System: "lab", Script: "echo result"})[0]
	w.until("it has ended", id, func(j *job.Job) bool { return j.State == job.Finished })
	read := func() (string, error) { return w.output(id, "stdout") }
	w.stop() // the next process has to ask the system where its folders are
	s.Kill()
	w.start()
	if got, err := read(); got != "result\n" || err != nil {
		t.Errorf("nobody listens there: %q, %v", got, err)
	}
	silent, err := net.Listen("tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if got, err := read(); got != "result\n" || err != nil {
		t.Errorf("nobody answers there: %q, %v", got, err)
	}
}

// Who follows the log of a program reads on when its machine is back.
func TestFollowedLog(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	goOn := w.dir + "/go"
	id := w.submit(job.Spec{
		System: "lab", Script: "echo before; until [ -e " + goOn + " ]; do sleep 0.05; done; echo after",
	})[0]
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	r, err := w.Log(ctx, id, service.LogQuery{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log := bufio.NewReader(r)
	if line, err := log.ReadString('\n'); line != "before\n" {
		t.Fatalf("%q, %v", line, err)
	}
	type rest struct {
		text, want string
		err        error
	}
	all := make(chan rest)
	read := func(r io.Reader, want string) {
		text, err := io.ReadAll(r)
		all <- rest{string(text), want, err}
	}
	go read(log, "after\n")
	s.Kill()
	w.until("its system is silent", id, func(*job.Job) bool {
		v, err := w.View(ctx, id)
		return err == nil && v.SystemSilent != nil
	})
	// One who comes now waits for it.
	late, err := w.Log(ctx, id, service.LogQuery{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	go read(late, "before\nafter\n")
	s.Start(t)
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := <-all; got.text != got.want || got.err != nil {
			t.Errorf("%q, %v; want %q", got.text, got.err, got.want)
		}
	}
}
