package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// mostStories is of how many jobs the stories are told.
const mostStories = 10

// tell prints all that is known of a job: its row, its history, what people and the job itself
// noted, and the lines that processes wrote about it.
func (s *storm) tell(id job.ID) {
	s.mu.Lock()
	s.said["told "+id.String()]++
	s.said["stories"]++
	again := s.said["told "+id.String()] > 1 || s.said["stories"] > mostStories
	s.mu.Unlock()
	if again {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the story of job %s\n", id)
	if err := s.row(&b, id); err != nil {
		fmt.Fprintf(&b, "    %v\n", err)
	}
	for _, name := range append([]string{filepath.Join(s.dir, "clients.ledger"), s.jobsLedger()}, s.logs()...) {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(id.String())) {
				fmt.Fprintf(&b, "    %s: %s\n", filepath.Base(name), bytes.TrimSpace(line))
			}
		}
	}
	s.printf("%s", b.String())
}

func (s *storm) row(b *strings.Builder, id job.ID) error {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	st, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	j, err := store.FindJob(ctx, st, tenant, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "    %s %s, epoch %d, n %d, attempt %d, launch %d (live %t), session %s, machine %s, wish %q, %s %s\n",
		j.Name, j.Place, j.Epoch, j.N, j.Attempt, j.Launch, j.Live, j.Session, j.Machine, j.Wish, j.Code, j.Message)
	page, err := st.Events(ctx, store.EventQuery{Tenant: tenant, Job: id, Limit: 1000})
	for _, e := range page.Events {
		fmt.Fprintf(b, "    %s %d.%d from epoch %d: %s %s by %s %s %s %s %s\n",
			e.At.Format("15:04:05.000000"), e.N, e.Sub, e.Epoch, e.State, e.Custody, e.Cause, e.Actor, e.Code, e.Message, e.Data)
	}
	return err
}

// logs returns what all processes wrote.
func (s *storm) logs() []string {
	names, _ := filepath.Glob(filepath.Join(s.dir, "said.*"))
	slices.SortFunc(names, func(a, b string) int {
		x, errX := os.Stat(a)
		y, errY := os.Stat(b)
		if errX != nil || errY != nil {
			return 0
		}
		return x.ModTime().Compare(y.ModTime())
	})
	return names
}
