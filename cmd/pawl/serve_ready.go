package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/job"
)

// ready says what of the service works now. Everybody may ask, so it names no files.
func (s *serving) ready(ctx context.Context) []api.Check {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	checks := []api.Check{s.database(ctx), {Name: "session", Err: s.observe.Session()}, s.disk()}
	if s.pair != nil {
		c := api.Check{Name: "certificate", Degraded: true, Detail: "valid until " + s.pair.Expires().UTC().Format(time.RFC3339)}
		if s.pair.Check() != nil {
			c.Err = errors.New("the files have changed and cannot be used; the certificate before is in use, and the log says what is wrong with the new one")
		}
		checks = append(checks, c)
	}
	return checks
}

// database asks the database for its schema.
func (s *serving) database(ctx context.Context) api.Check {
	c := api.Check{Name: "database"}
	v, err := s.node.store.Schema(ctx)
	switch {
	case err != nil:
		c.Err = err
	case v.Version != v.Known:
		c.Err = job.Errorf(job.Newer, "its schema is version %d, and this Pawl knows version %d: another Pawl has changed it; start this one anew", v.Version, v.Known)
	}
	c.Detail = fmt.Sprintf("schema version %d", v.Version)
	return c
}

// disk looks at the free space of the data folder.
func (s *serving) disk() api.Check {
	cfg, c := s.config.Load(), api.Check{Name: "disk"}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &fs); err != nil {
		c.Err = fmt.Errorf("free space of the data folder: %w", err)
		return c
	}
	free := config.Size(fs.Bavail * uint64(fs.Bsize))
	c.Detail = fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	if free < cfg.Disk.Low {
		c.Err = job.Errorf(job.Exhausted, "the data folder has %s: make room; below %v the service is not ready (disk.least)", c.Detail, cfg.Disk.Least)
		c.Degraded = free >= cfg.Disk.Least
	}
	return c
}
