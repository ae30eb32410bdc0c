package store_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A conn is a psql process with every statement prepared. It is used by one goroutine at a time.
type conn struct {
	t    *testing.T
	in   io.Writer
	out  *bufio.Reader
	pid  string // of the server's process
	sent int
}

// A row is one line of an answer. NULL is missing.
type row map[string]string

func (w *world) connect() *conn {
	w.Helper()
	cmd := exec.Command(w.psql, "-X", "-q", "--csv", "-P", `null=\N`, "-d", w.dsn)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	// One pipe for answers and markers, so that they arrive in their order.
	r, out, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	out.Close()
	w.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // it may wait for a lock
		_ = cmd.Wait()         // it was killed
		r.Close()
	})
	c := &conn{t: w.T, in: stdin, out: bufio.NewReader(r)}
	c.must("SET TimeZone = 'UTC'")
	for _, name := range statements {
		text, err := os.ReadFile(filepath.Join("testdata", "postgres", name+".sql"))
		if err != nil {
			w.Fatal(err)
		}
		c.must(string(text))
	}
	c.must("SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0") // here waiting is what is tested
	c.pid = c.must("SELECT pg_backend_pid() AS pid")[0]["pid"]
	return c
}

// run runs one statement, or several of which one at most answers.
func (c *conn) run(sql string) ([]row, error) {
	c.sent++
	mark := fmt.Sprintf("done-%d ", c.sent)
	sql = strings.TrimSuffix(strings.TrimSpace(sql), ";")
	if _, err := fmt.Fprintf(c.in, "%s;\n\\warn %s:SQLSTATE :LAST_ERROR_MESSAGE\n", sql, mark); err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return nil, err
		}
		state, found := strings.CutPrefix(line, mark)
		if !found {
			answer.WriteString(line)
			continue
		}
		if !strings.HasPrefix(state, "00000") {
			return nil, errors.New(strings.TrimSpace(state) + ": " + answer.String())
		}
		break
	}
	lines, err := csv.NewReader(&answer).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	rows := make([]row, len(lines)-1)
	for i, line := range lines[1:] {
		rows[i] = row{}
		for k, v := range line {
			if v != `\N` {
				rows[i][lines[0][k]] = v
			}
		}
	}
	return rows, nil
}

// value runs a query with one row and one column.
func (c *conn) value(sql string) string {
	c.t.Helper()
	for _, v := range c.must(sql)[0] {
		return v
	}
	return ""
}

// tx runs statements in one transaction and returns the answer of the last one.
func (c *conn) tx(sqls ...string) (rows []row, err error) {
	if _, err := c.run("BEGIN"); err != nil {
		return nil, err
	}
	for _, sql := range sqls {
		if rows, err = c.run(sql); err != nil {
			_, rollback := c.run("ROLLBACK")
			return nil, errors.Join(err, rollback)
		}
	}
	_, err = c.run("COMMIT")
	return rows, err
}

// A result is the answer of a call that runs beside the test.
type result struct {
	rows []row
	err  error
}

// beside runs f on another goroutine and returns once c waits there for a lock of another connection.
func (w *world) beside(c *conn, f func() ([]row, error)) <-chan result {
	w.Helper()
	done := make(chan result, 1)
	go func() {
		rows, err := f()
		done <- result{rows, err}
	}()
	w.untilWaiting(c)
	return done
}

func (w *world) untilWaiting(conns ...*conn) {
	w.Helper()
	pids := make([]string, len(conns))
	for i, c := range conns {
		pids[i] = c.pid
	}
	deadline := time.Now().Add(2 * time.Minute)
	for w.db.value("SELECT count(*) FROM unnest('{"+strings.Join(pids, ",")+"}'::int[]) p WHERE cardinality(pg_blocking_pids(p)) > 0") != strconv.Itoa(len(conns)) {
		if time.Now().After(deadline) {
			w.Fatal("a connection does not come to wait for a lock")
		}
	}
}

func (w *world) got(done <-chan result) []row {
	w.Helper()
	r := <-done
	if r.err != nil {
		w.Fatal(r.err)
	}
	return r.rows
}
