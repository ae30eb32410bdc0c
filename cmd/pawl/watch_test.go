package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestTerminalWatch(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.many(3)
	r := p.run(100, 24, "--jobs=3", "jobs.yaml")
	r.sees(`^3 jobs: 3 RUNNING`)
	w := p.start(100, 24, "watch", "--until-ended")
	got := w.sees(`\AID +NAME +STATE +IN STATE +ELAPSED`, `^[0-9a-f]{8}  sim-1 +RUNNING`, `^[0-9a-f]{8}  sim-3 +RUNNING`, `^3 jobs: 3 RUNNING`)
	for i := range 3 {
		once(t, got, fmt.Sprintf("sim-%d ", i+1))
	}
	interrupted := p.start(100, 24, "watch", "--filter", "name=sim-2")
	interrupted.sees(`\Asim-2  `+idExpr, `^RUNNING  `)
	interrupted.types(ctrlC)
	once(t, interrupted.ends(exitOK), "sim-2 ")
	p.letGo()
	once(t, w.ends(exitOK), "3 jobs: 3 FINISHED")
	r.ends(exitOK)
}

func TestTerminalDelete(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: done\ncommand: ['true']\n")
	p.pawl("run", "job.yaml")
	s := p.start(200, 24, "delete", "job", "--filter", "name=done")
	s.sees(`delete 1 job in folder .*(?s:.*)\? y or n: *\z`)
	s.types("n\n")
	once(t, s.ends(exitLeft), "nothing was done")
	s = p.start(200, 24, "delete", "job", "--filter", "name=done")
	s.sees(`y or n: *\z`)
	s.types("y\n")
	once(t, s.ends(exitOK), "delete: done with 1 of 1 job")
	if left := p.pawl("list", "-o", "name"); left != "" {
		t.Errorf("%q is left", left)
	}
}

func TestLasting(t *testing.T) {
	f := job.Unended().And("name", job.Like, "a*").And("label.x", job.Is, "1").And("kind", job.Is, "app").And("code", job.IsNot, "X")
	if got := lasting(f).String(); got != "name~a* kind=app" {
		t.Errorf("%s", got)
	}
}

func TestAnnotation(t *testing.T) {
	x, none := "x=1", ""
	for _, tt := range []struct {
		args    []string
		notes   string
		replace bool
		want    job.Annotation
		wrong   string
	}{
		{args: []string{"a=x=1", "b=", "c-", "d-e-"}, want: job.Annotation{Labels: map[string]*string{"a": &x, "b": &none, "c": nil, "d-e": nil}}},
		{notes: `{"a":1}`, want: job.Annotation{Notes: []byte(`{"a":1}`)}},
		{notes: `{`, wrong: "--notes is not JSON"},
		{wrong: "nothing is to be changed"},
		{args: []string{"a"}, wrong: "a is not a label: give key=value"},
		{args: []string{"=1"}, wrong: "is not a label"},
		{args: []string{"-"}, wrong: "is not a label"},
		{args: []string{"a-"}, replace: true, wrong: "--replace removes all that are not given"},
	} {
		got, err := annotation(tt.args, tt.notes, tt.replace)
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%q: %v", tt.args, err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", tt.args, err, diff)
		}
	}
}
