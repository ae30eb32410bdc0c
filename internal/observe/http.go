package observe

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-jobs/pawl/job"
)

// requestID is the header that names a request; saneID are the names that are taken from clients.
const requestID = "X-Request-Id"

var saneID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Handler returns next, whose requests are counted, named in the log, and traced. It knows what
// came in; Answered knows what became of it.
func (o *Observer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.metrics.open.Inc()
		defer o.metrics.open.Dec()
		if isStream(r) {
			o.metrics.streams.Inc()
			defer o.metrics.streams.Dec()
		}
		r = r.Clone(r.Context()) // the header is changed
		id := r.Header.Get(requestID)
		if !saneID.MatchString(id) {
			id = job.NewID().String()
			r.Header.Set(requestID, id)
		}
		ctx := With(r.Context(), slog.String("request", id))
		if o.tracer != nil && strings.Contains(r.URL.Path, "/v1/") { // not those who watch over the service
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
			var span trace.Span
			ctx, span = o.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer),
				trace.WithAttributes(attribute.String("http.request.method", r.Method),
					attribute.String("pawl.request.id", id)))
			defer span.End()
		}
		if patient(r) {
			ctx = context.WithValue(ctx, patientKey{}, true)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/events")
}

// asksForWork reports whether a worker asks for jobs, or for news of its own: how long it waits
// stands in the body.
func asksForWork(r *http.Request) bool {
	return r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/v1/claims") ||
		strings.HasSuffix(r.URL.Path, "/v1/claims/renew"))
}

type patientKey struct{}

// patient reports whether a request asks to wait, so that it is not slow when it does.
func patient(r *http.Request) bool {
	q := r.URL.Query()
	return isStream(r) || q.Has("wait") || q.Has("follow") || q.Has("force") || asksForWork(r)
}

// A Request is one that has been answered.
type Request struct {
	Operation string // its name in the OpenAPI document; empty: it fits none
	Principal string
	Status    int // 0: the connection broke before there was one
	Took      time.Duration
	Bytes     int64 // of the answer
}

// Answered is told of each request that has been answered, with its context.
func (o *Observer) Answered(ctx context.Context, r Request) {
	operation := r.Operation
	if operation == "" {
		operation = "none"
	}
	class := "none"
	if r.Status > 0 {
		class = strconv.Itoa(r.Status/100) + "xx"
	}
	o.metrics.requests.WithLabelValues(operation, class).Observe(r.Took.Seconds())
	span := trace.SpanFromContext(ctx)
	span.SetName(operation)
	span.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	if r.Status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	level, what := slog.LevelDebug, "request"
	if waits, _ := ctx.Value(patientKey{}).(bool); !waits && o.isSlow(r.Took) {
		level, what = slog.LevelWarn, "slow request"
	}
	o.log.LogAttrs(ctx, level, what, slog.String("operation", operation), slog.String("principal", r.Principal),
		slog.Int("status", r.Status), slog.Duration("took", r.Took), slog.Int64("bytes", r.Bytes))
}
