package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/postgres"
)

// These examples need a database, so they are compiled and not run. tx_test.go runs such code.

type Resize struct {
	Image string `json:"image"`
}

var Thumbnail = pawl.Task[Resize, string]{Kind: "thumbnail"}

// A row of the program and its job are there together, or neither is.
func ExampleIn() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	svc, err := pawl.Open(ctx, postgres.Like(pool)) // in the same database
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	var h *pawl.Handle[string]
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, "INSERT INTO images (name) VALUES ($1)", "cat.png"); err != nil {
			return err
		}
		h, err = Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, postgres.In(tx))
		return err
	})
	if err != nil {
		panic(err) // there is neither
	}
	fmt.Println(h.Wait(ctx)) // some process runs it after the commit
}

// What the handler writes and the end of its job are one transaction: the receipt counts once.
func ExampleIn_finish() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	svc, err := pawl.Open(ctx, postgres.Like(pool))
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	charge := pawl.Task[int, string]{Kind: "charge"}
	charge.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (receipt string, err error) {
		receipt = fmt.Sprint("receipt ", j.Args)
		return receipt, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO receipts (n) VALUES ($1)", j.Args); err != nil {
				return err
			}
			return j.FinishIn(ctx, postgres.In(tx), receipt)
		})
	})
	if err := svc.Run(ctx); err != nil { // until the service is closed
		panic(err)
	}
}

// InSQL is for database/sql, here with the driver github.com/jackc/pgx/v5/stdlib.
func ExampleInSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	svc, err := pawl.Open(ctx, postgres.At(os.Getenv("DATABASE_URL")))
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	add := func(image string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit it does nothing
		if _, err := tx.ExecContext(ctx, "INSERT INTO images (name) VALUES ($1)", image); err != nil {
			return err
		}
		if _, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: image}, postgres.InSQL(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(add("cat.png"))
}

// Pawl has connections of its own. They are made as those of the pool are, here with a password
// that changes.
func ExampleLike() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://shop@db.example.org/shop")
	if err != nil {
		panic(err)
	}
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		password, err := os.ReadFile("/run/secrets/db")
		c.Password = string(password)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	svc, err := pawl.Open(ctx, postgres.Like(pool))
	if err != nil {
		panic(err)
	}
	defer svc.Close()
}

// Through PgBouncer in transaction mode: Pawl needs to know of it, and a way around it for the one
// connection that listens. A pool of the program must not prepare statements.
func ExamplePooled() {
	ctx := context.Background()
	const through, direct = "postgres://shop@pool.example.org:6432/shop", "postgres://shop@db.example.org/shop"
	svc, err := pawl.Open(ctx, postgres.At(through, postgres.Pooled(direct)))
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	pool, err := pgxpool.New(ctx, through+"?default_query_exec_mode=exec")
	if err != nil {
		panic(err)
	}
	defer pool.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png"}, postgres.In(tx))
		return err
	})
	fmt.Println(err)
}

// Transactions that have jobs in them and have been open for more than 30 s hold others up.
func Example_openTransactions() {
	ctx := context.Background()
	svc, err := pawl.Open(ctx, postgres.At(os.Getenv("DATABASE_URL")))
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	waits, err := svc.Jobs().Unattended(ctx)
	if err != nil {
		panic(err)
	}
	for _, tx := range waits.Open {
		fmt.Println("pid", tx.PID, "of", tx.Application, "since", tx.Since)
	}
}
