package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A leftover is a query for rows that must be gone when all jobs have ended.
type leftover struct{ name, query string }

var onlySQLite = []leftover{
	{"session_left", `SELECT process FROM sessions WHERE ended IS NULL`},
	{"session_left", `SELECT hex(id) FROM jobs WHERE session IS NOT NULL OR claim IS NOT NULL`},
	{"duty_left", `SELECT d.name FROM duties d JOIN sessions s ON s.id = d.session WHERE s.ended IS NULL`},
	{"followup_left", `SELECT debt || ' of ' || job FROM followups`},
	{"prerequisite_left", `SELECT job || ' needs ' || needs FROM prerequisites`},
	{"prerequisite_left", `SELECT hex(id) FROM jobs WHERE needs <> 0 AND state <> 'CANCELED'`},
	{"unique_key_left", `SELECT mode || ' ' || key FROM unique_keys`},
	{"live_left", `SELECT hex(id) FROM jobs WHERE live <> 0 OR wish <> ''`},
	{"twice", `SELECT external_id FROM jobs GROUP BY external_id HAVING count(*) > 1`},
	{"stranger", `SELECT job || '.' || n FROM events WHERE job NOT IN (SELECT seq FROM jobs)`},
	{"stranger", `SELECT hex(id) FROM jobs WHERE seq NOT IN (SELECT seq FROM specs)`},
	{"stranger", `SELECT seq FROM specs WHERE seq NOT IN (SELECT seq FROM jobs)`},
	{"database", `SELECT * FROM pragma_integrity_check() WHERE integrity_check <> 'ok'`},
}

// On PostgreSQL jobs holds only those that have not ended.
var onlyPostgres = []leftover{
	{"session_left", `SELECT process::text FROM pawl.sessions WHERE ended IS NULL`},
	{"session_left", `SELECT id::text FROM pawl.jobs WHERE session IS NOT NULL OR claim IS NOT NULL`},
	{"duty_left", `SELECT d.name FROM pawl.duties d JOIN pawl.sessions s ON s.id = d.session WHERE s.ended IS NULL`},
	{"followup_left", `SELECT debt || ' of ' || job FROM pawl.followups`},
	{"prerequisite_left", `SELECT job || ' needs ' || needs FROM pawl.prerequisites`},
	{"prerequisite_left", `SELECT id::text FROM pawl.ended WHERE needs <> 0 AND state <> 'CANCELED'`},
	{"unique_key_left", `SELECT mode || ' ' || key FROM pawl.unique_keys`},
	{"live_left", `SELECT id::text FROM pawl.jobs`},
	{"twice", `SELECT external_id FROM pawl.specs GROUP BY external_id HAVING count(*) > 1`},
	{"twice", `SELECT id::text FROM pawl.jobs JOIN pawl.ended USING (id)`},
	{"stranger", `SELECT job || '.' || n FROM pawl.events WHERE job NOT IN (SELECT id FROM pawl.specs)`},
	{"stranger", `SELECT id::text FROM (SELECT id FROM pawl.jobs UNION SELECT id FROM pawl.ended) j WHERE id NOT IN (SELECT id FROM pawl.specs)`},
	{"stranger", `SELECT id::text FROM pawl.specs WHERE id NOT IN (SELECT id FROM pawl.jobs UNION SELECT id FROM pawl.ended)`},
	{"deadlock", `SELECT deadlocks || ' of them' FROM pg_stat_database WHERE datname = current_database() AND deadlocks <> 0`},
}

// connections are those of others. A server notices soon that a client is gone.
const connections = `SELECT state || ': ' || query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`

// tables looks into the database, past the store.
func (c *checker) tables(ctx context.Context) error {
	db, err := c.query("ro")
	if err != nil {
		return err
	}
	defer db.Close()
	left := onlySQLite
	if c.dsn != "" {
		left = onlyPostgres
		if err := c.disconnected(ctx, db); err != nil {
			return err
		}
	}
	for _, l := range left {
		rows, err := column(ctx, db, l.query)
		if err != nil {
			return fmt.Errorf("%s: %w", l.query, err)
		}
		for _, what := range rows {
			c.breaks("%s: %s", l.name, what)
		}
	}
	return nil
}

// query opens the database for statements; mode is that of a file: ro or rw.
func (r *round) query(mode string) (*sql.DB, error) {
	if r.dsn == "" {
		file := url.URL{Path: filepath.Join(r.folder(r.h.folders[0]), sqlite.File)}
		return sql.Open("sqlite", "file:"+file.EscapedPath()+"?mode="+mode)
	}
	config, err := pgx.ParseConfig(r.dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1) // there are to be no others
	return db, nil
}

// disconnected: no process has left a connection.
func (c *checker) disconnected(ctx context.Context, db *sql.DB) error {
	ctx, stop := context.WithTimeout(ctx, cmp.Or(c.patience, 20*time.Second))
	defer stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := column(context.WithoutCancel(ctx), db, connections)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			c.breaks("connection_left: %v", left)
			return nil
		}
	}
}

// column returns the answer to a query for one text a row.
func column(ctx context.Context, db *sql.DB, query string) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// keepTables writes the tables of a database on the server into the folder of the round, a row a line, for the server goes
// when this program ends.
func (r *round) keepTables(ctx context.Context) error {
	if r.dsn == "" {
		return nil
	}
	db, err := r.query("ro")
	if err != nil {
		return err
	}
	defer db.Close()
	tables, err := column(ctx, db, `SELECT tablename FROM pg_tables WHERE schemaname = 'pawl'`)
	if err != nil {
		return err
	}
	for _, name := range tables {
		rows, err := column(ctx, db, "SELECT row_to_json(t)::text FROM pawl."+name+" t")
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, "table."+name), []byte(strings.Join(rows, "\n")+"\n"), 0o600)
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}
