package observe

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A job is traced when the request that submitted it was. A job may take weeks and several
// processes, so its work is not below that request: each run, from a claim until the job leaves the
// process, is a trace of its own that links to the request, and so is the time for which its
// program ran. The attribute pawl.job.id finds them all.

// traceparent is the header, and the variable of programs, that names a trace; see W3C Trace
// Context.
const traceparent = "traceparent"

// Sampler samples what links to something exactly when that was sampled, and else the part ratio of
// what no trace came with.
func Sampler(ratio float64) sdk.Sampler {
	return linked{sdk.ParentBased(sdk.TraceIDRatioBased(ratio))}
}

type linked struct{ sdk.Sampler }

func (s linked) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if len(p.Links) == 0 {
		return s.Sampler.ShouldSample(p)
	}
	r := sdk.SamplingResult{Decision: sdk.Drop, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if slices.ContainsFunc(p.Links, func(l trace.Link) bool { return l.SpanContext.IsSampled() }) {
		r.Decision = sdk.RecordAndSample
	}
	return r
}

// traced returns jobs that know the trace of ctx, if it has one.
func (o *Observer) traced(ctx context.Context, jobs []store.New) []store.New {
	if o.tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return jobs
	}
	name := Traceparent(ctx)
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if jobs[i].Job.Trace == "" {
			jobs[i].Job.Trace = name
		}
	}
	return jobs
}

// Traceparent names the span of ctx, as the header of that name does; it is empty without one.
func Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[traceparent]
}

// link returns the link from what is done for j to the request that submitted it; false when that
// was not traced.
func link(j *job.Job) (trace.Link, bool) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: j.Trace})
	s := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: s}, s.IsSampled()
}

func attributes(j *job.Job) trace.SpanStartEventOption {
	return trace.WithAttributes(
		attribute.String("pawl.job.id", j.ID.String()), attribute.String("pawl.job.kind", j.Kind),
		attribute.String("pawl.queue", j.Queue), attribute.Int("pawl.attempt", j.Attempt),
	)
}

// Run implements engine.Tracer.
func (o *Observer) Run(ctx context.Context, j *job.Job) (context.Context, func(job.Entry)) {
	ctx = With(ctx, slog.String("job", j.ID.String()), slog.String("tenant", j.Tenant))
	if o.tracer == nil || j.Trace == "" {
		return ctx, func(job.Entry) {}
	}
	l, ok := link(j)
	if !ok {
		return ctx, func(job.Entry) {}
	}
	ctx, span := o.tracer.Start(ctx, "run "+j.Kind, trace.WithNewRoot(), trace.WithLinks(l),
		trace.WithSpanKind(trace.SpanKindConsumer), attributes(j))
	return ctx, func(e job.Entry) { endSpan(span, e) }
}

// Step implements engine.Tracer.
func (o *Observer) Step(ctx context.Context, j *job.Job) (context.Context, func(job.Entry)) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(job.Entry) {}
	}
	ctx, span := o.tracer.Start(ctx, string(j.State), attributes(j))
	return ctx, func(e job.Entry) { endSpan(span, e) }
}

// endSpan says what something came to. Messages stay with the job: they may name its files.
func endSpan(span trace.Span, e job.Entry) {
	if e.State == "" {
		span.SetStatus(codes.Error, "the process lost the job")
	} else {
		span.SetAttributes(attribute.String("pawl.state", string(e.State)))
	}
	if e.Code != "" {
		span.SetAttributes(attribute.String("pawl.code", string(e.Code)))
		if e.Code != job.NormalCompletion {
			span.SetStatus(codes.Error, string(e.Code))
		}
	}
	span.End()
}

// Ran records that the program of j ran.
func (o *Observer) Ran(ctx context.Context, j *job.Job, began, ended time.Time, code int) {
	if o.tracer == nil || j.Trace == "" {
		return
	}
	l, ok := link(j)
	if !ok {
		return
	}
	_, span := o.tracer.Start(ctx, string(job.Running), trace.WithNewRoot(), trace.WithLinks(l),
		trace.WithTimestamp(began), attributes(j),
		trace.WithAttributes(attribute.Int("pawl.launch", j.Launch), attribute.Int("process.exit.code", code)))
	if code != 0 {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(ended))
}
