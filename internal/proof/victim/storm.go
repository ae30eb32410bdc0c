package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
)

// stormKind adds tasks of the kind "storm" to serve and worker. They append what they do to the
// file that STORM_LEDGER names. With STORM_SWEEP=never nobody sweeps. At the socket that
// STORM_STRANGERS names, people of another tenant are served.
var stormKind = node.More{
	Handle: func(s *service.Service) { service.Handle(s, "storm", stormTask) },
	Change: func(c *service.Config) {
		if os.Getenv("STORM_SWEEP") == "never" {
			c.Sweep = -1
		}
		if at := os.Getenv("STORM_STRANGERS"); at != "" {
			theirs := *c
			theirs.Tenant = "strangers"
			go stormServe(at, api.New(api.Config{Service: service.New(theirs), Log: node.QuietLog}))
		}
	},
}

func stormServe(at string, h http.Handler) {
	l, err := net.Listen("unix", at)
	if err == nil {
		err = http.Serve(l, h)
	}
	fmt.Fprintln(os.Stderr, "storm: strangers:", err)
}

// stormArgs are the arguments of a task.
type stormArgs struct {
	Millis int    `json:"millis"` // how long it takes
	Fails  int    `json:"fails"`  // how many attempts fail
	Deaf   bool   `json:"deaf"`   // it does not look at its context
	Needs  string `json:"needs"`  // the URL of what must be there; empty: nothing
}

// A stormResult says which run of a task its result is of.
type stormResult struct {
	Epoch   int64 `json:"epoch"`
	Attempt int   `json:"attempt"`
}

func stormTask(ctx context.Context, t *service.Task[stormArgs]) (stormResult, error) {
	r := stormResult{t.Job.Epoch, t.Job.Attempt}
	if err := stormNote("task %s %d %d", t.Job.ID, r.Attempt, r.Epoch); err != nil {
		return r, err
	}
	begin := ledger.Now()
	err := stormWork(ctx, t)
	end := ledger.Now()
	noted := stormNote("span %s %d %d %.9f %.9f", t.Job.ID, r.Attempt, r.Epoch, begin.Seconds(), end.Seconds())
	if noted != nil {
		return r, noted
	}
	return r, err
}

func stormWork(ctx context.Context, t *service.Task[stormArgs]) error {
	over := ctx.Done()
	if t.Args.Deaf {
		over = nil
	}
	wait := time.NewTimer(time.Duration(t.Args.Millis) * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return context.Cause(ctx)
	}
	if t.Args.Needs != "" && !stormThere(t.Args.Needs) {
		return service.Block("what it needs is away", recovery.HTTP, map[string]string{"url": t.Args.Needs})
	}
	if t.Job.Attempt <= t.Args.Fails {
		return fmt.Errorf("attempt %d fails on purpose", t.Job.Attempt)
	}
	return nil
}

// stormThere reports whether what is at a URL answers as it should.
func stormThere(url string) bool {
	c := http.Client{Timeout: 5 * time.Second}
	r, err := c.Get(url)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// stormNote appends a line to the ledger.
func stormNote(format string, args ...any) error {
	if err := ledger.Note(os.Getenv("STORM_LEDGER"), format, args...); err != nil {
		return service.Permanent(fmt.Errorf("ledger: %w", err))
	}
	return nil
}
