// Package embedded is the whole service in one test process: an embedded database, this machine,
// and real programs.
package embedded

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/app/trial"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A Service is one on a folder of its own. It ends with its test.
type Service struct {
	*service.Service
	Dir   string
	Store *sqlite.Store
}

// Open opens a service in the name of ada, which runs nothing yet.
func Open(t testing.TB) *Service {
	t.Helper()
	s := &Service{Dir: t.TempDir()}
	spool := filepath.Join(s.Dir, "ends")
	var err error
	if s.Store, err = sqlite.Open(t.Context(), s.Dir, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	var programs *process.Runner
	host, err := hostlocal.Open(hostlocal.Config{ID: "m1", OnExit: func(e hostlocal.Exit) { programs.Exited(e.Process) }})
	if err != nil {
		t.Fatal(errors.Join(err, s.Store.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(host.Close(), s.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	log := slog.New(slog.DiscardHandler)
	programs, err = process.Open(t.Context(), process.Config{Host: host, Spool: spool, Exits: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	kind := app.New(app.Config{
		Local: app.System{Host: host, Runner: programs, Work: filepath.Join(s.Dir, "work")},
		Files: fileslocal.FS{}, Archive: filepath.Join(s.Dir, "archive"), Log: log,
	})
	bus := &local.Broker{}
	w := app.NewWatcher(kind, kind.Local(), s.Store, bus)
	s.Service = service.New(service.Config{
		Store: s.Store, Broker: bus, Principal: "ada", Machine: "m1", Log: log,
		Kinds: map[string]engine.Kind{job.KindApp: kind}, Options: engine.Options{Duties: []engine.Duty{w.Duty()}},
		ListSystem: func(ctx context.Context, _, system, name string, limit int) (l job.Listing, err error) {
			l.System, l.Path = system, name
			l.Entries, l.More, err = files.Listing(ctx, fileslocal.FS{}, name, limit)
			return l, err
		},
		CheckSystem: func(ctx context.Context, doc *job.System) (job.SystemCheck, error) {
			c := job.SystemCheck{System: doc.Name}
			try := trial.Trial{
				System: kind.Local(), Root: s.Dir, Check: &c, Remedy: func(string, job.Code) string { return "" },
				Runner: func(ctx context.Context, spool, past string) (runner.Runner, error) {
					return process.Open(ctx, process.Config{Host: host, Spool: spool, Past: past})
				},
			}
			try.Run(ctx)
			c.Finish()
			return c, nil
		},
	})
	return s
}

// Start runs the service until the test ends.
func (s *Service) Start(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
