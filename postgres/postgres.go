// Package postgres keeps the jobs of a Go program in a PostgreSQL database, version 15 or newer,
// where any number of processes share them. When one dies, the others take its jobs within its
// lease, 15 s by default. [In] makes rows of the program and jobs one transaction.
package postgres

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// At is a database, as a URL or as keywords and values. Pawl's tables are in the schema pawl, which
// is made if it is not there. One of an older Pawl is brought up to date by pawl migrate; before
// that [pawl.Open] returns an error of kind [job.Unavailable]. A process that runs tasks has a
// connection that listens, and up to 12 others.
func At(dsn string, options ...Option) pawl.Source {
	o := opening{dsn: dsn}
	for _, set := range options {
		if set == nil {
			o.wrong = job.Errorf(job.Invalid, "postgres.At: an option is nil: leave it out")
			continue
		}
		set(&o)
	}
	return o.open
}

// Like is the database of a pool. Pawl needs connections of its own, which are made as those of the
// pool are: with what the program has set in its configuration beside the DSN, such as a password,
// and with its BeforeConnect. Its AfterConnect is not run: that readies a connection for statements
// of the program.
func Like(pool *pgxpool.Pool, options ...Option) pawl.Source {
	return func(ctx context.Context, log *slog.Logger) (*pawl.Database, error) {
		if pool == nil {
			return nil, job.Errorf(job.Invalid, "postgres.Like: the pool is nil: give the one that pgxpool.New returned")
		}
		theirs := pool.Config()
		like, err := pgxpool.ParseConfig(theirs.ConnString())
		if err != nil {
			return nil, err
		}
		like.ConnConfig.Config, like.BeforeConnect = theirs.ConnConfig.Config, theirs.BeforeConnect
		like.ConnConfig.OnNotice, like.ConnConfig.OnNotification = nil, nil
		return At(theirs.ConnString(), append(slices.Clone(options), func(o *opening) { o.like = like })...)(ctx, log)
	}
}

// An Option changes how a database is opened.
type Option func(*opening)

type opening struct {
	dsn, listen, schema string
	pooled              bool
	conns               int
	like                *pgxpool.Config // how to connect, in place of dsn; nil: as that says
	wrong               error           // what an option was given and cannot be
}

// Schema is the schema that has Pawl's tables; "pawl" by default.
func Schema(name string) Option { return func(o *opening) { o.schema = name } }

// Pooled says that the DSN leads through a pooler in transaction mode, such as PgBouncer. listen
// leads to PostgreSQL itself, for the one connection that listens.
func Pooled(listen string) Option {
	return func(o *opening) { o.pooled, o.listen = true, listen }
}

// Conns is how many connections calls may use at the same time; 8 by default.
func Conns(n int) Option {
	return func(o *opening) {
		if o.conns = n; n < 1 {
			o.wrong = job.Errorf(job.Invalid, "postgres.Conns(%d): give 1 or more", n)
		}
	}
}

func (o *opening) open(ctx context.Context, log *slog.Logger) (*pawl.Database, error) {
	if o.wrong != nil {
		return nil, o.wrong
	}
	if err := o.migrate(ctx); err != nil {
		return nil, err
	}
	listen := pgnotify.Config{DSN: o.dsn, Like: o.like, Schema: o.schema, Log: log}
	if !o.pooled || o.listen != "" {
		listen.Params = postgres.Params() // a pooler would refuse them
	}
	if o.listen != "" {
		listen.DSN, listen.Like = o.listen, nil
	}
	bus, err := pgnotify.Open(ctx, listen)
	if err != nil {
		return nil, err
	}
	st, err := postgres.Open(ctx, o.dsn, postgres.Options{
		Schema: o.schema, Pooled: o.pooled, Like: o.like, Conns: o.conns, Log: log, Renewals: bus.Do,
	})
	if err != nil {
		bus.Close()
		return nil, err
	}
	return &pawl.Database{Store: st, Broker: bus, Close: func() error {
		defer bus.Close()
		return st.Close()
	}}, nil
}

// migrate makes the schema where there is none. One that is there is brought up to date by an
// operator, with pawl migrate.
func (o *opening) migrate(ctx context.Context) error {
	dsn, like := o.dsn, o.like
	if o.listen != "" {
		dsn, like = o.listen, nil
	}
	m, err := postgres.NewMigratorLike(dsn, like, o.schema)
	if err != nil {
		return err
	}
	v, err := m.Version(ctx)
	if err == nil && v.Version == 0 {
		err = m.Up(ctx)
	}
	return errors.Join(err, m.Close())
}
