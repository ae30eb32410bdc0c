package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A saved is a database as it was at some time of the storm. When the storm is over it takes the
// place of the database: what happened since has not happened, and only the machines know better.
type saved struct {
	file string
	from time.Time // before it was saved; what was accepted by then is in it
	back bool      // it took the place
}

// save saves the database when three fifths of the storm are over.
func (s *storm) save(ctx context.Context) {
	if !pause(ctx, s.duration*3/5) {
		return
	}
	s.databases.Lock()
	defer s.databases.Unlock()
	file, from := filepath.Join(s.dir, "saved"), time.Now()
	if err := s.saveAs(context.WithoutCancel(ctx), file); err != nil {
		s.breaks("harness: save the database: %v", err)
		return
	}
	s.printf("the database is saved")
	s.saved = &saved{file: file, from: from}
}

func (s *storm) saveAs(ctx context.Context, file string) error {
	if s.server != nil {
		_, err := s.server.Client(ctx, "pg_dump", "-Fc", "-f", file, "storm")
		return err
	}
	db, err := s.query()
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", file)
	return err
}

// putBack restores the database as docs/operations/backup.md says: all processes are stopped, and
// every machine is asked what it knows before they start again.
func (s *storm) putBack(ctx context.Context) error {
	if s.saved == nil {
		return errors.New("the database was not saved")
	}
	for _, e := range s.ears {
		e.leave()
		<-e.quiet
	}
	s.hold(true)
	for _, n := range s.nodes {
		if p := n.now(); p != nil {
			p.Signal(syscall.SIGKILL)
		}
	}
	s.living.Wait()
	if err := s.replace(ctx); err != nil {
		return err
	}
	s.saved.back = true
	for _, m := range s.machines() {
		cmd := exec.CommandContext(ctx, s.binaries.this, "reconcile", "--end-unknown", "--dir", s.folder(m))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
		if s.server != nil {
			cmd.Env = append(cmd.Env, "PAWL_DB="+s.dsn)
		}
		said, err := cmd.CombinedOutput()
		if err := os.WriteFile(filepath.Join(s.dir, "said.reconcile."+m), said, 0o600); err != nil {
			return err
		}
		var code *exec.ExitError
		if err != nil && (!errors.As(err, &code) || code.ExitCode() != leftDiffering) {
			return fmt.Errorf("reconcile %s: %w: %s", m, err, said)
		}
	}
	s.printf("the database is restored, and all machines were asked")
	s.hold(false)
	for _, n := range s.nodes {
		s.living.Go(func() { n.live(ctx) })
	}
	for _, n := range s.nodes {
		if err := n.up(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leftDiffering is the exit code of reconcile where something is left for later, such as a job that
// is paused.
const leftDiffering = 4

func (s *storm) hold(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = on
}

// replace puts the saved database in the place of the one that is there.
func (s *storm) replace(ctx context.Context) error {
	if s.server != nil {
		for _, statement := range []string{"DROP DATABASE storm WITH (FORCE)", "CREATE DATABASE storm"} {
			if err := s.admin(ctx, "postgres", statement); err != nil {
				return err
			}
		}
		_, err := s.server.Client(ctx, "pg_restore", "-d", "storm", s.saved.file)
		return err
	}
	name := filepath.Join(s.folder(s.nodes[0].machine), sqlite.File)
	for _, more := range []string{"-wal", "-shm"} {
		if err := os.Remove(name + more); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	text, err := os.ReadFile(s.saved.file)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// restored reports whether the database was put back, after which the book says more than the
// database can know.
func (s *storm) restored() bool { return s.saved != nil && s.saved.back }
