// Command zombie freezes a process in the middle of a job, has another one run the job, and writes
// down what happens when the first one wakes up: with Pawl, and with river.
//
//	go run ./internal/proof/testenv/private go run -C bench/zombie .
//
// Processes A and B are this program once more, on a private database each. A takes the only job
// and is stopped by SIGSTOP half way; B finds the job and runs it; A gets SIGCONT, and its handler
// goes on, without a look at its context. The handler writes each step to a file that belongs to
// neither system.
//
// It runs on Linux.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// limit is how long all of it may take.
const limit = 2 * time.Minute

func main() {
	var err error
	if name := os.Getenv(childVariable); name != "" {
		err = child(name, os.Args[1:])
	} else {
		err = run(os.Args[1:], os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "zombie:", err)
		os.Exit(1) //nolint:forbidigo // main exits
	}
}

// A Report is what was seen, and where.
type Report struct {
	Time       time.Time         `json:"time"`
	CPUs       int               `json:"cpus"`
	Versions   map[string]string `json:"versions"`
	PawlLease  string            `json:"pawl_lease"`
	RiverLimit string            `json:"river_job_timeout"`
	RiverStuck string            `json:"river_rescue_stuck_jobs_after"`
	Stories    []Story           `json:"stories"`
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("zombie", flag.ContinueOnError)
	dsn := flags.String("db", os.Getenv("PAWL_DB"),
		"connection string, as a URL, of a PostgreSQL server; databases are made there and removed (default: $PAWL_DB)")
	format := flags.String("o", "text", "text or json")
	only := flags.String("system", "river,pawl", "the systems to look at")
	ledger := flags.Bool("ledger", false, "with text: show all steps, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := strings.Split(*only, ",")
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *dsn == "":
		return errors.New("no database: give -db, or run this with internal/proof/testenv/private")
	case *format != "text" && *format != "json":
		return fmt.Errorf("-o %s: want text or json", *format)
	}
	for _, name := range names {
		if systems[name] == nil {
			return fmt.Errorf("there is no system %q", name)
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "zombie-")
	if err != nil {
		return err
	}
	r := Report{
		Time: time.Now(), CPUs: runtime.NumCPU(), Versions: map[string]string{"go": runtime.Version()},
		PawlLease: pawlLease.String(), RiverLimit: riverTimeout.String(), RiverStuck: riverRescue.String(),
	}
	for _, name := range names {
		stories, err := playAll(ctx, name, *dsn, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		r.Stories = append(r.Stories, stories...)
	}
	if err := readVersions(ctx, *dsn, r.Versions); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // it is left for a look when something went wrong
		return err
	}
	if *format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	return r.print(out, *ledger)
}

// playAll plays all variants of one system side by side, each in a database of its own.
func playAll(ctx context.Context, name, dsn, dir string) ([]Story, error) {
	stories := make([]Story, len(variants))
	g, ctx := errgroup.WithContext(ctx)
	for i, v := range variants {
		g.Go(func() error {
			return withDatabase(ctx, dsn, strings.ReplaceAll(name+"_"+v.Name, "-", "_"), func(own string) (err error) {
				stories[i], err = play(ctx, name, v, own, filepath.Join(dir, v.Name))
				return err
			})
		})
	}
	return stories, g.Wait()
}
