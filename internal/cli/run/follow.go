package run

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A follower prints what the program of one launch appends to its files.
type follower struct {
	line func(string) // takes what is shown, without the end of the line
	part func(string) // takes the beginning of a line that has no end yet
	name string       // of the job, for messages
	stop chan struct{}
	done chan struct{}
}

// follow begins to print files as they grow.
func (f *follower) follow(logs []logFile) {
	f.stop, f.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(f.done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			for i := range logs {
				logs[i].print(f, false)
			}
			select {
			case <-tick.C:
			case <-f.stop:
				for i := range logs {
					logs[i].print(f, true)
				}
				return
			}
		}
	}()
}

// finish prints the rest and stops.
func (f *follower) finish() {
	if f.stop != nil {
		close(f.stop)
		<-f.done
		f.stop = nil
	}
}

const (
	// mostAtOnce is how many bytes of a log are printed without leaving any out.
	mostAtOnce = 8 << 20
	// keptAtOnce is how many bytes of its end are printed where more have come.
	keptAtOnce = 1 << 20
)

// A logFile is a file that the program of one launch appends to, and how much of it has been
// printed.
type logFile struct {
	name     string // in the job's folder
	folder   string
	archived string // the folder where it is once the job's is gone
	// stale is when nothing of the launch before was alive any more. What was written until then is
	// of that one: the wrapper truncates the file when it starts the program, which may be after
	// the job is RUNNING.
	stale time.Time
	read  int64
}

// openRegular opens a file in a folder. The program may have put something else in its place: a
// pipe, on which opening would wait for ever, or a link to another user's file.
func openRegular(folder, name string) (*os.File, os.FileInfo, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// print prints the whole lines that have come since the last time; at the end of the program,
// whatever has. A file that has become shorter has been taken by the next launch.
func (l *logFile) print(f *follower, end bool) {
	file, info, err := openRegular(l.folder, l.name)
	if end && errors.Is(err, fs.ErrNotExist) {
		file, info, err = openRegular(l.archived, l.name)
	}
	if err != nil {
		return
	}
	defer file.Close()
	if info.Size() <= l.read || !info.ModTime().After(l.stale) {
		return
	}
	skip := int64(0)
	if info.Size()-l.read > mostAtOnce {
		skip = info.Size() - keptAtOnce - l.read
	}
	r := bufio.NewReaderSize(io.NewSectionReader(file, l.read+skip, info.Size()-l.read-skip), 64<<10)
	if skip > 0 {
		rest, _ := r.ReadSlice('\n')
		l.read += skip + int64(len(rest))
		f.line(fmt.Sprintf("… %d bytes left out; see pawl logs %s", skip+int64(len(rest)), f.name))
	}
	for {
		line, err := r.ReadSlice('\n')
		// A line that is longer than the buffer is printed in parts.
		if len(line) == 0 {
			return
		}
		if errors.Is(err, io.EOF) && !end {
			f.part(string(line))
			return
		}
		l.read += int64(len(line))
		f.line(string(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
