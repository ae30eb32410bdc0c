package job_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// block is a disk that is full.
func block() *job.Block {
	return &job.Block{Code: job.FilesystemFull, Message: "full", Tester: "space", Params: map[string]string{"path": "/data", "bytes": "1000"}}
}

func TestBlocking(t *testing.T) {
	t.Parallel()
	if b := job.Blocking(errors.New("something else")); b != nil {
		t.Errorf("an error without a block: %+v", b)
	}
	b := job.Blocking(fmt.Errorf("stage poem.txt: %w", fmt.Errorf("write: %w", block())))
	if b == nil || b.Message != "stage poem.txt: write: full" || b.Tester != "space" {
		t.Errorf("a block on its way up: %+v", b)
	}
}

func TestGroup(t *testing.T) {
	t.Parallel()
	key := block().Group("acme")
	for what, change := range map[string]func(b *job.Block){
		"message":  func(b *job.Block) { b.Message = "also full" },
		"policy":   func(b *job.Block) { b.Policy.MaxWait = 5 },
		"the line": func(b *job.Block) { b.Line = "system/local" },
	} {
		if b := block(); b.Group("acme") != key {
			t.Errorf("%s does not make another group", what)
		} else if change(b); b.Group("acme") != key {
			t.Errorf("another %s makes another group", what)
		}
	}
	seen := map[string]string{key: "itself", block().Group("other"): "tenant"}
	for what, change := range map[string]func(b *job.Block){
		"condition":             func(b *job.Block) { b.Code = job.FilesUnavailable },
		"tester":                func(b *job.Block) { b.Tester = "command" },
		"machine":               func(b *job.Block) { b.Machine = "m1" },
		"parameter":             func(b *job.Block) { b.Params["path"] = "/home" },
		"name of a parameter":   func(b *job.Block) { b.Params["bytes "] = "1000"; delete(b.Params, "bytes") },
		"parameter, left out":   func(b *job.Block) { delete(b.Params, "bytes") },
		"parameter, with empty": func(b *job.Block) { b.Params["bytes"] = "" },
	} {
		b := block()
		change(b)
		if was, taken := seen[b.Group("acme")]; taken {
			t.Errorf("another %s makes the group of %s", what, was)
		}
		seen[b.Group("acme")] = what
	}
	refused := block()
	refused.AnyCode = true
	late := *refused
	late.Code = job.FilesUnavailable
	if was, taken := seen[refused.Group("acme")]; taken {
		t.Errorf("the group of any condition is that of %s", was)
	}
	if late.Group("acme") != refused.Group("acme") || late.Group("acme") == late.Group("other") {
		t.Error("two conditions of the same trouble are two groups, or those of two tenants are one")
	}
	other := block()
	if other.Code, other.Line = job.FilesUnavailable, "x"; other.Probe() != block().Probe() {
		t.Error("one answer is not enough for two conditions of the same tester and parameters")
	}
	if want := "a6977470"; !strings.HasPrefix(key, want) { // rows have it
		t.Errorf("the key begins with %.8s, want %s", key, want)
	}
}

func TestBlockIsChecked(t *testing.T) {
	t.Parallel()
	for want, wrong := range map[string]func(b *job.Block){
		"is no condition that may clear": func(b *job.Block) { b.Code = job.ProgramFailed },
		"a tester with a name":           func(b *job.Block) { b.Tester = "" },
		"is too long":                    func(b *job.Block) { b.Params["path"] = strings.Repeat("x", 2000) },
		"are too many": func(b *job.Block) {
			for i := range 40 {
				b.Params[fmt.Sprint(i)] = ""
			}
		},
		"stages[0].every": func(b *job.Block) { b.Policy.Stages = []job.Stage{{}} },
	} {
		b := block()
		wrong(b)
		c := job.Change{From: job.Guard{Place: at(job.Archiving, job.Worker)}, To: job.Recovery, Path: path(job.Blocked), Set: job.Patch{Resume: job.Archiving, Block: b}}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestReleased(t *testing.T) {
	t.Parallel()
	j := program(at(job.Blocked, job.Recovery))
	j.Resume, j.Group, j.Until, j.Recoveries = job.StagingInputs, "g", noon.Add(time.Hour), 3
	c := job.Released(&j, "the disk has space again", noon)
	after, _ := j.Apply(c, noon)
	if after.Place != at(job.StagingInputs, job.Ready) || after.Recoveries != 4 || after.Group != "" || !after.Until.IsZero() {
		t.Errorf("released: %+v", after)
	}
	j.Recoveries = job.MaxRecoveries
	c = job.Released(&j, "again", noon)
	if after, _ = j.Apply(c, noon); after.State != job.Failed || after.Code != job.RecoveryLimit {
		t.Errorf("released too often: %s %s", after.Place, after.Code)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	j.Resume, j.Live, j.Launch = job.SubmittingJob, true, 1
	if after, _ = j.Apply(job.Released(&j, "again", noon), noon); after.Place != at(job.SubmittingJob, job.Ready) || !after.Live {
		t.Errorf("released too often while something of it may run: %s %s", after.Place, after.Code)
	}
}

func TestLapsed(t *testing.T) {
	t.Parallel()
	for code, want := range map[job.Code]job.Code{
		job.SystemDisabled: job.RecoveryTimeout, job.AuthenticationFailed: job.AuthenticationFailed, job.FirstAuthenticationFailed: job.FirstAuthenticationFailed,
		job.ConnectionTimeout: job.RecoveryTimeout,
	} {
		j := program(at(job.Blocked, job.Recovery))
		j.Group, j.Since, j.Code, j.Message = "g", noon, code, "no"
		c := job.Lapsed(&j, "it was tested once", noon.Add(time.Hour))
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		after, _ := j.Apply(c, noon)
		if message := string(code) + " has not cleared within 1h0m0s: no; it was tested once"; after.Place != at(job.Failed, job.None) || after.Code != want || after.Message != message {
			t.Errorf("%s: %s %s %q", code, after.Place, after.Code, after.Message)
		}
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	j := program(at(job.Blocked, job.Recovery))
	j.Until = noon.Add(time.Hour)
	for _, live := range []bool{false, true, false} {
		if j.Live = live; j.Deadline().IsZero() != live {
			t.Errorf("while it is %t that something of it may run its deadline is %v", live, j.Deadline())
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	s := func(every time.Duration, times int) job.Stage {
		return job.Stage{Every: job.Duration(every), Times: times}
	}
	for _, tt := range []struct {
		name  string
		p     job.Policy
		wait  time.Duration
		every []time.Duration
	}{
		{"so many tests", job.Policy{Stages: []job.Stage{s(time.Minute, 3)}}, 3 * time.Minute, []time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}},
		{"stage by stage", job.Policy{Stages: []job.Stage{s(time.Second, 2), s(time.Minute, 1), s(time.Hour, 1)}}, 2*time.Second + time.Minute + time.Hour, []time.Duration{time.Second, time.Second, time.Minute, time.Hour, time.Hour}},
		{"for ever", job.Policy{Stages: []job.Stage{s(time.Second, 1), s(time.Minute, 0)}}, 0, []time.Duration{time.Second, time.Minute, time.Minute}},
		{"for ever, up to some time", job.Policy{Stages: []job.Stage{s(time.Minute, 0)}, MaxWait: job.Duration(time.Hour)}, time.Hour, []time.Duration{time.Minute}},
		{"stages that end before that", job.Policy{Stages: []job.Stage{s(time.Minute, 2)}, MaxWait: job.Duration(time.Hour)}, 2 * time.Minute, nil},
		{"stages that end after that", job.Policy{Stages: []job.Stage{s(time.Minute, 200)}, MaxWait: job.Duration(time.Hour)}, time.Hour, nil},
		{"a stage of very many tests", job.Policy{Stages: []job.Stage{s(24*time.Hour, 213_504)}}, job.MaxWaited / 213_504 * 213_504, nil},
		{"a stage of as many as there may be", job.Policy{Stages: []job.Stage{s(24*time.Hour, 1_000_000)}}, job.MaxWaited / 1_000_000 * 1_000_000, nil},
		{"more than there is time", job.Policy{Stages: []job.Stage{s(24*time.Hour, 1_000_000), s(24*time.Hour, 1_000_000)}}, job.MaxWaited, nil},
	} {
		if got := tt.p.Wait(); got != tt.wait {
			t.Errorf("%s: a job waits %v, want %v", tt.name, got, tt.wait)
		}
		for n, want := range tt.every {
			if got := tt.p.Every(n); got != want {
				t.Errorf("%s: %v before test %d, want %v", tt.name, got, n, want)
			}
		}
		if err := tt.p.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestPolicyHasItsTests: a job that is blocked as the stages begin sees each of their tests, and no
// more, before its wait is over.
func TestPolicyHasItsTests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, tests := job.Policy{}, 0
		for range rapid.IntRange(1, 5).Draw(t, "stages") {
			s := job.Stage{Every: job.Duration(rapid.Int64Range(int64(job.MinEvery), int64(time.Hour)).Draw(t, "every")), Times: rapid.IntRange(1, 50).Draw(t, "times")}
			p.Stages, tests = append(p.Stages, s), tests+s.Times
		}
		n := 0
		for at := p.Every(0); at <= p.Wait(); at += p.Every(n) {
			n++
		}
		if n != tests {
			t.Fatalf("%d tests within %v of %+v, want %d", n, p.Wait(), p.Stages, tests)
		}
	})
}

func TestPoliciesAreSound(t *testing.T) {
	t.Parallel()
	for _, c := range job.Codes {
		p := job.PolicyOf(c.Code)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", c.Code, err)
		}
		if p.Wait() == 0 || p.Wait() > 7*24*time.Hour {
			t.Errorf("%s: a job waits %v", c.Code, p.Wait())
		}
	}
	for _, c := range []job.Code{ // an outage goes from one to the other
		job.HostUnknown, job.HostUnreachable, job.HostRefused, job.ConnectionTimeout, job.AuthenticationFailed,
		job.HostKeyUnknown, job.HostKeyChanged, job.ChannelRefused, job.ConnectionLost, job.ShellBroken,
	} {
		if p := job.PolicyOf(c); p.Wait() != 7*24*time.Hour {
			t.Errorf("%s: a job waits %v for a host that cannot be reached", c, p.Wait())
		}
	}
	for want, p := range map[string]job.Policy{
		"stages[0].every":       {Stages: []job.Stage{{Every: 1, Times: 1}}},
		"stages[0].times":       {Stages: []job.Stage{{Every: job.Duration(time.Second), Times: -1}}},
		"other stages follow":   {Stages: []job.Stage{{Every: job.Duration(time.Second)}, {Every: job.Duration(time.Second), Times: 1}}},
		"stages (17 stages)":    {Stages: make([]job.Stage, 17)},
		"max_wait (-1ns)":       {MaxWait: -1},
		"give up to 87840h0m0s": {MaxWait: job.Duration(11 * 366 * 24 * time.Hour)},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
