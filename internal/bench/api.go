package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func apiCommand(o *Options) *cobra.Command {
	b := &apiBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "api",
		Short: "Measure the REST API: submits, gets, lists of many jobs, events to many streams",
		Long: `Api serves the API on a port of this machine, from this process, and asks it over connections that stay open. The
clients share the cores with the service; they write requests that are made beforehand and read the status and length of
the answers.

submit: --clients clients submit one task per request for --seconds seconds. Each is on disk when it is answered.
get: the same clients read single jobs, chosen at random.
list: the folder is filled up to --jobs jobs, which have run; then pages of 50 are read one after the other, by each field
that is indexed and by two of them, newest first, at pages chosen at random over the whole length of the list.
event: --streams streams follow the events of all jobs while 100 tasks a second are submitted; what counts is the time from
the call of submit to the arrival of the event of the submission at a stream.

The rival of submit and get is bare net/http: the same clients, and a handler that reads the body and answers the same
bytes without looking at them. What separates the two is the work of the service.`,
		Example: "  pawl bench api --jobs 100000 -o json",
	}, b.measure)
	cmd.Int(&b.clients, "clients", 64, 1, 1000, "clients that ask at once")
	cmd.Int(&b.seconds, "seconds", 5, 1, 600, "how long submit, get and event each last")
	cmd.Int(&b.jobs, "jobs", 1_000_000, 1000, 10_000_000, "jobs in the folder when lists are measured")
	cmd.Int(&b.streams, "streams", 200, 1, 1000, "streams that follow")
	cmd.limit = func() time.Duration {
		return time.Duration(5*b.seconds)*time.Second + time.Duration(b.jobs)*time.Millisecond + 5*time.Minute
	}
	return cmd.Command
}

type apiBench struct{ clients, seconds, jobs, streams int }

// A percentiles is how a time spreads.
type percentiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func spreadOf(ds []time.Duration) (p percentiles) {
	p.P50, p.P99, p.Max = Spread(ds)
	return p
}

func (p percentiles) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, max %.2f ms", p.P50, p.P99, p.Max)
}

type apiFigures struct {
	Clients int `json:"clients"`
	Seconds int `json:"seconds"`
	Jobs    int `json:"jobs"`
	Streams int `json:"streams"`

	SubmitPerSecond     float64                `json:"submit_per_second"`
	Submit              percentiles            `json:"submit"`
	BareSubmitPerSecond float64                `json:"bare_http_submit_per_second"`
	GetPerSecond        float64                `json:"get_per_second"`
	Get                 percentiles            `json:"get"`
	BareGetPerSecond    float64                `json:"bare_http_get_per_second"`
	Lists               map[string]percentiles `json:"list"`
	ListP99             float64                `json:"list_worst_p99_ms"`
	Event               percentiles            `json:"event"`
	Events              int                    `json:"events_received"`
	RSS                 float64                `json:"rss_mb"`
	Machine
}

// Rows implements [Figures].
func (f *apiFigures) Rows(row func(name, format string, args ...any)) {
	row("submit", "%.0f/s; %s; bare net/http %.0f/s", f.SubmitPerSecond, f.Submit, f.BareSubmitPerSecond)
	row("get", "%.0f/s; %s; bare net/http %.0f/s", f.GetPerSecond, f.Get, f.BareGetPerSecond)
	for _, name := range sortedNames(f.Lists) {
		row("list of 50, "+name, "%s", f.Lists[name])
	}
	row("event", "%s, of %d at %d streams", f.Event, f.Events, f.Streams)
	row("load", "%d clients, %d s each; lists of %d jobs; %.0f MB resident", f.Clients, f.Seconds, f.Jobs, f.RSS)
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (b *apiBench) measure(ctx context.Context, m *Measurement) (_ Figures, err error) {
	f := &apiFigures{Clients: b.clients, Seconds: b.seconds, Jobs: b.jobs, Streams: b.streams, Machine: m.Machine}
	svc, err := m.openBed(ctx, m.Dir, withSlots(200), func(s *service.Service) {
		service.Handle(s, noop, func(_ context.Context, t *service.Task[noopArgs]) (struct{}, error) {
			if t.Args.N%50 == 0 {
				return struct{}{}, service.Permanent(errors.New("one of fifty fails"))
			}
			return struct{}{}, nil
		})
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()
	site, err := openSite(ctx, api.New(api.Config{Service: svc.Service}))
	if err != nil {
		return nil, err
	}
	defer site.close()

	say := func(format string, args ...any) { fmt.Fprintf(m.Progress, format+"\n", args...) }
	say("submit and get")
	if err := b.requests(ctx, site, f); err != nil {
		return nil, err
	}
	say("submit %.0f/s (bare net/http %.0f/s), get %.0f/s (%.0f/s)", f.SubmitPerSecond, f.BareSubmitPerSecond,
		f.GetPerSecond, f.BareGetPerSecond)
	say("events")
	if err := b.events(ctx, svc, site, f); err != nil {
		return nil, err
	}
	say("event %s", f.Event)
	say("filling the folder up to %d jobs", b.jobs)
	if err := b.fill(svc); err != nil {
		return nil, err
	}
	say("lists")
	if err := b.lists(svc.ctx, site, f, say); err != nil {
		return nil, err
	}
	f.RSS = ResidentMB()
	return f, nil
}

// requests measures submit and get, and what bare net/http does with the same.
func (b *apiBench) requests(ctx context.Context, site *site, f *apiFigures) error {
	// The tasks are of a kind that nobody handles: running them is not what is measured.
	const spec = `{"kind":"idle","name":"bench","args":{"n":1}}`
	submit := request("POST", "/v1/jobs", spec)
	var mu sync.Mutex
	var made []string // guarded by mu: the paths of jobs
	rate, times, err := b.load(ctx, site, http.StatusAccepted, func(int) []byte { return submit },
		func(body []byte) error {
			var a struct{ ID string }
			if err := json.Unmarshal(body, &a); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, "/v1/jobs/"+a.ID)
			return nil
		})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	f.SubmitPerSecond, f.Submit = rate, times
	if f.BareSubmitPerSecond, err = b.bare(ctx, site, http.StatusAccepted, submit); err != nil {
		return err
	}
	gets := make([][]byte, 0, 10_000)
	for range cap(gets) {
		gets = append(gets, request("GET", made[rand.N(len(made))], ""))
	}
	pick := func(int) []byte { return gets[rand.N(len(gets))] }
	if f.GetPerSecond, f.Get, err = b.load(ctx, site, http.StatusOK, pick,
		func([]byte) error { return nil }); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	f.BareGetPerSecond, err = b.bare(ctx, site, http.StatusOK, gets[0])
	return err
}

// bare measures a handler that answers what the service answered to a request.
func (b *apiBench) bare(ctx context.Context, site *site, status int, req []byte) (float64, error) {
	c, err := site.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_, answer, err := c.ask(req)
	if err != nil {
		return 0, err
	}
	answer = slices.Clone(answer)
	other, err := openSite(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // what is asked does not matter
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(answer) //nolint:errcheck // the client says what it got
	}))
	if err != nil {
		return 0, err
	}
	defer other.close()
	rate, _, err := b.load(ctx, other, status, func(int) []byte { return req }, func([]byte) error { return nil })
	return rate, err
}

// load lets all clients ask for the time of the benchmark, and returns how many requests were
// answered in a second, and how long each took.
func (b *apiBench) load(ctx context.Context, site *site, status int, next func(client int) []byte,
	took func(body []byte) error,
) (float64, percentiles, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	times := make([][]time.Duration, b.clients)
	begin := time.Now()
	end := begin.Add(time.Duration(b.seconds) * time.Second)
	var clients sync.WaitGroup
	for i := range b.clients {
		clients.Go(func() {
			c, err := site.dial(ctx)
			if err != nil {
				cancel(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				asked := time.Now()
				if asked.After(end) {
					return
				}
				got, body, err := c.ask(next(i))
				if err == nil && got != status {
					err = fmt.Errorf("the service answers %d: %s", got, body)
				}
				if err == nil {
					err = took(body)
				}
				if err != nil {
					cancel(err)
					return
				}
				times[i] = append(times[i], time.Since(asked))
			}
		})
	}
	clients.Wait()
	if ctx.Err() != nil {
		return 0, percentiles{}, context.Cause(ctx)
	}
	all := slices.Concat(times...)
	return Rounded(float64(len(all))/time.Since(begin).Seconds(), 1), spreadOf(all), nil
}

// fill submits tasks and lets them run until there are as many jobs as are wanted.
func (b *apiBench) fill(svc *bed) error {
	const batch = 1000
	counts, err := svc.Count(svc.ctx, nil)
	if err != nil {
		return err
	}
	there := 0
	for _, n := range counts.States {
		there += n
	}
	for from := there; from < b.jobs; from += batch {
		reqs := make([]service.Request, min(batch, b.jobs-from))
		for i := range reqs {
			n := from + i
			s := service.NewTask(noop, noopArgs{n})
			s.Owner, s.Name = fmt.Sprintf("user-%d", n%97), fmt.Sprintf("name-%d", n%1009)
			if n%10 == 0 {
				s.Labels = map[string]string{"project": fmt.Sprintf("project-%d", n%13)}
			}
			reqs[i].Spec = s
		}
		if _, err := svc.Submit(svc.ctx, reqs...); err != nil {
			return err
		}
	}
	for {
		counts, err := svc.Count(svc.ctx, job.Where("kind", job.Is, noop).And("custody", job.IsNot, string(job.None)))
		if err != nil || len(counts.States) == 0 {
			return err
		}
		if err := Wait(svc.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// listed are the filters of lists that are measured, by what is said of them.
var listed = map[string]string{
	"all": "", "state": "state=FINISHED", "rare state": "state=FAILED",
	"several states": "state=FAILED,PENDING,RUNNING", "no such state": "state=BLOCKED",
	"owner": "owner=user-7", "name": "name=name-7", "kind": "kind=" + noop, "rare kind": "kind=warm",
	"queue": "queue=default", "label": "label.project=project-3",
	"owner and state": "owner=user-7 state=FAILED", "unended": "custody!=none",
}

// lists measures pages of lists.
func (b *apiBench) lists(ctx context.Context, site *site, f *apiFigures, say func(string, ...any)) error {
	c, err := site.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	f.Lists = map[string]percentiles{}
	type page struct {
		Jobs []json.RawMessage
		Next string
	}
	read := func(filter string, limit int, cursor string) (p page, took time.Duration, err error) {
		q := url.Values{"limit": {fmt.Sprint(limit)}}
		if filter != "" {
			q.Set("filter", filter)
		}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		begin := time.Now()
		status, body, err := c.ask(request("GET", "/v1/jobs?"+q.Encode(), ""))
		took = time.Since(begin)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("list %q: the service answers %d: %s", filter, status, body)
		}
		if err == nil {
			err = json.Unmarshal(body, &p)
		}
		return p, took, err
	}
	for name, filter := range listed {
		// The pages at which to look are those behind every thousandth job.
		cursors := []string{""}
		for cursor := ""; len(cursors) == 1 || cursor != ""; cursors = append(cursors, cursor) {
			p, _, err := read(filter, 1000, cursor)
			if err != nil {
				return err
			}
			cursor = p.Next
		}
		cursors = cursors[:len(cursors)-1]
		var times []time.Duration
		for range 500 {
			_, took, err := read(filter, 50, cursors[rand.N(len(cursors))])
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		f.Lists[name] = spreadOf(times)
		say("list %s: %s", name, f.Lists[name])
		f.ListP99 = max(f.ListP99, f.Lists[name].P99)
	}
	return nil
}

// events measures how soon an event arrives at streams that follow.
func (b *apiBench) events(ctx context.Context, svc *bed, site *site, f *apiFigures) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const each = 10 * time.Millisecond
	n := b.seconds * int(time.Second/each)
	begin := time.Now()
	submitted := make([]atomic.Int64, n) // when, since begin
	arrived := make([][]time.Duration, b.streams)
	var ready, streams sync.WaitGroup
	ready.Add(b.streams)
	for i := range b.streams {
		streams.Go(func() {
			err := site.follow(ctx, "/v1/events?after=end&follow=true", ready.Done, func(data []byte) (bool, error) {
				at := time.Since(begin)
				if !json.Valid(data) {
					return false, fmt.Errorf("not an event: %s", data)
				}
				k := len(arrived[i]) // they come in order
				arrived[i] = append(arrived[i], at-time.Duration(submitted[k].Load()))
				return len(arrived[i]) < n, nil
			})
			if err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("stream: %w", err))
			}
		})
	}
	defer streams.Wait()
	all := make(chan struct{})
	go func() {
		ready.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	start := time.Now()
	for k := range n {
		if err := Wait(ctx, time.Until(start.Add(time.Duration(k)*each))); err != nil {
			return context.Cause(ctx)
		}
		submitted[k].Store(int64(time.Since(begin)))
		if _, err := svc.Submit(svc.ctx, service.Request{Spec: service.NewTask("idle", k)}); err != nil {
			return err
		}
	}
	streams.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	got := slices.Concat(arrived...)
	f.Event, f.Events = spreadOf(got), len(got)
	return nil
}

// A site is a server on a port of this machine.
type site struct {
	addr string
	srv  *http.Server
	done chan struct{}
}

func openSite(ctx context.Context, h http.Handler) (*site, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &site{
		addr: l.Addr().String(), srv: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		s.srv.Serve(l) //nolint:errcheck // it ends with close
	}()
	return s, nil
}

func (s *site) close() {
	s.srv.Close()
	<-s.done
}
