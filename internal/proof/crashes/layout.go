package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A layout says which processes a round has, and where their jobs are.
type layout struct {
	// server has a database for each round. Nil: a round has that of its folder, and one process.
	server *testenv.Server
	// folders has the data folder of each process, by its name in the folder of the round. A folder
	// is a machine.
	folders []string
	lease   time.Duration // of each process; 0: the usual one
	jobs    int           // in a round of points, which is run to its end again and again
}

// onSQLite is one process on a folder.
func onSQLite() layout { return layout{folders: []string{"data"}, jobs: 60} }

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
	}
	return layout{}, nil, fmt.Errorf(
		"there is no crash storm on %q: let -db, or DB of make crashes, be sqlite or postgres", db)
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
