package cli

import (
	"fmt"
	"testing"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestTerminalWatch(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.many(3)
	r := p.run(100, 24, "--jobs=3", "jobs.yaml")
	r.sees(`^3 jobs: 3 RUNNING`)
	w := p.start(100, 24, "watch", "--until-ended")
	got := w.sees(`\AID +NAME +STATE +IN STATE +ELAPSED`, `^[0-9a-f]{8}  sim-1 +RUNNING`,
		`^[0-9a-f]{8}  sim-3 +RUNNING`, `^3 jobs: 3 RUNNING`)
	for i := range 3 {
		once(t, got, fmt.Sprintf("sim-%d ", i+1))
	}
	interrupted := p.start(100, 24, "watch", "--filter", "name=sim-2")
	interrupted.sees(`\Asim-2  `+idExpr, `^RUNNING  `)
	interrupted.types(ctrlC)
	once(t, interrupted.ends(term.ExitOK), "sim-2 ")
	p.letGo()
	once(t, w.ends(term.ExitOK), "3 jobs: 3 FINISHED")
	r.ends(term.ExitOK)
}

func TestTerminalDelete(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: done\ncommand: ['true']\n")
	p.pawl("run", "job.yaml")
	s := p.start(200, 24, "delete", "job", "--filter", "name=done")
	s.sees(`delete 1 job in folder .*(?s:.*)\? y or n: *\z`)
	s.types("n\n")
	once(t, s.ends(term.ExitLeft), "nothing was done")
	s = p.start(200, 24, "delete", "job", "--filter", "name=done")
	s.sees(`y or n: *\z`)
	s.types("y\n")
	once(t, s.ends(term.ExitOK), "delete: done with 1 of 1 job")
	if left := p.pawl("list", "-o", "name"); left != "" {
		t.Errorf("%q is left", left)
	}
}
