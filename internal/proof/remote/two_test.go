package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// Two systems: one is reached directly, the other through a jump host. Both keys on the way are
// verified. What a job of the first leaves is the input of one of the second.
func TestTwoSystems(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	gate, near := testenv.SSHD(t, testenv.SSHOptions{}), testenv.SSHD(t, testenv.SSHOptions{})
	far := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	key, err := os.ReadFile(far.Key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	gate.Authorize(t, strings.TrimSpace(string(key)))
	w := open(t)
	w.system("near", near, near.Port)
	through := func(gateKey, farKey string) {
		w.document(fmt.Sprintf(`{"name": "far", "work": %q, "host": {"kind": "ssh", "address": "127.0.0.1",
			"port": %d, "user": %q, "identities": [%q], "host_keys": [%q], "keys": "everywhere",
			"jump": [{"address": "127.0.0.1", "port": %d, "user": %q, "host_keys": [%q]}]}}`,
			w.work("far", far), far.Port, far.User, far.Key, farKey, gate.Port, gate.User, gateKey))
	}
	through(gate.HostKey, far.HostKey)
	first, second := w.program("near", ""), w.program("far", "")
	first.Archive.To = filepath.Join(w.dir, "first")
	second.Inputs[0].From = filepath.Join(first.Archive.To, "result")
	for _, spec := range []job.Spec{first, second} {
		w.finished(w.submit(spec)...)
	}
	if n := gate.Connections(); n != 1 {
		t.Errorf("%d connections to the gate, want 1", n)
	}
	for what, keys := range map[string][2]string{
		"the key of the gate": {near.HostKey, far.HostKey}, "the key behind the gate": {gate.HostKey, near.HostKey},
	} {
		through(keys[0], keys[1])
		id := w.submit(w.program("far", ""))[0]
		w.until("it waits for "+what, id, func(j *job.Job) bool { return j.Code == job.HostKeyChanged })
		through(gate.HostKey, far.HostKey)
		w.finished(id)
	}
	// The gate is gone: that is trouble of the system behind it, and of no other.
	gate.Kill()
	id := w.submit(w.program("far", ""))[0]
	w.until("it is blocked", id, blocked)
	w.finished(w.submit(w.program("near", ""))...)
	gate.Start(t)
	w.finished(id)
	w.empty(w.work("far", far))
	w.empty(w.work("near", near))
}

// Two machines work on one database, and the key is on one of them. Only that one claims the jobs
// of the system, and watches it. When it is gone they wait for it.
func TestTwoMachines(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dsn := testenv.Postgres(t).Database(t)
	short := func(o *node.Options) {
		o.DB, o.Migrate = node.DatabaseConfig{DSN: dsn}, true
		o.Options = engine.Options{Lease: 2 * time.Second}
	}
	has, other := open(t, short), open(t, short)
	other.ledger = has.ledger
	other.document(fmt.Sprintf(`{"name": "lab", "work": %q, "host": {"kind": "ssh", "address": "127.0.0.1",
		"port": %d, "user": %q, "identities": [%q], "host_keys": [%q], "from": %q}}`,
		has.work("lab", s), s.Port, s.User, s.Key, s.HostKey, has.machine()))
	goOn := has.dir + "/go"
	var specs []job.Spec
	for range 6 {
		specs = append(specs, has.program("lab", goOn))
	}
	ids := other.submit(specs...) // the other one takes them in, and runs none
	for _, id := range ids {
		has.runs(id)
		if j, err := has.Job(t.Context(), id); err != nil || j.Machine != has.machine() {
			t.Errorf("machine %q, want %q, %v", j.Machine, has.machine(), err)
		}
	}
	has.stop()
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	late := other.submit(other.program("lab", ""))
	other.eventually("people see that its machine is gone", func() bool {
		v, err := other.View(t.Context(), late[0])
		r, err2 := other.View(t.Context(), ids[0])
		return err == nil && err2 == nil && v.MachineGone != nil && r.MachineGone != nil
	})
	if _, err := os.Stat(filepath.Join(other.Dir, "reached")); !os.IsNotExist(err) {
		t.Errorf("the machine without the key has reached a system: %v", err)
	}
	has.start(short)
	has.finished(append(ids, late...)...)
	has.empty(has.work("lab", s))
}
