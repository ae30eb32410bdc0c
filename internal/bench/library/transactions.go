package library

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/sqlite"
)

// Transactions are the figures of tasks that are enqueued in transactions of their program.
type Transactions struct {
	Driver      string  `json:"driver"`
	Added       float64 `json:"added_p50_us"`       // what an enqueue adds to a transaction, commit included
	BareInsert  float64 `json:"bare_insert_p50_us"` // what a row adds in a table with three indexes
	Committers  int     `json:"committers"`
	Commits     float64 `json:"commits_per_second"`
	Quiet       float64 `json:"quiet_commits_per_second"` // where nobody is woken
	AfterCommit float64 `json:"start_after_commit_p50_ms"`
}

// A client has a connection of the program.
type client interface {
	// commit runs f, which adds to a transaction that writes one row, and commits.
	commit(ctx context.Context, f func(tx) error) error
}

// A tx is a transaction of the program, and how a task is enqueued in it.
type tx struct {
	in   pawl.EnqueueOption
	exec func(sql string) error
}

// tables are those of the program: one that each transaction writes, and a rival with three
// indexes.
const tables = `CREATE TABLE %[1]sorders (n bigint, at text);
CREATE TABLE %[1]srival (id text PRIMARY KEY, tenant text, name text, body text);
CREATE INDEX rival_name ON %[1]srival (tenant, name);
CREATE INDEX rival_body ON %[1]srival (body)`

// Transactions measures n transactions of each kind.
func (b *Bench) Transactions(ctx context.Context, n, committers int) (*Transactions, error) {
	f := &Transactions{Driver: "sqlite", Committers: committers}
	if b.DB != "" {
		f.Driver = "pgx"
	}
	err := b.with(ctx, func(svc *pawl.Service, d database) error {
		clients, err := d.clients(ctx, svc, committers)
		if err != nil {
			return err
		}
		defer clients.close()
		if err := clients.added(ctx, svc, n, f); err != nil {
			return err
		}
		starts := make(chan time.Time, 1)
		late.Handle(svc, func(context.Context, *pawl.Job[number]) (number, error) {
			starts <- time.Now()
			return number{}, nil
		})
		return while(ctx, svc, func(ctx context.Context) error { // somebody is to be woken
			if err := clients.rates(ctx, svc, n, f); err != nil {
				return err
			}
			return clients.started(ctx, svc, n, starts, f)
		})
	})
	return f, err
}

// clients are connections of the program, side by side.
type clients struct {
	database
	each  []client
	close func()
}

func (d database) clients(ctx context.Context, svc *pawl.Service, n int) (_ *clients, err error) {
	c := &clients{database: d, close: func() {}}
	if d.dsn == "" {
		for range n {
			c.each = append(c.each, lent{svc})
		}
		return c, sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			for statement := range strings.SplitSeq(fmt.Sprintf(tables, ""), ";") {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var conns []*pgx.Conn
	c.close = func() {
		for _, conn := range conns {
			conn.Close(context.WithoutCancel(ctx))
		}
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	for range n {
		conn, err := pgx.Connect(ctx, d.dsn)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
		c.each = append(c.each, connected{conn, d.schema})
	}
	_, err = conns[0].Exec(ctx, fmt.Sprintf(tables, d.schema+"."))
	return c, err
}

// lent is a client of the embedded database, which lends its one transaction.
type lent struct{ svc *pawl.Service }

func (l lent) commit(ctx context.Context, f func(tx) error) error {
	return sqlite.WithTx(ctx, l.svc, func(ctx context.Context, t *sqlite.Tx) error {
		exec := func(sql string) error {
			_, err := t.ExecContext(ctx, sql)
			return err
		}
		if err := exec("INSERT INTO orders VALUES (1, 'now')"); err != nil {
			return err
		}
		return f(tx{sqlite.In(t), exec})
	})
}

// connected is a client with a connection to PostgreSQL.
type connected struct {
	*pgx.Conn
	schema string
}

func (c connected) commit(ctx context.Context, f func(tx) error) error {
	return pgx.BeginFunc(ctx, c.Conn, func(t pgx.Tx) error {
		exec := func(sql string) error {
			_, err := t.Exec(ctx, strings.Replace(sql, "INTO ", "INTO "+c.schema+".", 1))
			return err
		}
		if err := exec("INSERT INTO orders VALUES (1, 'now')"); err != nil {
			return err
		}
		return f(tx{postgres.In(t), exec})
	})
}

// added compares transactions with one row, with a task besides, and with a row of the rival
// besides, in turns.
func (c *clients) added(ctx context.Context, svc *pawl.Service, n int, f *Transactions) error {
	var plain, enqueued, rival []time.Duration
	id := 0
	for range n {
		for _, kind := range []struct {
			took *[]time.Duration
			do   func(tx) error
		}{
			{&plain, func(tx) error { return nil }},
			{&enqueued, func(t tx) error { return enqueue(ctx, svc, t) }},
			{&rival, func(t tx) error {
				id++
				return t.exec(fmt.Sprintf("INSERT INTO rival VALUES ('%08d', 'default', 'name %d', '{\"n\": %d}')", id, id%100, id))
			}},
		} {
			begin := time.Now()
			if err := c.each[0].commit(ctx, kind.do); err != nil {
				return err
			}
			*kind.took = append(*kind.took, time.Since(begin))
		}
	}
	base := p50(plain)
	f.Added, f.BareInsert = micros(p50(enqueued)-base), micros(p50(rival)-base)
	return nil
}

func enqueue(ctx context.Context, svc *pawl.Service, t tx, options ...pawl.EnqueueOption) error {
	_, err := task.Enqueue(ctx, svc, number{1}, append(options, t.in)...)
	return err
}

// rates compares how many transactions a second the clients commit side by side, with wake-ups and
// without.
func (c *clients) rates(ctx context.Context, svc *pawl.Service, n int, f *Transactions) error {
	var loud, quiet time.Duration
	for round := range 4 { // what drifts weighs on both
		silent := round == 1 || round == 2
		restore, options, err := c.silence(ctx, silent)
		if err != nil {
			return err
		}
		// Each connection plans its statements first, which takes as long as tens of transactions.
		_, err = c.commits(ctx, svc, 8*len(c.each), options)
		var took time.Duration
		if err == nil {
			took, err = c.commits(ctx, svc, n, options)
		}
		if err := errors.Join(err, restore()); err != nil {
			return err
		}
		if silent {
			quiet += took
		} else {
			loud += took
		}
	}
	f.Commits, f.Quiet = float64(2*n)/loud.Seconds(), float64(2*n)/quiet.Seconds()
	return nil
}

// commits returns how long n transactions take that enqueue a task each.
func (c *clients) commits(ctx context.Context, svc *pawl.Service, n int, options []pawl.EnqueueOption) (
	time.Duration, error,
) {
	var left atomic.Int64
	left.Store(int64(n))
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, client := range c.each {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := client.commit(ctx, func(t tx) error { return enqueue(ctx, svc, t, options...) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// silence makes enqueues wake nobody: by a function without NOTIFY, or, in an embedded database, by
// tasks that are not due.
func (c *clients) silence(ctx context.Context, silent bool) (
	restore func() error, options []pawl.EnqueueOption, err error,
) {
	restore = func() error { return nil }
	if !silent {
		return restore, nil, nil
	}
	if c.dsn == "" {
		return restore, []pawl.EnqueueOption{pawl.After(24 * time.Hour)}, nil
	}
	conn := c.each[0].(connected).Conn
	var loud string
	err = conn.QueryRow(ctx, "SELECT pg_get_functiondef($1::text::regproc)", c.schema+".tell").Scan(&loud)
	if err != nil {
		return restore, nil, err
	}
	mute := strings.ReplaceAll(loud, "pg_notify(", "concat(")
	if mute == loud {
		return restore, nil, fmt.Errorf("%s.tell has no pg_notify that could be left out", c.schema)
	}
	_, err = conn.Exec(ctx, mute)
	return func() error {
		_, err := conn.Exec(ctx, loud)
		return err
	}, nil, err
}

// late has a handler that waits for its tasks.
var late = pawl.Task[number, number]{Kind: "late"}

// started measures how soon after the commit a handler starts that waits for work.
func (c *clients) started(ctx context.Context, svc *pawl.Service, n int, starts <-chan time.Time,
	f *Transactions,
) error {
	var waits []time.Duration
	for range max(1, n/10) {
		err := c.each[0].commit(ctx, func(t tx) error {
			_, err := late.Enqueue(ctx, svc, number{}, t.in)
			return err
		})
		if err != nil {
			return err
		}
		committed := time.Now()
		select {
		case at := <-starts:
			waits = append(waits, max(0, at.Sub(committed)))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.AfterCommit = micros(p50(waits)) / 1000
	return nil
}
