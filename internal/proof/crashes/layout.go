package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A layout says which processes a round has, and where their jobs are.
type layout struct {
	// server has a database for each round. Nil: a round has that of its folder, and one process.
	server *testenv.Server
	// far is the machine on which programs run. Nil: they run on those of the processes.
	far *testenv.SSH
	// slurm begins the programs, on this machine. Nil: the processes do.
	slurm *testenv.Scheduler
	// folders has the data folder of each process, by its name in the folder of the round. A folder
	// is a machine.
	folders []string
	lease   time.Duration // of each process; 0: the usual one
	jobs    int           // in a round of points, which is run to its end again and again
}

// onSQLite is one process on a folder.
func onSQLite() layout { return layout{folders: []string{"data"}, jobs: 60} }

// overSSH is one process on a folder, whose programs run on another machine. They come into a
// folder of the round, too, which is theirs.
func overSSH(far *testenv.SSH) layout { return layout{far: far, folders: []string{"data"}, jobs: 60} }

// underSlurm is one process on a folder, whose programs Slurm begins on the same machine.
func underSlurm(s *testenv.Scheduler) layout {
	return layout{slurm: s, folders: []string{"data"}, jobs: 60}
}

// onPostgres is three processes, two on one machine and one on another. Death is known by the lease
// alone here, so it is short.
func onPostgres(server *testenv.Server) layout {
	return layout{server: server, folders: []string{"data", "data", "other"}, lease: 2 * time.Second, jobs: 120}
}

// newLayout returns the layout for the database that the user named. end releases it.
func newLayout(ctx context.Context, db string) (l layout, end func(), err error) {
	switch db {
	case "sqlite":
		return onSQLite(), func() {}, nil
	case "postgres":
		server, err := testenv.StartPostgres(ctx)
		if err != nil {
			return layout{}, nil, err
		}
		return onPostgres(server), server.Stop, nil
	case "ssh":
		far, err := testenv.StartSSHD(testenv.SSHOptions{})
		if err != nil {
			return layout{}, nil, err
		}
		return overSSH(far), far.Close, nil
	case "slurm":
		s, err := testenv.StartSlurm()
		if err != nil {
			return layout{}, nil, err
		}
		return underSlurm(s), s.Stop, nil
	}
	return layout{}, nil, fmt.Errorf(
		"there is no crash storm on %q: let -db, or DB of make crashes, be sqlite, postgres, ssh or slurm", db)
}

// points returns the names of the points at which processes die: where they do not run the programs
// themselves those that have to do with programs.
func (l *layout) points() []string {
	points := crash.Far()
	switch {
	case l.slurm != nil:
		points = crash.Slurm()
	case l.far == nil:
		return crash.Near()
	}
	return slices.DeleteFunc(points, func(p string) bool { return strings.HasPrefix(p, "store.") })
}

// before returns the points at which processes die before one can die at e.
func (l *layout) before(e entry) []string {
	passed := l.points()
	return slices.DeleteFunc(slices.Clone(e.plan().before), func(p string) bool { return !slices.Contains(passed, p) })
}

// many reports whether there are several processes.
func (l *layout) many() bool { return len(l.folders) > 1 }

// machines returns the folders, each once.
func (l *layout) machines() []string { return slices.Compact(slices.Clone(l.folders)) }

// alone reports whether a process has its machine for itself.
func (l *layout) alone(i int) bool {
	return slices.Index(l.folders, l.folders[i]) == i && !slices.Contains(l.folders[i+1:], l.folders[i])
}

// database makes an empty database and returns its connection string: "" for that of a folder.
func (l *layout) database(ctx context.Context, name string) (string, error) {
	if l.server == nil {
		return "", nil
	}
	return l.server.DSN(name), l.admin(ctx, "CREATE DATABASE "+name)
}

// drop removes a database.
func (l *layout) drop(ctx context.Context, name string) error {
	if l.server == nil {
		return nil
	}
	return l.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
}

func (l *layout) admin(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, l.server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}

// farName is the name of the system of the other machine.
const farName = "far"

// farFolder is the folder of a round for the programs of the other machine; empty: there is none.
func (r *round) farFolder() string {
	if r.h.far == nil {
		return ""
	}
	return filepath.Join(r.dir, farName)
}

// farPrograms names the folder of the programs that the processes do not start, in that of the
// round; empty: there are none.
func (r *round) farPrograms() string {
	switch {
	case r.h.far != nil:
		return farName
	case r.h.slurm != nil:
		return filepath.Join(r.h.folders[0], "systems", farName)
	}
	return ""
}

// farSystem is the file with the document of the system. The process that has the data folder puts
// its machine into it.
func (r *round) farSystem() string { return filepath.Join(r.dir, "system") }

// makeFar makes the document of the system, where the programs are not those of the processes. It
// lets the account of another machine write into its folder of the round and into the ledger.
func (r *round) makeFar() error {
	if r.h.slurm != nil {
		doc := fmt.Sprintf(`{"name": %q, "runner": "slurm", "env": {"SLURM_CONF": %q}}`, farName, r.h.slurm.Conf)
		return os.WriteFile(r.farSystem(), []byte(doc), 0o600)
	}
	s := r.h.far
	if s == nil {
		return nil
	}
	doc := fmt.Sprintf(`{"name": %q, "work": %q, "host": {"kind": "ssh", "address": %q, "port": %d, "user": %q,
		"identities": [%q], "host_keys": [%q], "from": "MACHINE"}}`,
		farName, r.farFolder(), s.Host, s.Port, s.User, s.Key, s.HostKey)
	if err := os.WriteFile(r.farSystem(), []byte(doc), 0o600); err != nil {
		return err
	}
	for _, dir := range []string{r.h.dir, r.dir} {
		if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // it is to go through
			return err
		}
	}
	if err := os.WriteFile(r.ledger(), nil, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(r.ledger(), 0o666); err != nil { //nolint:gosec // it is to write
		return err
	}
	if err := os.Mkdir(r.farFolder(), 0o700); err != nil {
		return err
	}
	return os.Chown(r.farFolder(), s.UID, s.GID)
}
