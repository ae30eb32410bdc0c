package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// steps are those of the check of a system, by their states, and what it says of one of them.
func (w *world) steps(name, of string) (states map[string][]string, is job.CheckStep) {
	w.t.Helper()
	c, err := w.CheckSystem(w.t.Context(), name)
	if err != nil || c.Works {
		w.t.Errorf("%s works: %t, %v", name, c.Works, err)
	}
	states = map[string][]string{}
	for _, step := range c.Steps {
		states[step.State] = append(states[step.State], step.Step)
		if step.Step == of {
			is = step
		}
	}
	return states, is
}

// The check of a system says which step fails, what it saw, and what to do. The steps that need
// that one are skipped.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	asRoot, pid := suid(t, s), filepath.Join(w.dir, "root")
	t.Cleanup(func() { end(t, pid) })
	late := testenv.NewProxy(t, s.Addr())
	late.Delay(20 * time.Millisecond) // what is to be seen there has happened when it is looked for
	for name, tt := range map[string]struct {
		port                        int
		profile, step, says, advice string
	}{
		"ended": { // somebody ends what an account leaves running
			late.Port, `"$@" & until [ -e begun ]; do :; done; kill -9 $! $PPID $$`,
			job.CheckAlive, "it is lost", "look what ends programs of the account",
		},
		"stays": { // a program has become root, as by sudo
			s.Port, asRoot + " sh -c 'echo $$ >" + pid + "; exec sleep 1000' &",
			job.CheckEnd, "user root), which this account may not signal", "end it on the host",
		},
		"untold": { // somebody removes where ends are told
			s.Port, "rm -rf ../ends",
			job.CheckTold, "cannot be watched, or is gone", "look at the file system of the work folder",
		},
		"left": { // files belong to another account, as those of a container
			s.Port, asRoot + " sh -c 'mkdir kept; : >kept/file'",
			job.CheckClean, "/job/kept/file cannot be removed: ", "remove " + w.work("left", s) + "/check/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.document(strings.Replace(w.text(name, s, tt.port), `"host"`,
				fmt.Sprintf(`"profile": %q, "host"`, tt.profile), 1))
			states, is := w.steps(name, tt.step)
			at := slices.Index(job.CheckSteps, tt.step)
			for state, want := range map[string][]string{
				job.CheckOK: job.CheckSteps[:at], job.CheckFailed: {tt.step}, job.CheckSkipped: job.CheckSteps[at+1:],
			} {
				if !slices.Equal(states[state], want) {
					t.Errorf("%s: %q, want %q", state, states[state], want)
				}
			}
			if !strings.Contains(is.Seen, tt.says) || !strings.HasPrefix(is.Advice, tt.advice) {
				t.Errorf("%+v", is)
			}
		})
	}
}

// The clock of a machine is wrong. All steps are tried.
func TestCheckClock(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	library := testenv.Faketime(t)
	w := open(t)
	for name, wrong := range map[string]string{"behind": "-2h", "ahead": "+2h"} {
		s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{
			"ForceCommand export LD_PRELOAD=" + library + " FAKETIME=" + wrong + ` FAKETIME_DONT_FAKE_MONOTONIC=1; ` +
				`eval "$SSH_ORIGINAL_COMMAND"`,
		}})
		w.system(name, s, s.Port)
		states, is := w.steps(name, job.CheckClock)
		rest := slices.DeleteFunc(slices.Clone(job.CheckSteps), func(step string) bool { return step == job.CheckClock })
		if !slices.Equal(states[job.CheckFailed], []string{job.CheckClock}) || !slices.Equal(states[job.CheckOK], rest) {
			t.Errorf("%q", states)
		}
		hours, said, _ := strings.Cut(strings.TrimPrefix(is.Seen, "it is "), "m")
		if hours != "2h0" && hours != "1h59" || !strings.HasSuffix(said, "s "+name) ||
			!strings.HasPrefix(is.Advice, "set the clock there by NTP") {
			t.Errorf("%+v", is)
		}
	}
}

// end ends the process whose number is in a file, if it is there.
func end(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}

// suid returns the words of a command that becomes root before it runs another one.
func suid(t *testing.T, s *testenv.SSH) string {
	t.Helper()
	testenv.Need(t, "setpriv", "util-linux")
	at, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(mount(t, s, "suid", "size=8m"), "setpriv")
	program, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(own, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	return own + " --reuid=0 --regid=0 --clear-groups"
}
