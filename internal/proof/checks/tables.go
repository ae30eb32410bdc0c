package checks

import (
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

var inSQLite = []leftover{
	{"session_left", `SELECT process FROM sessions WHERE ended IS NULL`},
	{"session_left", `SELECT hex(id) FROM jobs WHERE session IS NOT NULL OR claim IS NOT NULL`},
	{"duty_left", `SELECT d.name FROM duties d JOIN sessions s ON s.id = d.session WHERE s.ended IS NULL`},
	{"followup_left", `SELECT debt || ' of ' || coalesce(key, (SELECT hex(id) FROM jobs WHERE seq = job), job) FROM followups`},
	{"turn_left", `SELECT key || ' of ' || coalesce((SELECT hex(id) FROM jobs WHERE seq = job), job) FROM turns`},
	{"line_left", `SELECT hex(id) FROM jobs WHERE line <> ''`},
	{"line_left", `SELECT key FROM served`},
	{"line_left", `SELECT key FROM lines l WHERE places IS NOT NULL AND
		NOT EXISTS (SELECT 1 FROM groups g WHERE g.tenant = l.tenant AND g.line = l.key AND g.places >= 0)`},
	{"followup_left", `SELECT 'line ' || key FROM lines WHERE owed IS NOT NULL`},
	{"followup_left", `SELECT 'walk of ' || key FROM walks`},
	{"group_left", `SELECT hex(id) FROM jobs WHERE grp <> '' OR until IS NOT NULL`},
	{"group_left", `SELECT key || ' closes ' || line || ' for ever'
		FROM groups WHERE places >= 0 AND next IS NULL AND wake IS NULL`},
	{"prerequisite_left", `SELECT coalesce((SELECT hex(id) FROM jobs WHERE seq = job), job) || ' needs ' || needs
		FROM prerequisites`},
	{"prerequisite_left", `SELECT hex(id) FROM jobs WHERE needs <> 0 AND state <> 'CANCELED'`},
	{"unique_key_left", `SELECT mode || ' ' || key || ' of ' || coalesce((SELECT hex(id) FROM jobs WHERE seq = job), job)
		FROM unique_keys`},
	{"live_left", `SELECT hex(id) FROM jobs WHERE live <> 0 OR wish <> ''`},
	{"twice", `SELECT external_id FROM jobs WHERE external_id IS NOT NULL GROUP BY external_id HAVING count(*) > 1`},
	// Rows of nobody keep the highest numbers that were given, where what had them is deleted.
	{"stranger", `SELECT job || '.' || n FROM events WHERE job <> 0 AND job NOT IN (SELECT seq FROM jobs)`},
	{"stranger", `SELECT hex(id) FROM jobs WHERE id <> zeroblob(16) AND seq NOT IN (SELECT seq FROM specs)`},
	{"stranger", `SELECT seq FROM specs WHERE seq NOT IN (SELECT seq FROM jobs)`},
	{"database", `SELECT * FROM pragma_integrity_check() WHERE integrity_check <> 'ok'`},
}

// On PostgreSQL jobs holds only those that have not ended.
var inPostgres = []leftover{
	{"session_left", `SELECT process::text FROM pawl.sessions WHERE ended IS NULL`},
	{"session_left", `SELECT id::text FROM pawl.jobs WHERE session IS NOT NULL OR claim IS NOT NULL`},
	{"duty_left", `SELECT d.name FROM pawl.duties d JOIN pawl.sessions s ON s.id = d.session WHERE s.ended IS NULL`},
	{"followup_left", `SELECT debt || ' of ' || job FROM pawl.followups`},
	{"followup_left", `SELECT 'turns of ' || key FROM pawl.turns_owed`},
	{"turn_left", `SELECT key || ' of ' || job FROM pawl.turns`},
	{"line_left", `SELECT key FROM pawl.served`},
	{"followup_left", `SELECT 'line ' || key FROM pawl.lines_owed`},
	{"line_left", `SELECT key FROM pawl.limits l WHERE places IS NOT NULL AND
		NOT EXISTS (SELECT FROM pawl.groups g WHERE g.tenant = l.tenant AND g.line = l.key AND g.places >= 0)`},
	{"group_left", `SELECT key FROM pawl.groups WHERE places >= 0 AND next IS NULL AND wake IS NULL`},
	{"prerequisite_left", `SELECT job || ' needs ' || needs FROM pawl.prerequisites`},
	{"prerequisite_left", `SELECT id::text FROM pawl.ended WHERE needs <> 0 AND state <> 'CANCELED'`},
	{"unique_key_left", `SELECT mode || ' ' || key || ' of ' || job FROM pawl.unique_keys`},
	{"live_left", `SELECT id::text FROM pawl.jobs`},
	{"live_left", `SELECT job || ' has a turn of ' || key FROM pawl.turns`},
	{"twice", `SELECT external_id FROM pawl.specs WHERE external_id IS NOT NULL GROUP BY external_id HAVING count(*) > 1`},
	{"twice", `SELECT id::text FROM pawl.jobs JOIN pawl.ended USING (id)`},
	{"stranger", `SELECT job || '.' || n FROM pawl.events WHERE job NOT IN (SELECT id FROM pawl.specs)`},
	{"stranger", `SELECT id::text FROM (SELECT id FROM pawl.jobs UNION SELECT id FROM pawl.ended) j
		WHERE id NOT IN (SELECT id FROM pawl.specs)`},
	{"stranger", `SELECT id::text FROM pawl.specs WHERE id NOT IN (SELECT id FROM pawl.jobs UNION SELECT id FROM pawl.ended)`},
	{"deadlock", `SELECT deadlocks || ' of them' FROM pg_stat_database WHERE datname = current_database() AND deadlocks <> 0`},
}

// Open opens a database for statements of the caller: that of a folder, with mode ro or rw, or that
// of a server, where dsn is not empty, on one connection.
func Open(dsn, folder, mode string) (*sql.DB, error) {
	if dsn == "" {
		file := url.URL{Path: filepath.Join(folder, sqlite.File)}
		return sql.Open("sqlite", "file:"+file.EscapedPath()+"?mode="+mode)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1) // there are to be no others
	return db, nil
}

// Left returns what is left in a database when all jobs have ended, as "name: what". With many
// processes it is on a server.
func Left(ctx context.Context, db *sql.DB, server bool) (all []string, err error) {
	queries := inSQLite
	if server {
		queries = inPostgres
	}
	for _, l := range queries {
		rows, err := Column(ctx, db, l.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.query, err)
		}
		for _, what := range rows {
			all = append(all, l.name+": "+what)
		}
	}
	return all, nil
}

// connections are those of others. A server notices soon that a client is gone.
const connections = `SELECT state || ': ' || query FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`

// Connections waits until nobody else is connected to the database of a server, and returns who
// still is when patience is over.
func Connections(ctx context.Context, db *sql.DB, patience time.Duration) ([]string, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := Column(context.WithoutCancel(ctx), db, connections)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return left, nil
		}
	}
}

// Column returns the answer to a query for one text a row.
func Column(ctx context.Context, db *sql.DB, query string) (all []string, err error) {
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

// Keep writes the tables of a database on a server into a folder, a row a line.
func Keep(ctx context.Context, db *sql.DB, dir string) error {
	tables, err := Column(ctx, db, `SELECT tablename FROM pg_tables WHERE schemaname = 'pawl'`)
	if err != nil {
		return err
	}
	for _, name := range tables {
		rows, err := Column(ctx, db, "SELECT row_to_json(t)::text FROM pawl."+name+" t")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "table."+name), []byte(strings.Join(rows, "\n")+"\n"), 0o600)
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}
