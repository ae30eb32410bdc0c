package remote

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
)

// A cause is why a system cannot be used.
type cause struct {
	code job.Code
	says string // words of the message
	// begin makes a system that has the cause. It returns what takes the cause away.
	begin func(name string) (mend func())
}

// Each cause blocks the jobs of a system with its code, in one group. When it is taken away and the
// group is tested, they finish, and each was launched once.
func TestCauses(t *testing.T) {
	t.Parallel()
	w := open(t)
	var changed *testenv.SSH // its document is wrong
	document := func(old, new string) func(string) func() {
		return func(name string) func() {
			text := w.text(name, changed, changed.Port)
			if !strings.Contains(text, old) {
				t.Fatalf("%s has no %s", text, old)
			}
			w.document(strings.Replace(text, old, new, 1))
			return func() { w.document(text) }
		}
	}
	changed = testenv.SSHD(t, testenv.SSHOptions{})
	w.causes([]cause{
		{job.HostUnknown, "no-such-host.invalid", document("127.0.0.1", "no-such-host.invalid")},
		{job.HostKeyUnknown, "none of its host keys is trusted", document(fmt.Sprintf("%q", changed.HostKey), "")},
		{job.ChannelRefused, "grants no session", func(name string) func() {
			file := filepath.Join(w.dir, "sshd_config")
			w.write(file, "MaxSessions 0\n")
			s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"Include " + file}})
			w.system(name, s, s.Port)
			return func() {
				w.write(file, "")
				s.Kill()
				s.Start(t)
			}
		}},
		{job.ShellBroken, "No logins today.", func(name string) func() {
			file := filepath.Join(w.dir, "no-logins")
			w.write(file, "")
			s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{
				"ForceCommand [ ! -e " + file + ` ] || { echo No logins today.; exit 1; }; eval "$SSH_ORIGINAL_COMMAND"`,
			}})
			w.system(name, s, s.Port)
			return func() {
				if err := os.Remove(file); err != nil {
					t.Error(err)
				}
			}
		}},
	})
}

// No packet gets to the machine.
func TestHostUnreachable(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	testenv.Need(t, "ip", "iproute2")
	if os.Getuid() != 0 {
		t.Skip("only root can take a route away")
	}
	at := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	route := func(what string) error {
		out, err := exec.Command("ip", "route", what, "unreachable", at+"/32", "table", "local").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip route %s: %w: %s", what, err, out)
		}
		return nil
	}
	w := open(t)
	s := testenv.SSHD(t, testenv.SSHOptions{Lines: []string{"ListenAddress " + at}})
	if err := route("add"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = route("del") }) // it may be gone
	w.causes([]cause{{job.HostUnreachable, "no route to host", func(name string) func() {
		w.document(strings.Replace(w.text(name, s, s.Port), "127.0.0.1", at, 1))
		return func() {
			if err := route("del"); err != nil {
				t.Error(err)
			}
		}
	}}})
}

// causes runs jobs on systems that have these causes, and then takes the causes away.
func (w *world) causes(all []cause) {
	w.t.Helper()
	w.untested()
	var ids []job.ID
	var mend []func()
	for i, c := range all {
		name := fmt.Sprintf("lab%d", i)
		mend = append(mend, c.begin(name))
		ids = append(ids, w.submit(w.program(name, ""), w.program(name, ""))...)
	}
	var keys []string
	for i, c := range all {
		w.until("it is blocked", ids[2*i], blocked)
		j, err := w.Job(w.t.Context(), ids[2*i])
		if err != nil || j.Code != c.code || !strings.Contains(j.Message, c.says) {
			w.t.Errorf("%s: %s, %v; want %s", j.Code, j.Message, err, c.code)
		}
		var found []service.BlockedGroup
		w.eventually("the group holds up both jobs", func() bool {
			all, err := w.Blocked(w.t.Context())
			found = slices.DeleteFunc(all, func(g service.BlockedGroup) bool { return g.Params["watch"] != j.Watch })
			return err == nil && len(found) > 0 && found[0].Jobs+found[0].Behind == 2
		})
		if g := found[0]; len(found) != 1 || g.Code != c.code || g.Tester != "connection" {
			w.t.Errorf("the groups of %s: %+v", c.code, found)
		}
		keys = append(keys, found[0].Key)
	}
	for _, f := range mend {
		f()
	}
	for _, key := range keys {
		// The watch reaches the system by itself, and then the group is gone.
		if _, err := w.ActOnGroup(w.t.Context(), groups.TryNow, key); err != nil && job.KindOf(err) != job.NotFound {
			w.t.Error(err)
		}
	}
	w.finished(ids...)
	if left, err := w.Blocked(w.t.Context()); err != nil || len(left) > 0 {
		w.t.Errorf("groups are left: %+v, %v", left, err)
	}
}
