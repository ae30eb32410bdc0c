// Command handler counts the words of every file of a folder, each as one task. Kill it half-way
// and start it again: it goes on where it was, and no file is counted twice in the sum.
//
//	go run ./examples/handler [-data FOLDER] [-pause 300ms] DIR
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
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

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/sqlite"
)

type file struct {
	Path string `json:"path"`
}

type count struct {
	Words int `json:"words"`
}

// A counting is the job of a file.
type counting struct {
	*pawl.Handle[count]
	path   string
	before bool // an earlier run has counted it
}

var countWords = pawl.Task[file, count]{Kind: "count-words"}

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
	names, err := list(dir)
	if err != nil {
		return err
	}
	if data == "" {
		data = filepath.Join(os.TempDir(), "pawl-handler"+filepath.ToSlash(dir))
	}
	svc, err := pawl.Open(ctx, sqlite.At(data))
	if err != nil {
		return err
	}
	defer svc.Close()
	fmt.Printf("counting the words of %s in %s; the jobs are in %s\n", plural(len(names), "file"), dir, data)
	return countAll(ctx, svc, names, pause)
}

// list names the files of a folder.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no files to count: name another folder", dir)
	}
	return names, nil
}

// countAll enqueues a task for each file, and runs them until all have ended.
func countAll(ctx context.Context, svc *pawl.Service, names []string, pause time.Duration) error {
	countWords.Handle(svc, func(ctx context.Context, j *pawl.Job[file]) (count, error) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return count{}, context.Cause(ctx)
		}
		return read(j.Args.Path)
	})
	jobs, err := enqueue(ctx, svc, names)
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
	err = report(waiting, jobs)
	stop()
	if broke := <-ended; broke != nil {
		return broke
	}
	return err
}

// enqueue makes a job of each file. The same file with the same content is the same job: one that
// was enqueued before, by a run that was killed, is found again.
func enqueue(ctx context.Context, svc *pawl.Service, names []string) (jobs []counting, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		content := fmt.Sprintf("%s %d %d", name, info.Size(), info.ModTime().UnixNano())
		id := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
		h, err := countWords.Enqueue(ctx, svc, file{name}, pawl.WithID(id))
		if err != nil {
			return nil, err
		}
		j, err := h.Job(ctx)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, counting{h, name, j.State == job.Finished})
	}
	return jobs, nil
}

// report waits for the jobs and prints what they counted.
func report(ctx context.Context, jobs []counting) error {
	files, words, before := 0, 0, 0
	for _, j := range jobs {
		c, err := j.Wait(ctx)
		var missed *pawl.Ended
		if errors.As(err, &missed) {
			fmt.Printf("%-10s %6s  %s: %s\n", missed.State, "-", filepath.Base(j.path), missed.Message)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %6d  %s\n", job.Finished, c.Words, filepath.Base(j.path))
		if files, words = files+1, words+c.Words; j.before {
			before++
		}
	}
	fmt.Printf("%s in %s; of these %d had been counted by an earlier run\n", plural(words, "word"),
		plural(files, "file"), before)
	if missed := len(jobs) - files; missed > 0 {
		return fmt.Errorf("%s not counted; a file is tried again once it has changed", plural(missed, "file"))
	}
	return nil
}

// plural counts things whose name takes an s.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func read(name string) (count, error) {
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
