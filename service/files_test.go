package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A keeper is a kind whose jobs all have the same files. It runs none.
type keeper struct{ where engine.Files }

func (keeper) Step(context.Context, *engine.Run) engine.Outcome { return engine.Back() }
func (k keeper) Files(*job.Job) (engine.Files, error)           { return k.where, nil }
func (keeper) Progress(*job.Job) (job.Progress, bool)           { return job.Progress{}, false }

// blind is a file system that does not tell where links lead.
type blind struct{ files.FS }

func TestOpenOutput(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("secret", "secret")
	put("folderly/x", "not in the folder")
	put("folder/a.txt", "a")
	put("folder/sub/b.txt", "b")
	put("folder/.pawl/script", "the environment")
	put("results/c.txt", "c")
	put("results/.pawl/script", "the environment")
	link("a.txt", "folder/inside")
	link("sub", "folder/way")
	link("../secret", "folder/out")
	link("../folderly", "folder/outway")
	link(".pawl", "folder/own")
	link("nowhere", "folder/dead")
	link("folder", "moved") // the folder itself may be reached through one

	db, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	services := map[string]*service.Service{}
	for kind, fsys := range map[string]files.FS{"linker": fileslocal.FS{}, "blind": blind{fileslocal.FS{}}} {
		where := engine.Files{
			FolderFS: fsys, Folder: filepath.Join(dir, "moved"), ResultsFS: fsys, Results: filepath.Join(dir, "results"),
			Stdout: "stdout", Stderr: "stderr",
		}
		services[kind] = service.New(service.Config{
			Store: db, Broker: &local.Broker{},
			Kinds: map[string]engine.Kind{kind: keeper{where}},
		})
	}
	for _, c := range []struct {
		path    string
		content string        // what there is
		kind    job.ErrorKind // or why not
		blind   job.ErrorKind // where links cannot be followed
	}{
		{path: "a.txt", content: "a"},
		{path: "sub/b.txt", content: "b"},
		{path: "c.txt", content: "c"},
		{path: "inside", content: "a", blind: job.Invalid},
		{path: "way/b.txt", content: "b", blind: job.Invalid},
		{path: "out", kind: job.Invalid},
		{path: "outway/x", kind: job.Invalid},
		{path: "own/script", kind: job.NotFound, blind: job.Invalid},
		{path: ".pawl/script", kind: job.NotFound},
		{path: "dead", kind: job.NotFound, blind: job.Invalid},
		{path: "nothing", kind: job.NotFound},
		{path: "sub", kind: job.Invalid},
		{path: "../secret", kind: job.Invalid},
		{path: "sub/../a.txt", kind: job.Invalid},
		{path: "/etc/passwd", kind: job.Invalid},
		{path: ".", kind: job.Invalid},
		{path: "", kind: job.Invalid},
	} {
		for kind, svc := range services {
			want := c.kind
			if kind == "blind" && c.blind != "" {
				want = c.blind
			}
			id := submit(t, svc, task(kind, 0))[0].ID
			f, r, err := svc.OpenOutput(t.Context(), id, c.path)
			if want != "" || err != nil {
				if job.KindOf(err) != want {
					t.Errorf("%s, %q: %v, want %s", kind, c.path, err, want)
				}
				continue
			}
			b, err := io.ReadAll(r)
			r.Close()
			if err != nil || string(b) != c.content || f.Path != c.path || f.Size != int64(len(b)) {
				t.Errorf("%s, %q: %q, %+v, %v", kind, c.path, b, f, err)
			}
		}
	}
	for kind, svc := range services {
		id := submit(t, svc, task(kind, 0))[0].ID
		list, err := svc.Output(t.Context(), id)
		var names []string
		for _, f := range list {
			names = append(names, f.Path)
		}
		if got := strings.Join(names, " "); err != nil || got != "a.txt sub/b.txt" {
			t.Errorf("%s: %s, %v", kind, got, err)
		}
	}
}

// A far is the machine m2 as a service on m1 sees it: processes that answer as a test wants.
// Nothing runs.
type far struct {
	*testing.T
	here, there *service.Service // on m1 and on m2
	told        bytes.Buffer     // their log
	asks        []service.PeerAsk
	answer      func(host string) error // of a process; nil: it does what it is asked
	log         func(context.Context) io.ReadCloser
}

// A farPeer is one process of it.
type farPeer struct {
	*far
	ask service.PeerAsk
}

func (p farPeer) tell() error {
	p.asks = append(p.asks, p.ask)
	if p.answer == nil {
		return nil
	}
	return p.answer(p.ask.Process.Host)
}

func (p farPeer) Output(context.Context, job.ID) ([]service.File, error) {
	return []service.File{{Path: "of " + p.ask.Process.Host}}, p.tell()
}

func (p farPeer) OpenOutput(_ context.Context, _ job.ID, name string) (service.File, io.ReadSeekCloser, error) {
	return service.File{Path: name}, nil, p.tell()
}

func (p farPeer) Log(ctx context.Context, _ job.ID, _ service.LogQuery) (io.ReadCloser, error) {
	if err := p.tell(); err != nil {
		return nil, err
	}
	return p.log(ctx), nil
}

func (p farPeer) Delete(ctx context.Context, id job.ID) error {
	if err := p.tell(); err != nil {
		return err
	}
	errs, err := p.there.Here().Delete(ctx, id)
	return errors.Join(err, errors.Join(errs...))
}

func openFar(t *testing.T) *far {
	t.Helper()
	st, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	f := &far{T: t}
	service := func(machine string) *service.Service {
		return service.New(service.Config{
			Store: st, Broker: &local.Broker{}, Machine: machine, Log: slog.New(slog.NewTextHandler(&f.told, nil)),
			Peer: func(a service.PeerAsk) service.Peer { return farPeer{f, a} },
		})
	}
	f.here, f.there = service("m1"), service("m2")
	return f
}

// job submits a job of m2 that waits.
func (f *far) job() job.ID {
	f.Helper()
	return submit(f.T, f.there, service.Request{Spec: job.Spec{
		Command: []string{"true"},
		Delay:   job.Duration(time.Hour),
	}})[0].ID
}

// process is one of m2, which is alive.
func (f *far) process(host, address string) job.ID {
	f.Helper()
	return begin(f.T, f.here, time.Hour, store.Process{Host: host, PID: 7, Machine: "m2", Address: address})
}

// asked are the hosts that were asked since the last time.
func (f *far) asked() string {
	var hosts []string
	for _, a := range f.asks {
		hosts = append(hosts, a.Process.Host)
	}
	f.asks = nil
	slices.Sort(hosts)
	return strings.Join(hosts, " ")
}

func TestFilesOfAnotherMachine(t *testing.T) {
	unavailable := func(t *testing.T, err error, want ...string) {
		t.Helper()
		if job.KindOf(err) != job.Unavailable {
			t.Fatalf("error %v", err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want %s", err, w)
			}
		}
		var e *job.Error
		if errors.As(err, &e); errors.Unwrap(e.Err) != nil {
			t.Errorf("it wraps another error, so that the API keeps its text from callers: %v", err)
		}
	}
	t.Run("its processes are asked in turn until one answers", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		f.process("mute", "")
		f.process("one", "http://one:7295")
		f.process("two", "http://two:7295")
		if files, err := f.here.As("bob").Output(t.Context(), id); err != nil ||
			!strings.HasPrefix(files[0].Path, "of ") {
			t.Fatalf("%v, %v", files, err)
		}
		if len(f.asks) != 1 || f.asks[0].Principal != "bob" || f.asks[0].Tenant != "default" ||
			f.asks[0].Process.Machine != "m2" {
			t.Errorf("asked %+v", f.asks)
		}
		f.asks = nil
		f.answer = func(host string) error {
			if host == "two" {
				return job.Errorf(job.Unavailable, "refused")
			}
			return nil
		}
		if files, err := f.here.Output(t.Context(), id); err != nil || files[0].Path != "of one" {
			t.Errorf("%v, %v", files, err)
		}
		f.asked()
		f.answer = func(string) error { return job.Errorf(job.Unavailable, "connection refused") }
		_, err := f.here.Log(t.Context(), id, service.LogQuery{})
		unavailable(t, err, "on machine m2, and no process there answers: the database has heard of one at "+
			time.Now().Format("2006-"))
		if got := f.asked(); got != "one two" {
			t.Errorf("asked %s", got)
		}
		for _, inward := range []string{"one:7", "two:7", "http", "refused"} {
			if strings.Contains(err.Error(), inward) {
				t.Errorf("whoever asks is told %q: %v", inward, err)
			}
		}
		for _, want := range []string{
			"process=one:7 address=http://one:7295 error=\"connection refused\"",
			"process=two:7 address=http://two:7295",
		} {
			if !strings.Contains(f.told.String(), want) {
				t.Errorf("no %s in the log:\n%s", want, &f.told)
			}
		}
		if strings.Contains(f.told.String(), "within its host") {
			t.Errorf("addresses that lead to other hosts are taken for ones that do not:\n%s", &f.told)
		}
	})
	t.Run("one that has just begun is asked", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		f.process("one", "http://one:7295")
		f.answer = func(host string) error {
			if host != "one" {
				return nil
			}
			if len(f.asks) == 1 {
				f.process("new", "http://new:7295")
			}
			return job.Errorf(job.Closed, "it ends")
		}
		if files, err := f.here.Output(t.Context(), id); err != nil || files[0].Path != "of new" ||
			f.asked() != "new one" {
			t.Errorf("%v, %v", files, err)
		}
	})
	t.Run("an address within its host is told from others", func(t *testing.T) {
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		f := openFar(t)
		id := f.job()
		f.answer = func(string) error { return job.Errorf(job.Unavailable, "connection refused") }
		f.process(host, "http://127.0.0.1:7295")
		f.process("one", "http://127.0.0.1:7296")
		f.process("two", "https://localhost:7297")
		_, err = f.here.Output(t.Context(), id)
		unavailable(t, err, "no process there answers")
		for line := range strings.Lines(f.told.String()) {
			if strings.Contains(line, "set peer.listen or peer.url there") == strings.Contains(line,
				"address=http://127.0.0.1:7295") {
				t.Error(line)
			}
		}
		if n := strings.Count(f.told.String(), "address="); n != 3 {
			t.Errorf("%d are logged:\n%s", n, &f.told)
		}
	})
	t.Run("what a process answers is the answer", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		f.process("one", "http://one:7295")
		f.process("two", "http://two:7295")
		f.answer = func(string) error { return job.Errorf(job.NotFound, "no such file") }
		if _, _, err := f.here.OpenOutput(t.Context(), id, "x"); job.KindOf(err) != job.NotFound || len(f.asks) != 1 {
			t.Errorf("%v; asked %s", err, f.asked())
		}
		f.asked()
		if _, _, err := f.here.OpenOutput(t.Context(), id, "../x"); job.KindOf(err) != job.Invalid || len(f.asks) > 0 {
			t.Errorf("%v; asked %s", err, f.asked())
		}
	})
	t.Run("whoever gives up is told so", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		f.process("one", "http://one:7295")
		ctx, cancel := context.WithCancel(t.Context())
		f.answer = func(string) error { cancel(); return job.Errorf(job.Unavailable, "broken") }
		if _, err := f.here.Output(ctx, id); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("nobody is there who could be asked", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		_, err := f.here.Output(t.Context(), id)
		unavailable(t, err, "on machine m2, where no process is: start one there")
		session := f.process("mute", "")
		_, err = f.here.Output(t.Context(), id) // at once: it is not said from memory
		unavailable(t, err, "whose processes serve no address: start one there with the role api, or with --peer-listen")
		if _, err := f.here.Store().End(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		_, err = f.here.Output(t.Context(), id)
		unavailable(t, err, "on machine m2, which is gone since "+time.Now().Format("2006-"))
		if len(f.asks) > 0 {
			t.Errorf("asked %s", f.asked())
		}
	})
	t.Run("who was asked asks nobody", func(t *testing.T) {
		f := openFar(t)
		id := f.job()
		f.process("one", "http://one:7295")
		_, err := f.here.Here().Output(t.Context(), id)
		unavailable(t, err, "on machine m2: ask a process there")
		errs, err := f.here.Here().Delete(t.Context(), f.ended())
		if err != nil {
			t.Fatal(err)
		}
		unavailable(t, errs[0], "on machine m2")
		if len(f.asks) > 0 {
			t.Errorf("asked %s", f.asked())
		}
	})
}

// ended is a job of m2 that has ended.
func (f *far) ended() job.ID {
	f.Helper()
	id := f.job()
	if _, err := f.there.Cancel(f.Context(), id); err != nil {
		f.Fatal(err)
	}
	return id
}

func TestDeleteOfAnotherMachine(t *testing.T) {
	f := openFar(t)
	f.process("one", "http://one:7295")
	f.process("two", "http://two:7295")
	remove := func(ids ...job.ID) []error {
		t.Helper()
		errs, err := f.here.Delete(t.Context(), ids...)
		if err != nil {
			t.Fatal(err)
		}
		return errs
	}
	gone := func(id job.ID) bool {
		_, err := f.here.Job(t.Context(), id)
		return job.KindOf(err) == job.NotFound
	}
	if id := f.ended(); remove(id)[0] != nil || !gone(id) {
		t.Error("a job is not deleted through another process")
	}
	if id := f.job(); job.KindOf(remove(id)[0]) != job.Conflict || gone(id) {
		t.Error("a job that has not ended is deleted")
	}
	f.asked()

	// The first answer is lost: the second process finds nothing any more.
	id, first := f.ended(), true
	f.answer = func(string) error {
		if !first {
			return nil
		}
		first = false
		if _, err := f.there.Here().Delete(context.Background(), id); err != nil {
			t.Error(err)
		}
		return job.Errorf(job.Unavailable, "broken")
	}
	if err := remove(id)[0]; err != nil || f.asked() != "one two" {
		t.Errorf("an answer was lost: %v", err)
	}

	// Of a machine that does not answer no more is asked.
	f.answer = func(string) error { return job.Errorf(job.Unavailable, "broken") }
	mine := submit(t, f.here, service.Request{Spec: service.NewTask("mail", nil)})[0].ID
	if _, err := f.here.Cancel(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	errs := remove(f.ended(), f.ended(), mine, f.ended())
	for i, want := range []job.ErrorKind{job.Unavailable, job.Unavailable, "", job.Unavailable} {
		if want == "" && errs[i] != nil || want != "" && job.KindOf(errs[i]) != want {
			t.Errorf("%d: %v, want %q", i, errs[i], want)
		}
	}
	if got := f.asked(); got != "one two" || !gone(mine) {
		t.Errorf("asked %s", got)
	}
}

// A pipe is a log that ends when its context does.
func pipe(ctx context.Context) (*io.PipeWriter, io.ReadCloser) {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	return w, r
}

func TestFollowAnotherMachine(t *testing.T) {
	begin := func(t *testing.T, until <-chan struct{}) (*far, job.ID, *io.PipeWriter, io.ReadCloser) {
		t.Helper()
		f := openFar(t)
		id := f.job()
		f.process("one", "http://one:7295")
		var w *io.PipeWriter
		f.log = func(ctx context.Context) (r io.ReadCloser) {
			w, r = pipe(ctx)
			return r
		}
		log, err := f.here.Log(t.Context(), id, service.LogQuery{Follow: true, Until: until})
		if err != nil {
			t.Fatal(err)
		}
		go w.Write([]byte("hello"))
		hello := make([]byte, 5)
		if _, err := io.ReadFull(log, hello); err != nil || string(hello) != "hello" {
			t.Fatalf("%q, %v", hello, err)
		}
		return f, id, w, log
	}
	t.Run("it ends with the job", func(t *testing.T) {
		f, id, w, log := begin(t, nil)
		if _, err := f.there.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if rest, err := io.ReadAll(log); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		log.Close()
	})
	t.Run("it ends with a job that is deleted at once", func(t *testing.T) {
		f, id, w, log := begin(t, nil)
		if _, err := f.there.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if errs, err := f.there.Delete(t.Context(), id); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		w.Close()
		if rest, err := io.ReadAll(log); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		log.Close()
	})
	t.Run("that the other process ends is no end", func(t *testing.T) {
		_, _, w, log := begin(t, nil)
		w.Close()
		if _, err := io.ReadAll(log); job.KindOf(err) != job.Unavailable ||
			!strings.Contains(err.Error(), "has stopped") {
			t.Error(err)
		}
		log.Close()
	})
	t.Run("it ends when enough is read", func(t *testing.T) {
		until := make(chan struct{})
		_, _, _, log := begin(t, until)
		close(until)
		if _, err := io.ReadAll(log); err != nil {
			t.Error(err)
		}
		log.Close()
	})
	t.Run("it ends when it is closed", func(t *testing.T) {
		_, _, _, log := begin(t, nil)
		read := make(chan error)
		go func() {
			_, err := log.Read(make([]byte, 1))
			read <- err
		}()
		log.Close()
		if err := <-read; !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
}
