package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
)

// withDatabase runs f with a database of its own on the server of dsn.
func withDatabase(ctx context.Context, dsn, name string, f func(dsn string) error) (err error) {
	u, err := url.Parse(dsn)
	if err == nil && u.Scheme == "" {
		err = errors.New("it has no scheme")
	}
	if err != nil {
		return fmt.Errorf("the connection string is no URL: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	name = pgx.Identifier{fmt.Sprintf("zombie_%d_%s", os.Getpid(), name)}.Sanitize()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, dropped := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		err = errors.Join(err, dropped)
	}()
	u.Path = "/" + name[1:len(name)-1] // without quotes: it is a plain word
	return f(u.String())
}

// readVersions notes the versions of the server and of the systems.
func readVersions(ctx context.Context, dsn string, versions map[string]string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	versions["postgresql"] = version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/riverqueue/river" {
				versions["river"] = m.Version
			}
		}
	}
	return nil
}
