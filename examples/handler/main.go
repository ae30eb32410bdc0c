// Command handler counts the words of every file of a folder, each as one task. Kill it half-way
// and start it again: it goes on where it was, and no file is counted twice in the sum.
//
//	go run ./examples/handler [-data FOLDER] [-pause 300ms] DIR
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
	"unicode"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// countFile is the arguments of one task.
type countFile struct {
	Path string `json:"path"`
}

// count is its result.
type count struct {
	Words int `json:"words"`
}

func main() {
	data := flag.String("data", "", "folder of the jobs (default: one below the temporary folder for each DIR)")
	pause := flag.Duration("pause", 0, "how long to dawdle over each file, to have time to kill this program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: handler [-data FOLDER] [-pause 300ms] DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *data, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "handler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, data string, pause time.Duration) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	requests, err := tasks(dir)
	if err != nil {
		return err
	}
	if data == "" {
		data = filepath.Join(os.TempDir(), "pawl-handler"+filepath.ToSlash(dir))
	}
	st, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	fmt.Printf("counting the words of %s in %s; the jobs are in %s\n", plural(len(requests), "file"), dir, data)
	return countAll(ctx, st, requests, pause)
}

// countAll submits the tasks, and runs them until all have ended.
func countAll(ctx context.Context, st store.Store, requests []service.Request, pause time.Duration) error {
	svc := service.New(service.Config{Store: st, Broker: &local.Broker{}})
	service.Handle(svc, "count-words", func(ctx context.Context, t *service.Task[countFile]) (count, error) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return count{}, context.Cause(ctx)
		}
		return countWords(t.Args.Path)
	})
	// A file that was submitted before, by a run that was killed, is answered with the job that it
	// has.
	jobs, err := svc.Submit(ctx, requests...)
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(ctx)
	waiting, giveUp := context.WithCancel(running)
	ended := make(chan error, 1)
	go func() {
		ended <- svc.Run(running)
		giveUp() // nothing is left to wait for
	}()
	err = report(waiting, svc, jobs)
	stop()
	if broke := <-ended; broke != nil {
		return broke
	}
	return err
}

// tasks makes a request for each file of the folder.
func tasks(dir string) ([]service.Request, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var requests []service.Request
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, e.Name())
		spec := service.NewTask("count-words", countFile{path})
		// The same file with the same content is the same job.
		key := fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
		spec.ExternalID = fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
		requests = append(requests, service.Request{Spec: spec})
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s has no files to count: name another folder", dir)
	}
	return requests, nil
}

// report waits for the jobs and prints what they counted.
func report(ctx context.Context, svc *service.Service, jobs []store.Submitted) error {
	files, words, before := 0, 0, 0
	for _, s := range jobs {
		if s.Existed && s.Place.State == job.Finished {
			before++
		}
		j, err := wait(ctx, svc, s.ID)
		if err != nil {
			return err
		}
		var a countFile
		var c count
		if err := read(&j, &a, &c); err != nil {
			return err
		}
		if j.State != job.Finished {
			fmt.Printf("%-10s %6s  %s: %s\n", j.State, "-", filepath.Base(a.Path), j.Message)
			continue
		}
		fmt.Printf("%-10s %6d  %s\n", j.State, c.Words, filepath.Base(a.Path))
		files, words = files+1, words+c.Words
	}
	fmt.Printf("%s in %s; of these %d had been counted by an earlier run\n", plural(words, "word"),
		plural(files, "file"), before)
	if missed := len(jobs) - files; missed > 0 {
		return fmt.Errorf("%s not counted; a file is tried again once it has changed", plural(missed, "file"))
	}
	return nil
}

// wait returns a job once it has ended, and says why it is to be tried again meanwhile.
func wait(ctx context.Context, svc *service.Service, id job.ID) (job.Job, error) {
	for e, err := range svc.Events(ctx, id, "") {
		if err != nil {
			return job.Job{}, err
		}
		if e.State == job.Waiting && e.Message != "" {
			fmt.Printf("%-10s %6s  %s: tried again\n", e.State, "-", e.Message)
		}
	}
	return svc.Job(ctx, id)
}

// plural counts things whose name takes an s.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// read takes arguments and result out of a job.
func read(j *job.Job, a *countFile, c *count) error {
	spec := struct {
		Args *countFile `json:"args"`
	}{a}
	if err := json.Unmarshal(j.Request, &spec); err != nil {
		return err
	}
	if len(j.Result) == 0 {
		return nil
	}
	return json.Unmarshal(j.Result, c)
}

func countWords(name string) (count, error) {
	f, err := os.Open(name)
	if err != nil {
		return count{}, err
	}
	defer f.Close()
	var c count
	in := false // a word, however long it is
	for r := bufio.NewReader(f); ; {
		char, _, err := r.ReadRune()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return count{}, err
		}
		space := unicode.IsSpace(char)
		if !space && !in {
			c.Words++
		}
		in = !space
	}
}
