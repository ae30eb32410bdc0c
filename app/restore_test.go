package app_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

func (sqliteFolder) save(h *house) { h.copy("db", "saved") }

func (sqliteFolder) restore(h *house) {
	if err := os.RemoveAll(filepath.Join(h.dir, "db")); err != nil {
		h.Fatal(err)
	}
	h.copy("saved", "db")
}

func (h *house) copy(from, to string) {
	h.Helper()
	if err := os.CopyFS(filepath.Join(h.dir, to), os.DirFS(filepath.Join(h.dir, from))); err != nil {
		h.Fatal(err)
	}
}

// postgresDatabase is a database of a server of the test's own.
type postgresDatabase struct {
	server *testenv.Server
	name   string
}

func (d postgresDatabase) open(h *house) (store.Store, error) {
	dsn := d.server.DSN(d.name)
	m, err := postgres.NewMigrator(dsn, "pawl")
	if err != nil {
		return nil, err
	}
	if err := m.Up(h.ctx); err != nil {
		return nil, err
	}
	if err := m.Close(); err != nil {
		return nil, err
	}
	return postgres.Open(h.ctx, dsn, postgres.Options{Schema: "pawl"})
}

func (d postgresDatabase) save(h *house) {
	d.server.CreateDatabase(h.T, d.name+"_saved", d.name)
}

func (d postgresDatabase) restore(h *house) {
	d.server.Psql(h.T, "postgres", "-c", fmt.Sprintf("drop database %s with (force)", d.name))
	d.server.CreateDatabase(h.T, d.name, d.name+"_saved")
}

// closed closes the store of a house whose service has stopped, and opens it again after f.
func (h *house) closed(f func()) {
	h.Helper()
	if err := h.store.Close(); err != nil {
		h.Fatal(err)
	}
	f()
	var err error
	if h.store, err = h.db.open(h); err != nil {
		h.Fatal(err)
	}
}

var update = flag.Bool("update", false, "write the golden file anew")

// A keeper keeps jobs in a state until the service stops.
type keeper struct {
	mortal
	at      map[string]job.State // by name
	arrived func(name string)
}

func (k keeper) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if k.at[r.Job.Name] != r.Job.State {
		return k.mortal.Step(ctx, r)
	}
	k.arrived(r.Job.Name)
	<-ctx.Done()
	return engine.Back()
}

// A stumbler fails the first attempts of jobs that are late before they are launched.
type stumbler struct{ mortal }

func (s stumbler) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if strings.Contains(r.Job.Name, "late:") && r.Job.State == job.StagingInputs && r.Job.Attempt == 1 {
		return engine.Retry(job.Entry{Code: job.StagingFailed, Message: "it stumbled"})
	}
	return s.mortal.Step(ctx, r)
}

// A dier dies before it launches what it is told to.
type dier struct {
	runner.Runner
	dies func(ctx context.Context, k runner.Key) bool
}

func (d dier) Launch(ctx context.Context, k runner.Key, p runner.Plan) (runner.Handle, error) {
	if d.dies(ctx, k) {
		panic(death{})
	}
	return d.Runner.Launch(ctx, k, p)
}

// Where a job stands when the database is saved, beside its states.
const (
	notYet  job.State = "not submitted"
	intent  job.State = "launch intended"
	revoked job.State = "pending, and its first launch is revoked later"
)

// A lost job is one whose way from the backup on is lost.
type lost struct {
	at   job.State // when the database is saved
	fate string    // when it is restored
	want string    // in the end

	id   job.ID
	gate string // it goes on when it is let through
}

func (l *lost) name() string {
	return strings.ReplaceAll(fmt.Sprintf("%s, %s", l.at, l.fate), "_", " ")
}

// What becomes of programs before the database is restored.
const (
	over       = "over"       // it has ended well, and its folder is cleaned
	deleted    = "deleted"    // it has ended badly, and the job was deleted
	failed     = "failed"     // it has ended badly, and its folder is there
	runs       = "runs"       // it runs
	secondRuns = "2: runs"    // its second attempt runs
	secondOver = "2: over"    // its second attempt has ended well
	lateRuns   = "late: runs" // its second attempt runs, and was the first one to be launched
	lateOver   = "late: over" // the same, and it has ended well
)

// program appends a line to the ledger first, and then does as its fate says.
const program = `echo "$PAWL_JOB_NAME, attempt $PAWL_ATTEMPT" >> "$2"
case $3.$0 in RUNNING.runs) ;; RUNNING.*) [ $PAWL_ATTEMPT = 1 ] && read line < "$1";; esac
case $0 in 2:*) [ $PAWL_ATTEMPT = 1 ] && exit 1;; esac
case $0 in *runs) read line < "$1";; failed|deleted) exit 3;; esac`

// After a restore of the database no program is launched that has been launched before, wherever
// its job stood when the database was saved and whatever became of it since. Programs that run are
// taken over, and ends are told.
func TestRestore(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testRestore(t, sqliteFolder{}) })
	t.Run("postgres", func(t *testing.T) {
		server := testenv.Postgres(t)
		d := postgresDatabase{server, "restored"}
		server.CreateDatabase(t, "restored", "")
		t.Cleanup(func() {
			server.Psql(t, "postgres", "-c", "drop database if exists restored with (force)")
			server.Psql(t, "postgres", "-c", "drop database if exists restored_saved with (force)")
		})
		testRestore(t, d)
	})
}

// losses are all ways of jobs that the test plays.
func losses() (jobs []*lost) {
	add := func(want, fate string, states ...job.State) {
		for _, at := range states {
			jobs = append(jobs, &lost{at: at, fate: fate, want: want})
		}
	}
	early := []job.State{job.Pending, job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob, intent, revoked}
	add("FAILED RAN_BEFORE", over, append(early, job.Running, job.Archiving)...)
	add("FAILED PROGRAM_FAILED", failed, append(early, job.Running)...)
	add("FINISHED NORMAL_COMPLETION", runs, append(early, job.Running)...)
	add("FAILED RAN_BEFORE", deleted, append(early, job.Running)...)
	add("FINISHED NORMAL_COMPLETION", secondRuns, append(early, job.Running, job.Archiving)...)
	add("FAILED RAN_BEFORE", secondOver, append(early, job.Running, job.Archiving)...)
	add("FINISHED NORMAL_COMPLETION", lateRuns, early[:3]...)
	add("FAILED RAN_BEFORE", lateOver, early[:3]...)
	add("FINISHED NORMAL_COMPLETION", over, job.Finished)
	add("", over, notYet)
	add("", runs, notYet)
	return jobs
}

func testRestore(t *testing.T, db database) {
	ledger := filepath.Join(t.TempDir(), "ledger")
	lines := func() []string {
		b, err := os.ReadFile(ledger)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		return strings.Split(string(b), "\n")
	}
	jobs := losses()
	wide := func(p *parts) {
		n := len(jobs)
		p.slots = map[job.Lane]int{job.LanePrepare: n, job.LaneLaunch: n, job.LaneFinish: n}
		p.grace = time.Nanosecond
	}

	// Until the database is saved.
	var mu sync.Mutex
	arrived := map[string]bool{}
	arrive := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		arrived[name] = true
	}
	var h *house
	named := func(id job.ID) *lost {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range jobs {
			if l.id == id {
				return l
			}
		}
		return &lost{}
	}
	keep := map[string]job.State{}
	for _, l := range jobs {
		keep[l.name()] = l.at
	}
	h = openOn(t, db, wide, func(p *parts) {
		p.step = func(k mortal) engine.Kind { return keeper{k, keep, arrive} }
		p.Local.Runner = dier{p.Local.Runner, func(ctx context.Context, k runner.Key) bool {
			l := named(k.Job)
			if l.at != intent {
				return false
			}
			arrive(l.name())
			<-ctx.Done()
			return true
		}}
	})
	submit := func(l *lost) {
		l.gate = h.gate()
		s := scripted(program, l.fate, l.gate, ledger, string(l.at))
		s.Name = l.name()
		if l.second() {
			s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: job.Duration(time.Nanosecond)}}
		}
		mu.Lock()
		defer mu.Unlock()
		l.id = h.submit(s)
	}
	early := func(l *lost) bool { return l.at != notYet && l.at != job.Pending && l.at != revoked }
	for _, l := range jobs {
		if early(l) {
			submit(l)
		}
	}
	for _, l := range jobs {
		switch {
		case !early(l):
		case l.at == job.Running:
			h.poll(l.name()+" runs", func() bool { return slices.Contains(lines(), l.line(1)) })
			h.until(l.id, state(job.Running))
		case l.at == job.Finished:
			h.end(l.id)
		default:
			h.poll(l.name(), func() bool {
				mu.Lock()
				defer mu.Unlock()
				return arrived[l.name()]
			})
		}
	}
	h.stop()
	for _, l := range jobs {
		if l.at == job.Pending || l.at == revoked {
			submit(l)
		}
	}
	h.closed(func() { db.save(h) })

	// What is lost.
	h.start(wide, func(p *parts) {
		p.step = func(k mortal) engine.Kind { return stumbler{k} }
		p.Local.Runner = dier{p.Local.Runner, func(_ context.Context, k runner.Key) bool { return named(k.Job).at == revoked && k.Launch == 1 }}
	})
	for _, l := range jobs {
		if l.at == notYet {
			submit(l)
		}
		if l.at == job.Running && l.fate != runs {
			h.pass(l.gate)
		}
	}
	for _, l := range jobs {
		switch l.fate {
		case runs, secondRuns, lateRuns:
			h.poll(l.name(), func() bool { return slices.Contains(lines(), l.line(l.attempt())) })
		default:
			want := job.Finished
			if l.fate == failed || l.fate == deleted {
				want = job.Failed
			}
			if j := h.end(l.id); j.State != want {
				t.Fatalf("%s: %s %s %s", l.name(), j.State, j.Code, j.Message)
			}
			if l.fate == deleted {
				if errs, err := h.svc.Delete(h.ctx, l.id); errors.Join(append(errs, err)...) != nil {
					t.Fatal(errs, err)
				}
			}
		}
	}
	h.stop()
	h.closed(func() { db.restore(h) })
	compared(h, jobs)

	// Nothing of it runs again.
	before := lines()
	h.start(wide)
	for _, l := range jobs {
		if strings.HasSuffix(l.fate, runs) {
			h.pass(l.gate)
		}
	}
	for _, l := range jobs {
		if l.at == notYet {
			if _, err := h.svc.Job(h.ctx, l.id); job.KindOf(err) != job.NotFound {
				t.Errorf("%s: %v", l.name(), err)
			}
			continue
		}
		j := h.end(l.id)
		if got := fmt.Sprint(j.State, " ", j.Code); got != l.want || j.Attempt != l.attempt() && j.Code != job.RanBefore {
			t.Errorf("%s: %s in attempt %d: %s\n%s", l.name(), got, j.Attempt, j.Message, h.history(l.id))
		}
		if j.Code == job.RanBefore {
			_, results := app.Places(&j)
			code := map[bool]string{false: "with exit code 0; its results are in " + results, true: "with exit code 3; no results of it are in " + results}
			if !strings.Contains(j.Message, code[l.fate == deleted]) {
				t.Errorf("%s: it does not say what became of it: %s", l.name(), j.Message)
			}
		}
	}
	h.poll("the watcher has noticed what runs and is unknown", func() bool {
		_, unknown := h.eyes.Differ()
		return unknown == 1
	})
	for range 2 {
		endUnknown(h)
	}
	if after := lines(); !slices.Equal(after, before) {
		t.Errorf("programs ran again: %q", after[len(before)-1:])
	}
	all := slices.Sorted(slices.Values(before))
	if once := slices.Compact(slices.Clone(all)); !slices.Equal(all, once) {
		t.Errorf("attempts ran more than once: %q", all)
	}
}

// second reports whether the job has two attempts.
func (l *lost) second() bool {
	return strings.HasPrefix(l.fate, "2:") || strings.HasPrefix(l.fate, "late:")
}

// attempt is that which was launched last.
func (l *lost) attempt() int {
	if l.second() {
		return 2
	}
	return 1
}

// line is what the job's program writes to the ledger.
func (l *lost) line(attempt int) string { return fmt.Sprintf("%s, attempt %d", l.name(), attempt) }

// compared holds what the host is found to know beyond the database against testdata/restore.txt.
func compared(h *house, jobs []*lost) {
	h.Helper()
	rep, err := h.kind.Compare(h.ctx, h.kind.Local(), h.store, 0)
	if err != nil {
		h.Fatal(err)
	}
	got := []string{fmt.Sprintf("%d agree", rep.Agree)}
	add := func(list string, all []app.Found) {
		for _, f := range all {
			i := slices.IndexFunc(jobs, func(l *lost) bool { return l.id == f.Job })
			line := fmt.Sprintf("%s: %s: %s, attempt %d, launch %d", list, jobs[i].name(), f.Program, f.Attempt, f.Launch)
			if f.ExitCode != nil {
				line += fmt.Sprintf(", exit code %d", *f.ExitCode)
			}
			if (f.Folder != "") != exists(f.Folder) || (f.Results != "") != exists(f.Results) {
				h.Errorf("%s: folder %q, results %q", line, f.Folder, f.Results)
			}
			if since := time.Since(f.Since); since < 0 || since > 2*time.Minute {
				h.Errorf("%s: since %v", line, f.Since)
			}
			got = append(got, line)
		}
	}
	add("behind", rep.Behind)
	add("unknown", rep.Unknown)
	slices.Sort(got)
	if *update {
		h.write(strings.Join(got, "\n")+"\n", "testdata", "restore.txt")
	}
	want := strings.Split(strings.TrimSpace(h.read("testdata", "restore.txt")), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("what the host knows (-want +got):\n%s", diff)
	}
}

// endUnknown ends what the database does not know. Results stay.
func endUnknown(h *house) {
	h.Helper()
	rep, err := h.kind.Compare(h.ctx, h.kind.Local(), h.store, 0)
	if err != nil {
		h.Fatal(err)
	}
	if len(rep.Behind) > 0 {
		h.Errorf("still behind: %+v", rep.Behind)
	}
	for _, f := range rep.Unknown {
		copies := filepath.Join(h.dir, "archive", ".staging", ".pawl-"+f.Job.String()+"-5")
		h.write("a result", copies, "file")
		if err := h.kind.EndUnknown(h.ctx, h.kind.Local(), &f); err != nil {
			h.Error(err)
		}
		if exists(copies) {
			h.Errorf("%+v; copies that were not published are there", f)
		}
		if f.Removed != (f.Folder != "") || f.Folder != "" && exists(f.Folder) || f.Results != "" && !exists(f.Results) {
			h.Errorf("%+v; its folder is there: %t, its results: %t", f, exists(f.Folder), exists(f.Results))
		}
	}
	rep, err = h.kind.Compare(h.ctx, h.kind.Local(), h.store, 0)
	if err != nil || len(rep.Unknown) != 1 || rep.Unknown[0].Results == "" || rep.Unknown[0].Program != app.Cleaned {
		h.Errorf("unknown after that: %+v, %v", rep.Unknown, err)
	}
}

// A launch that was armed in the time that is lost, by a process that died with it, is revoked
// before there is another.
func TestLaunchArmedBeforeARestore(t *testing.T) {
	h := open(t)
	h.stop()
	id := h.submit(shell("echo it ran"))
	boot, err := h.machine.Boot(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.write("armed token "+boot+"\n", h.dir, "work", "default", id.String(), runner.Folder, "launch.1.1")
	h.start()
	j := h.end(id)
	if j.State != job.Finished || j.Attempt != 1 || j.Launch != 2 {
		t.Fatalf("%s in attempt %d, launch %d: %s", j.State, j.Attempt, j.Launch, j.Message)
	}
	_, results := app.Places(&j)
	if got := h.read(results, "stdout"); got != "it ran\n" {
		t.Errorf("stdout %q", got)
	}
}
