package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
)

// sample looks at what must hold at every moment, again and again.
func (s *storm) sample(ctx context.Context) {
	for pause(ctx, time.Second) {
		s.attempts()
		s.places(ctx)
	}
}

// attempts: of no job two attempts run at the same time.
func (s *storm) attempts() {
	running := map[string][]string{}
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte(s.dir+"/")) || !alive(filepath.Dir(name)) {
			continue
		}
		id, attempt := variable(env, "PAWL_JOB_ID"), variable(env, "PAWL_ATTEMPT")
		if id != "" && attempt != "" && !slices.Contains(running[id], attempt) {
			running[id] = append(running[id], attempt)
		}
	}
	for text, attempts := range running {
		if len(attempts) > 1 {
			s.breaks("side_by_side: attempts %v of job %s run at the same time", attempts, text)
			if id, err := job.ParseID(text); err == nil {
				s.tell(id)
			}
		}
	}
}

func variable(env []byte, name string) string {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if value, found := bytes.CutPrefix(v, []byte(name+"=")); found {
			return string(value)
		}
	}
	return ""
}

// places: every job is where a job can be.
func (s *storm) places(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	db, err := s.query()
	if err != nil {
		return
	}
	defer db.Close()
	table := "jobs WHERE hidden < 2" // the other keeps the number of the newest job, which was deleted
	if s.server != nil {
		table = "pawl.jobs"
	}
	// An error is the database's, which is down perhaps.
	found, _ := checks.Column(ctx, db, "SELECT DISTINCT state || ' ' || custody FROM "+table)
	for _, f := range found {
		state, custody, _ := bytes.Cut([]byte(f), []byte(" "))
		p := job.Place{State: job.State(state), Custody: job.Custody(custody)}
		if !p.Legal() {
			s.breaks("place: a job is %s", p)
		}
	}
}
