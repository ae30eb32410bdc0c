package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ground makes what the storm goes over: the database, the folders, the network, and the processes,
// which do not run yet.
func (s *storm) ground(ctx context.Context) (release func(), err error) {
	if s.net, err = newNetwork(s.binaries.proxy, s.printf); err != nil {
		return nil, err
	}
	s.disks = &disks{storm: s}
	release = func() {
		s.net.close()
		if s.server != nil {
			s.server.Stop()
		}
		s.disks.close()
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := os.WriteFile(filepath.Join(s.dir, "input"), []byte("an input\n"), 0o600); err != nil {
		return nil, err
	}
	machines := 1
	switch s.db {
	case "sqlite":
	case "postgres":
		machines = 3
		if err := s.startServer(ctx); err != nil {
			return nil, err
		}
		s.dsn = s.server.DSN("storm")
		if err := s.admin(ctx, "postgres", "CREATE DATABASE storm"); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("there is no storm over %q: let -db, or DB of make chaos, be sqlite or postgres", s.db)
	}
	for i := range machines {
		m := fmt.Sprintf("m%d", i)
		if err := s.disks.mount(ctx, m); err != nil {
			return nil, err
		}
		roles := []string{"serve"}
		if s.server != nil {
			roles = append(roles, "worker", "worker")
		}
		for j, role := range roles {
			n, err := s.newNode(fmt.Sprintf("%s.%d", m, j), m, role)
			if err != nil {
				return nil, err
			}
			s.nodes = append(s.nodes, n)
		}
	}
	return release, nil
}

// admin runs a statement on the server, past the proxies. Where one of the server's processes has
// crashed, which is none of the faults here, it waits until the server has recovered: that is a
// fault like others for the jobs.
func (s *storm) admin(ctx context.Context, database, statement string, args ...any) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	conn, err := pgx.Connect(ctx, s.server.DSN(database))
	if recovers(err) {
		s.printf("the server recovers from a crash of its own; it said:\n%s", s.server.Log())
		for recovers(err) && pause(ctx, 50*time.Millisecond) {
			conn, err = pgx.Connect(ctx, s.server.DSN(database))
		}
	}
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement, args...)
	return err
}

// recovers reports whether a server has refused a connection because it starts, or recovers from a
// crash.
func recovers(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "57P03"
}

// through returns the URL of the database by way of a proxy.
func (s *storm) through(w *way) (string, error) {
	u, err := url.Parse(s.dsn)
	if err != nil {
		return "", err
	}
	u.Host = w.addr
	return u.String(), nil
}
