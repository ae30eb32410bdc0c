package observe_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// recorder returns where spans go, and what makes them.
func recorder(ratio float64) (*tracetest.InMemoryExporter, *sdk.TracerProvider) {
	e := tracetest.NewInMemoryExporter()
	return e, sdk.NewTracerProvider(sdk.WithSyncer(e), sdk.WithSampler(observe.Sampler(ratio)))
}

// spans returns those of a name.
func spans(e *tracetest.InMemoryExporter, name string) (found tracetest.SpanStubs) {
	for _, s := range e.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

func one(t *testing.T, e *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	found := spans(e, name)
	if len(found) != 1 {
		t.Fatalf("%d spans %q among %d", len(found), name, len(e.GetSpans()))
	}
	return found[0]
}

func attribute(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// request makes one that submits a job.
func request(w *world, traceparent string, spec job.Spec) (id job.ID) {
	h := w.o.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id = w.submit(r.Context(), service.Request{Spec: spec})[0].ID
		w.o.Answered(r.Context(), observe.Request{Operation: "submit-jobs", Status: 202})
	}))
	r := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	return id
}

func TestTraceFromSubmitToEnd(t *testing.T) {
	e, p := recorder(0) // what comes with a trace is traced all the same
	w := open(t, observe.Config{Traces: p})
	var inside trace.SpanContext
	service.Handle(w.Service, "fails", func(ctx context.Context, _ *service.Task[int]) (int, error) {
		inside = trace.SpanContextFromContext(ctx)
		return 0, service.Permanent(errors.New("about /home/ada/secret"))
	})
	id := request(w, sampled, service.NewTask("fails", 1))
	w.start()
	w.end(id)
	w.stop()

	server := one(t, e, "submit-jobs")
	if got := server.Parent.TraceID().String() + server.Parent.SpanID().String(); !strings.Contains(sampled, server.Parent.TraceID().String()) || !strings.Contains(sampled, server.Parent.SpanID().String()) {
		t.Errorf("the request's parent is %s", got)
	}
	j, err := w.Job(t.Context(), id)
	if err != nil || !strings.Contains(j.Trace, server.SpanContext.SpanID().String()) {
		t.Fatalf("the job keeps the trace %q, %v", j.Trace, err)
	}
	run := one(t, e, "run fails")
	if run.Parent.IsValid() || run.SpanContext.TraceID() == server.SpanContext.TraceID() {
		t.Error("the run is below the request")
	}
	if len(run.Links) != 1 || !run.Links[0].SpanContext.Equal(server.SpanContext.WithRemote(true)) {
		t.Errorf("the run links to %v", run.Links)
	}
	step := one(t, e, "RUNNING")
	if step.Parent.SpanID() != run.SpanContext.SpanID() || inside.SpanID() != step.SpanContext.SpanID() {
		t.Error("the step is not below its run, or the handler not in it")
	}
	for _, s := range []tracetest.SpanStub{run, step} {
		if attribute(s, "pawl.job.id") != id.String() || attribute(s, "pawl.state") != "FAILED" || attribute(s, "pawl.attempt") != "1" {
			t.Errorf("%s has %v", s.Name, s.Attributes)
		}
		if s.Status.Description != attribute(s, "pawl.code") || s.Status.Description == "" {
			t.Errorf("%s has status %v", s.Name, s.Status)
		}
	}
	for _, s := range e.GetSpans() {
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s tells %s", s.Name, a.Value.String())
			}
		}
	}
}

func TestEachAttemptIsATraceOfItsOwn(t *testing.T) {
	e, p := recorder(1)
	w := open(t, observe.Config{Traces: p})
	service.Handle(w.Service, "second", func(_ context.Context, task *service.Task[int]) (int, error) {
		if task.Job.Attempt == 1 {
			return 0, errors.New("not yet")
		}
		return 1, nil
	})
	spec := service.NewTask("second", 1)
	spec.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Kind: "constant", Base: job.Duration(time.Millisecond)}}
	id := request(w, "", spec)
	w.start()
	if j := w.end(id); j.State != job.Finished {
		t.Fatal(j.State, j.Message)
	}
	w.stop()
	runs := spans(e, "run second")
	if len(runs) != 2 || runs[0].SpanContext.TraceID() == runs[1].SpanContext.TraceID() || attribute(runs[1], "pawl.attempt") != "2" {
		t.Errorf("runs: %v", runs)
	}
}

func TestNotTraced(t *testing.T) {
	for _, tt := range []struct {
		name, traceparent string
		ratio             float64
	}{
		{"a request that its sender does not trace", unsampled, 1},
		{"a part of the requests", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, p := recorder(tt.ratio)
			w := open(t, observe.Config{Traces: p})
			w.Handle("noop")
			w.start()
			w.end(request(w, tt.traceparent, service.NewTask("noop", 1)))
			w.stop()
			if got := e.GetSpans(); len(got) != 0 {
				t.Errorf("%d spans, the first of them %s", len(got), got[0].Name)
			}
		})
	}
	t.Run("without a provider", func(t *testing.T) {
		w := open(t, observe.Config{})
		w.Handle("noop")
		w.start()
		if j := w.end(request(w, sampled, service.NewTask("noop", 1))); j.Trace != "" {
			t.Errorf("the job keeps %q", j.Trace)
		}
	})
	t.Run("those who watch over the service", func(t *testing.T) {
		e, p := recorder(1)
		w := open(t, observe.Config{Traces: p})
		h := w.o.Handler(http.NotFoundHandler())
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		if got := e.GetSpans(); len(got) != 0 {
			t.Errorf("%d spans", len(got))
		}
	})
}

func TestProgramThatRan(t *testing.T) {
	e, p := recorder(0)
	o := observe.New(observe.Config{Traces: p})
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j := job.Job{ID: job.NewID(), Kind: job.KindApp, Attempt: 1, Launch: 2, Trace: sampled}
	o.Ran(t.Context(), &j, began, began.Add(time.Hour), 3)
	s := one(t, e, "RUNNING")
	if !s.StartTime.Equal(began) || !s.EndTime.Equal(began.Add(time.Hour)) || attribute(s, "process.exit.code") != "3" || attribute(s, "pawl.launch") != "2" {
		t.Errorf("%v to %v, %v", s.StartTime, s.EndTime, s.Attributes)
	}
	if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("links %v", s.Links)
	}
	j.Trace = unsampled
	o.Ran(t.Context(), &j, began, began, 0)
	if n := len(e.GetSpans()); n != 1 {
		t.Errorf("%d spans", n)
	}
}

func TestTraceparent(t *testing.T) {
	if got := observe.Traceparent(t.Context()); got != "" {
		t.Errorf("without a span: %q", got)
	}
	_, p := recorder(1)
	ctx, span := p.Tracer("test").Start(t.Context(), "x")
	defer span.End()
	want := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
	if got := observe.Traceparent(ctx); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
