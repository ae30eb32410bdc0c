package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
)

// TestKilledAndContinued kills the service in the middle of a text. Another one goes on.
func TestKilledAndContinued(t *testing.T) {
	ctx, dsn := t.Context(), testenv.Postgres(t).Database(t)
	bin := filepath.Join(t.TempDir(), "library")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as most builds are: most of it is compiled then
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	serve := func(pace time.Duration) (c *exec.Cmd, url string) {
		t.Helper()
		c = exec.Command(bin, "-db", dsn, "-listen", "127.0.0.1:0", "-pace", pace.String())
		c.Stderr = os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		address, ok := strings.CutPrefix(strings.TrimSpace(line), "serving at ")
		if err != nil || !ok {
			t.Fatalf("%q, %v", line, err)
		}
		return c, "http://" + address + "/texts"
	}
	ask := func(resp *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s: %s, %v", resp.Status, text, err)
		}
		return string(text)
	}

	first, url := serve(100 * time.Millisecond)
	body := strings.NewReader(strings.Repeat("two words\n", 20))
	if got := ask(http.Post(url, "text/plain", body)); got != "text 1\n" { //nolint:bodyclose // ask closes it
		t.Fatalf("%q", got)
	}
	svc, err := pawl.Open(ctx, postgres.At(dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	db, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var name string
	if err := db.QueryRow(ctx, `SELECT job::text FROM texts`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	id, err := job.ParseID(name)
	if err != nil {
		t.Fatal(err)
	}
	for told := false; !told; {
		v, err := svc.Jobs().View(ctx, id)
		if err != nil || v.State.Terminal() {
			t.Fatalf("%s: %s, %v", v.State, v.Message, err)
		}
		told = v.Progress != nil
	}
	first.Process.Kill()
	first.Wait()

	_, url = serve(time.Millisecond)
	result, err := read.Find(svc, id).Wait(ctx)
	if err != nil || result != (count{Read: 20, Words: 40}) {
		t.Errorf("%+v, %v", result, err)
	}
	j, err := svc.Jobs().Job(ctx, id)
	if err != nil || j.Attempt != 1 || j.Recoveries != 1 {
		t.Errorf("attempt %d, %d recoveries, %v", j.Attempt, j.Recoveries, err)
	}
	if got := ask(http.Get(url)); !strings.HasPrefix(got, "text 1: FINISHED {") { //nolint:bodyclose // ask closes it
		t.Errorf("%q", got)
	}
}
