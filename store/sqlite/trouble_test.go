package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func openAt(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newTask returns a task whose request has a size.
func newTask(size int) store.New {
	request := []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)
	return store.New{Job: job.Job{ID: job.NewID(), Owner: "o", Kind: "k", Name: "n", Queue: "q", MaxAttempts: 3, Request: request}}
}

func submit(ctx context.Context, s *Store, jobs ...store.New) error {
	_, _, err := s.Submit(ctx, store.Submission{Tenant: "t", Jobs: jobs})
	return err
}

// pragma asks the connection that writes.
func pragma(t *testing.T, s *Store, q string) (answer string) {
	t.Helper()
	err := s.do(t.Context(), func(tx *tx) error {
		return tx.query("PRAGMA "+q, func(v []driver.Value) error {
			answer = fmt.Sprint(v[0])
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestDurability(t *testing.T) {
	s := openAt(t, t.TempDir())
	for q, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} { // 2 is FULL
		if got := pragma(t, s, q); got != want {
			t.Errorf("%s is %s, want %s", q, got, want)
		}
	}
}

// A database that cannot grow is no fault of any call: all who meet it hear that, and go on when it
// can grow again.
func TestOnlyTheOwnerReads(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir)
	for _, name := range []string{File, File + "-wal", File + "-shm"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestFull(t *testing.T) {
	s := openAt(t, t.TempDir())
	session := store.Session{ID: job.NewID(), Process: store.Process{Host: "p"}, Lease: time.Hour}
	if err := s.Begin(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	pragma(t, s, "max_page_count = "+pragma(t, s, "page_count"))
	full := make(chan error, 1000)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				full <- submit(t.Context(), s, newTask(100_000))
				_, err := s.Renew(t.Context(), store.Renew{Session: session.ID, Lease: time.Hour})
				full <- err
			}
		})
	}
	wg.Wait()
	close(full)
	met := 0
	for err := range full {
		if err == nil {
			continue
		}
		met++
		if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), "full") {
			t.Errorf("%s: %v, want that the disk is full", job.KindOf(err), err)
		}
	}
	if met < 400 {
		t.Errorf("only %d calls met it", met)
	}
	pragma(t, s, "max_page_count = 1000000")
	if err := submit(t.Context(), s, newTask(100_000)); err != nil {
		t.Errorf("after the disk got room: %v", err)
	}
}

func TestRecount(t *testing.T) {
	s := openAt(t, t.TempDir())
	first, waits, more := newTask(0), newTask(0), newTask(0)
	waits.After = []store.After{{Job: first.Job.ID, Need: job.NeedEnded}}
	more.After = waits.After
	if err := submit(t.Context(), s, first, waits, more); err != nil {
		t.Fatal(err)
	}
	recount := func(want int, at job.Place) {
		t.Helper()
		n, _, err := s.Recount(t.Context(), 100)
		if n != (store.Recounted{Needs: want}) || err != nil {
			t.Errorf("%+v corrected, %v; want %d", n, err, want)
		}
		if j, err := store.FindJob(t.Context(), s, "t", waits.Job.ID); j.Place != at || err != nil {
			t.Errorf("the job stands at %s, %v; want %s", j.Place, err, at)
		}
	}
	breaks := func(q string) {
		t.Helper()
		err := s.do(t.Context(), func(tx *tx) error {
			_, err := tx.exec(q, blob(waits.Job.ID))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	gate := job.Place{State: job.Waiting, Custody: job.Gate}
	recount(0, gate)
	breaks(`UPDATE jobs SET needs = 7 WHERE id = ?`)
	recount(1, gate)
	recount(0, gate)
	breaks(`DELETE FROM prerequisites WHERE job = (SELECT seq FROM jobs WHERE id = ?)`)
	recount(1, job.Place{State: job.Pending, Custody: job.Ready})
	recount(0, job.Place{State: job.Pending, Custody: job.Ready})
}

// TestRecountTurns: turns that nobody has a use for are taken away, and a line whose debt was lost
// gets what is free.
func TestRecountTurns(t *testing.T) {
	s, ctx := openAt(t, t.TempDir()), t.Context()
	if _, err := store.SetLimit(ctx, s, "t", job.Limit{Key: "gpu/*", Most: 1}); err != nil {
		t.Fatal(err)
	}
	pay := func() {
		t.Helper()
		if _, _, err := s.Pay(ctx, 100); err != nil {
			t.Fatal(err)
		}
	}
	jobs := []store.New{newTask(0), newTask(0), newTask(0)}
	for i, keys := range [][]string{{"gpu/a"}, {"gpu/a"}, {"disk", "gpu/a"}} {
		jobs[i].Job.Limits = keys
		if err := submit(ctx, s, jobs[i]); err != nil {
			t.Fatal(err)
		}
		pay()
	}
	breaks := func(q string, args ...any) {
		t.Helper()
		err := s.do(ctx, func(tx *tx) error { _, err := tx.exec(q, args...); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	recount := func(want store.Recounted) {
		t.Helper()
		n, eff, err := s.Recount(ctx, 100)
		if n != want || err != nil || eff.Owed != (want.Turns+want.Lines > 0) {
			t.Errorf("%+v corrected, owed %t, %v; want %+v", n, eff.Owed, err, want)
		}
		pay()
		if n, _, err := s.Recount(ctx, 100); n != (store.Recounted{}) || err != nil {
			t.Errorf("once more: %+v, %v", n, err)
		}
	}
	at := func(want ...job.Custody) {
		t.Helper()
		for i := range jobs {
			if j, err := store.FindJob(ctx, s, "t", jobs[i].Job.ID); j.Custody != want[i] || err != nil {
				t.Errorf("job %d stands at %s, %v; want %s", i, j.Place, err, want[i])
			}
		}
	}
	recount(store.Recounted{})
	breaks(`INSERT INTO turns (tenant, key, owner, job) SELECT j.tenant, k.value, 'other', j.seq FROM jobs j, json_each('["gpu/a", "ahead/gpu/a"]') k WHERE j.line <> ''`)
	breaks(`INSERT INTO turns (tenant, key, owner, job) VALUES ('t', 'gpu/a', 'ann', 77)`)
	recount(store.Recounted{Turns: 5})
	at(job.Ready, job.Gate, job.Gate)
	breaks(`DELETE FROM turns`)
	breaks(`UPDATE jobs SET ties = 8 WHERE id = ?`, blob(jobs[0].Job.ID))
	recount(store.Recounted{Lines: 1})
	at(job.Ready, job.Ready, job.Gate)
	breaks(`DELETE FROM turns`)
	breaks(`UPDATE jobs SET ties = 8 WHERE id = ?`, blob(jobs[1].Job.ID))
	breaks(`INSERT INTO followups (debt, job, at, tenant, key) VALUES ('turns', 0, 0, 't', 'gpu/a')`)
	if n, _, err := s.Recount(ctx, 100); n != (store.Recounted{}) || err != nil {
		t.Errorf("what is owed is on its way: %+v, %v", n, err)
	}
	pay()
	at(job.Ready, job.Ready, job.Ready)
}

// What cannot be opened says why, and what to do.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		kind  job.ErrorKind
		says  string
	}{
		"a newer version": {func(t *testing.T, dir string) {
			s := openAt(t, dir)
			if err := s.do(t.Context(), func(tx *tx) error {
				_, err := tx.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}, job.Newer, "use the newer Pawl"},
		"garbage": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, File), []byte(strings.Repeat("garbage ", 4096)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, job.Corrupt, "restore a copy"},
		"a damaged page": {func(t *testing.T, dir string) {
			s := openAt(t, dir)
			if err := submit(t.Context(), s, newTask(200_000)); err != nil {
				t.Fatal(err)
			}
			s.Close()
			f, err := os.OpenFile(filepath.Join(dir, File), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(strings.Repeat("x", 40_000)), 8192); err != nil {
				t.Fatal(err)
			}
		}, job.Corrupt, "restore a copy"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{{}, {ReadOnly: true}} {
				if o.ReadOnly && name == "a damaged page" {
					continue // it is not read through
				}
				dir := t.TempDir()
				c.spoil(t, dir)
				s, err := Open(t.Context(), dir, o)
				if err == nil {
					s.Close()
				}
				if job.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.says) {
					t.Errorf("read only %t: %s: %v, want %s and %q", o.ReadOnly, job.KindOf(err), err, c.kind, c.says)
				}
			}
		})
	}
	t.Run("an empty file is a new database, but not for a reader", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, Options{ReadOnly: true}); job.KindOf(err) != job.Corrupt {
			t.Errorf("read only: %v", err)
		}
		openAt(t, dir)
	})
}
