// Command handler counts the words of every file of a folder, each as one task. Kill it half-way and start it again:
// it goes on where it was, and no file is counted twice in the sum.
//
//	go run ./examples/handler [-data FOLDER] [-pause 100ms] DIR
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
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
		fmt.Fprintln(os.Stderr, "usage: handler [-data FOLDER] [-pause 100ms] DIR")
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
	if data == "" {
		data = filepath.Join(os.TempDir(), "pawl-handler"+filepath.ToSlash(dir))
	}
	st, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return err
	}
	defer st.Close()

	svc := pawl.New(pawl.Config{Store: st, Broker: &local.Broker{}})
	pawl.Handle(svc, "count-words", func(ctx context.Context, t *pawl.Task[countFile]) (count, error) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return count{}, context.Cause(ctx)
		}
		return countWords(t.Args.Path)
	})

	requests, err := tasks(dir)
	if err != nil {
		return err
	}
	// A file that was submitted before, by a run that was killed, is answered with the job that it has.
	jobs, err := svc.Submit(ctx, requests...)
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(running) }()
	err = report(ctx, svc, jobs)
	stop()
	return errors.Join(err, <-ended)
}

// tasks makes a request for each file of the folder.
func tasks(dir string) ([]pawl.Request, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var requests []pawl.Request
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		spec := pawl.NewTask("count-words", countFile{filepath.Join(dir, e.Name())})
		// The same file with the same content is the same job.
		spec.ExternalID = fmt.Sprintf("%.64s %d %d", e.Name(), info.Size(), info.ModTime().UnixNano())
		requests = append(requests, pawl.Request{Spec: spec})
	}
	return requests, nil
}

// report waits for the jobs and prints what they counted.
func report(ctx context.Context, svc *pawl.Service, jobs []store.Submitted) error {
	files, words, before := 0, 0, 0
	for _, s := range jobs {
		if s.Existed && s.Place.State.Terminal() {
			before++
		}
		j, err := svc.Wait(ctx, s.ID)
		if err != nil {
			return err
		}
		var a countFile
		var c count
		if err := read(&j, &a, &c); err != nil {
			return err
		}
		fmt.Printf("%-10s %6d  %s\n", j.State, c.Words, filepath.Base(a.Path))
		if j.State == job.Finished {
			files, words = files+1, words+c.Words
		}
	}
	fmt.Printf("%d words in %d files; %d of the files had been counted by an earlier run\n", words, files, before)
	return nil
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
	words := bufio.NewScanner(f)
	words.Split(bufio.ScanWords)
	for words.Scan() {
		c.Words++
	}
	return c, words.Err()
}
