package remote

import (
	"os"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// Two machines have the keys of a system. A job that has files on a machine of the service belongs
// to that machine, and the other one says so. A job that has none is run by either.
func TestEverywhere(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dsn := testenv.Postgres(t).Database(t)
	shared := func(o *node.Options) { o.DB, o.Migrate = node.DatabaseConfig{DSN: dsn}, true }
	one := open(t, shared)
	one.system("lab", s, s.Port)
	two := open(t, shared)

	ids := one.submit(one.program("lab", ""), one.program("lab", ""), one.program("lab", ""))
	one.finished(ids...)
	for _, id := range ids {
		j, err := one.Job(t.Context(), id)
		if err != nil || j.Machine != one.machine() {
			t.Fatalf("machine %q, want %q; %v", j.Machine, one.machine(), err)
		}
		if _, results := app.Places(&j); !strings.HasPrefix(results, one.dir) {
			t.Errorf("the results are in %s", results)
		}
	}
	_, err := two.Output(t.Context(), ids[0])
	if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), one.machine()) {
		t.Errorf("output of the other machine: %v", err)
	}
	errs, err := two.Delete(t.Context(), ids[0])
	if err != nil || job.KindOf(errs[0]) != job.Unavailable {
		t.Errorf("delete on the other machine: %v, %v", errs, err)
	}
	j, err := one.Job(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	_, results := app.Places(&j)
	if errs, err := one.Delete(t.Context(), ids[0]); err != nil || errs[0] != nil {
		t.Errorf("delete: %v, %v", errs, err)
	}
	if _, err := os.Stat(results); err == nil {
		t.Errorf("%s is left", results)
	}

	free := one.program("lab", "")
	free.Script, free.Inputs, free.Archive = "echo here > result", nil, &job.Archive{On: job.ArchiveNever}
	one.stop()
	id := two.submit(free)[0]
	if j, err := two.Wait(t.Context(), id); err != nil || j.State != job.Finished || j.Machine != "" {
		t.Errorf("a job without files here: %s on machine %q: %s, %v", j.State, j.Machine, j.Message, err)
	}
	if got, err := two.output(id, "result"); err != nil || got != "here\n" {
		t.Errorf("its result is %q, %v", got, err)
	}
}
