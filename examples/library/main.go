// Command library is a web service that has texts read: it stores each text, and enqueues the job
// that counts its words, in one transaction of its own database. Kill it in the middle of a text
// and start it again: the job goes on from its last checkpoint.
//
//	go run ./examples/library -db postgres://…
//	curl -d 'one two three' localhost:8080/texts; curl localhost:8080/texts
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
)

// A text is the argument of a job: which text to read.
type text struct {
	ID int64 `json:"id"`
}

// A count is its result, and what it keeps while it reads.
type count struct {
	Read  int `json:"read"`  // lines
	Words int `json:"words"` // in these
}

var read = pawl.Task[text, count]{Kind: "read", Unique: pawl.UntilDone("id")}

// A library is the web service.
type library struct {
	db   *pgxpool.Pool
	jobs *pawl.Service
	pace time.Duration // how long a line takes
}

func main() {
	dsn := flag.String("db", os.Getenv("DATABASE_URL"), "PostgreSQL database, as a URL")
	address := flag.String("listen", "localhost:8080", "address to serve at")
	pace := flag.Duration("pace", time.Second, "how long a line takes to read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := serve(ctx, *dsn, *address, *pace)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, dsn, address string, pace time.Duration) error {
	db, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS texts (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, job uuid NOT NULL)`); err != nil {
		return err
	}
	svc, err := pawl.Open(ctx, postgres.Like(db))
	if err != nil {
		return err
	}
	defer svc.Close()
	l := &library{db, svc, pace}
	read.Handle(svc, l.read)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /texts", l.add)
	mux.HandleFunc("GET /texts", l.list)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving at", listener.Addr())
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// add stores a text and enqueues its job: both are there, or neither is.
func (l *library) add(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var id int64
	err = pgx.BeginFunc(r.Context(), l.db, func(tx pgx.Tx) error {
		err := tx.QueryRow(r.Context(), `INSERT INTO texts (body, job) VALUES ($1, gen_random_uuid()) RETURNING id`,
			body).Scan(&id)
		if err != nil {
			return err
		}
		h, err := read.Enqueue(r.Context(), l.jobs, text{id}, postgres.In(tx))
		if err != nil {
			return err
		}
		_, err = tx.Exec(r.Context(), `UPDATE texts SET job = $2 WHERE id = $1`, id, h.ID.String())
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, "text %d\n", id)
}

// read counts the words of a text, line by line.
func (l *library) read(ctx context.Context, j *pawl.Job[text]) (count, error) {
	var body string
	if err := l.db.QueryRow(ctx, `SELECT body FROM texts WHERE id = $1`, j.Args.ID).Scan(&body); err != nil {
		return count{}, err
	}
	var at count
	if _, err := j.Restore(&at); err != nil {
		return count{}, err
	}
	lines := strings.Split(strings.TrimSpace(body), "\n")
	for at.Read < len(lines) {
		select {
		case <-time.After(l.pace):
		case <-ctx.Done():
			return count{}, context.Cause(ctx)
		}
		at.Words += len(strings.Fields(lines[at.Read]))
		at.Read++
		if err := j.Checkpoint(ctx, at); err != nil {
			return count{}, err
		}
		j.Progress(int64(at.Read), int64(len(lines)), "lines")
	}
	return at, nil
}

// list shows each text with the state of its job, and what it counted.
func (l *library) list(w http.ResponseWriter, r *http.Request) {
	rows, err := l.db.Query(r.Context(), `SELECT id, job::text FROM texts ORDER BY id`)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "text %d: %s\n", id, l.state(r.Context(), name))
	}
}

// state says in a few words how far a job is.
func (l *library) state(ctx context.Context, name string) string {
	id, err := job.ParseID(name)
	if err != nil {
		return err.Error()
	}
	v, err := l.jobs.Jobs().View(ctx, id)
	switch {
	case err != nil:
		return err.Error()
	case v.State == job.Finished:
		return "FINISHED " + string(v.Result)
	case v.Progress != nil:
		return fmt.Sprintf("%s, %d of %d %s", v.State, v.Progress.Done, v.Progress.Total, v.Progress.What)
	}
	return fmt.Sprintf("%s: %s", v.State, v.Why)
}
