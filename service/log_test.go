package service_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// gate is a pipe at which a program waits until the test opens it.
func gate(t *testing.T) (name string, open func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func() {
		t.Helper()
		if err := os.WriteFile(name, []byte("go\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

func script(text string, gates ...string) job.Spec {
	return job.Spec{Command: append([]string{"sh", "-c", text, "sh"}, gates...)}
}

// within returns a context that ends a test which hangs.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)
	return ctx
}

func readLog(ctx context.Context, svc *service.Service, id job.ID, q service.LogQuery) (string, error) {
	r, err := svc.Log(ctx, id, q)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestLog(t *testing.T) {
	svc := embedded.Open(t)
	svc.Start(t)
	ctx := within(t)
	ended := one(t, svc.Service, service.Request{Spec: script(`seq 100000; echo "last" >&2; printf "no newline"`)})

	for _, c := range []struct {
		q    service.LogQuery
		want string
	}{
		{service.LogQuery{Tail: 1}, "no newline"},
		{service.LogQuery{Tail: 3}, "99999\n100000\nno newline"},
		{service.LogQuery{Stderr: true}, "last\n"},
		{service.LogQuery{Stderr: true, Tail: 1}, "last\n"},
		{service.LogQuery{Stderr: true, Tail: 7}, "last\n"},
		{service.LogQuery{Stderr: true, Follow: true}, "last\n"},
		{service.LogQuery{Tail: 2, Follow: true}, "100000\nno newline"},
	} {
		t.Run(fmt.Sprintf("%+v", c.q), func(t *testing.T) {
			if got, err := readLog(ctx, svc.Service, ended.ID, c.q); err != nil || got != c.want {
				t.Errorf("%.80q, %v; want %q", got, err, c.want)
			}
		})
	}
	t.Run("more lines than one block are counted from the end", func(t *testing.T) {
		got, err := readLog(ctx, svc.Service, ended.ID, service.LogQuery{Tail: 90_001})
		if err != nil || !strings.HasPrefix(got, "10001\n") || strings.Count(got, "\n") != 90_000 {
			t.Errorf("%.20q, %d lines, %v", got, strings.Count(got, "\n"), err)
		}
	})
	t.Run("all of it is read, followed or not", func(t *testing.T) {
		for _, q := range []service.LogQuery{{}, {Follow: true}, {Tail: 1_000_000}} {
			got, err := readLog(ctx, svc.Service, ended.ID, q)
			if err != nil || len(got) != 588895+len("no newline") {
				t.Errorf("%+v: %d bytes, %v", q, len(got), err)
			}
		}
	})
	t.Run("a job that waits has no log yet, but one that can be followed", func(t *testing.T) {
		spec := script("echo done")
		spec.Delay = job.Duration(time.Hour)
		id := submit(t, svc.Service, service.Request{Spec: spec})[0].ID
		if _, err := readLog(ctx, svc.Service, id, service.LogQuery{}); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := svc.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("a task has none", func(t *testing.T) {
		id := submit(t, svc.Service, task("mail", 1))[0].ID
		for _, q := range []service.LogQuery{{}, {Follow: true}} {
			if _, err := svc.Log(ctx, id, q); job.KindOf(err) != job.NotFound {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestFollow(t *testing.T) {
	svc := embedded.Open(t)
	svc.Start(t)

	t.Run("what is appended comes, and the rest from the results", func(t *testing.T) {
		ctx := within(t)
		first, openFirst := gate(t)
		second, openSecond := gate(t)
		id := submit(t, svc.Service, service.Request{Spec: script(`echo one; read x <"$1"; echo two; read x <"$2"; echo three`, first, second)})[0].ID
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		expect(t, lines, "one")
		openFirst()
		expect(t, lines, "two")
		late, err := svc.Log(ctx, id, service.LogQuery{Follow: true, Tail: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		lateLines := bufio.NewReader(late)
		expect(t, lateLines, "two")
		openSecond()
		expect(t, lateLines, "three")
		if j, err := svc.Wait(ctx, id); err != nil || j.State != job.Finished {
			t.Fatalf("%s, %v", j.State, err)
		}
		expect(t, lines, "three") // its folder is gone
		for _, l := range []*bufio.Reader{lines, lateLines} {
			if rest, err := io.ReadAll(l); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
		}
	})
	t.Run("the log of each attempt comes once", func(t *testing.T) {
		ctx := within(t)
		name, open := gate(t)
		spec := script(`echo attempt $PAWL_ATTEMPT; read x <"$1"; [ $PAWL_ATTEMPT = 3 ]`, name)
		spec.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(time.Millisecond)}}
		id := submit(t, svc.Service, service.Request{Spec: spec})[0].ID
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		for i := range 3 {
			expect(t, lines, fmt.Sprintf("attempt %d", i+1))
			open()
		}
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		// Who comes later gets that of the last attempt.
		if got, err := readLog(ctx, svc.Service, id, service.LogQuery{Follow: true}); err != nil || got != "attempt 3\n" {
			t.Errorf("%.80q, %v", got, err)
		}
	})
	t.Run("a program may truncate its log", func(t *testing.T) {
		ctx := within(t)
		name, open := gate(t)
		last, openLast := gate(t)
		id := submit(t, svc.Service, service.Request{Spec: script(`echo a long line; read x <"$1"; echo new >stdout; read x <"$2"`, name, last)})[0].ID
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		expect(t, lines, "a long line")
		open()
		expect(t, lines, "new")
		openLast()
		if _, err := svc.Wait(ctx, id); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("until: what is there comes, and then the end", func(t *testing.T) {
		ctx := within(t)
		name, open := gate(t)
		id := submit(t, svc.Service, service.Request{Spec: script(`echo one; read x <"$1"`, name)})[0].ID
		until := make(chan struct{})
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true, Until: until})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		expect(t, lines, "one")
		close(until)
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		if got, err := readLog(ctx, svc.Service, id, service.LogQuery{Follow: true, Until: until}); err != nil || got != "one\n" {
			t.Errorf("%.80q, %v", got, err)
		}
		open()
		if _, err := svc.Wait(ctx, id); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the end of the context ends it", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		name, open := gate(t)
		id := submit(t, svc.Service, service.Request{Spec: script(`echo one; read x <"$1"`, name)})[0].ID
		r, err := svc.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		expect(t, lines, "one")
		cancel()
		if _, err := lines.ReadByte(); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		open()
		if _, err := svc.Wait(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	})
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}
