package node

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelresource "go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/job"
)

// traces returns what makes spans; nil while no collector is named. flush sends what is left.
func (s *serving) traces(ctx context.Context) (_ trace.TracerProvider, flush func(), err error) {
	cfg := s.config.Load()
	off, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")) // what is no truth is false
	if off || cfg.Trace.Endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" &&
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, func() {}, nil
	}
	var options []otlptracehttp.Option // the exporter knows the variables itself
	if cfg.Trace.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(cfg.Trace.Endpoint, "/")+
			"/v1/traces"))
	}
	if cfg.Trace.Headers != "" {
		headers, err := headersOf(string(cfg.Trace.Headers))
		if err != nil {
			return nil, nil, err
		}
		options = append(options, otlptracehttp.WithHeaders(headers))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	about, err := otelresource.New(ctx, otelresource.WithAttributes(attribute.String("service.name", "pawl"),
		attribute.String("service.version", Version)),
		otelresource.WithHost(), otelresource.WithProcessPID(), otelresource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	// The exporter tells of its troubles through the package's one handler.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { s.log.Warn("traces not sent", "error", err) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about),
		sdk.WithSampler(observe.Sampler(cfg.Trace.Sample)))
	return p, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			s.log.Warn("traces not sent", "error", err)
		}
	}, nil
}

// headersOf reads name=value,…; values may be escaped as in a URL.
func headersOf(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(value)
		if !ok || err != nil || strings.TrimSpace(name) == "" {
			return nil, job.Errorf(job.Invalid, "trace.headers: write name=value, and commas between several")
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}

// environ is what a program finds in its environment, so that it can tell of itself: where the
// service is and a token for its own job, if this process has an address, and the trace that it
// belongs to.
func (s *serving) environ(ctx context.Context, j *job.Job) map[string]string {
	env := map[string]string{}
	if s.url != "" {
		env[APIVariable], env[JobTokenVariable] = s.url, s.keys.Program(j.ID, j.Launch)
	}
	if t := observe.Traceparent(ctx); t != "" {
		env["TRACEPARENT"] = t
	}
	return env
}

// What a program finds in its environment that pawl serve has launched, so that it can tell of its
// own job.
const (
	APIVariable      = "PAWL_API_URL"
	JobTokenVariable = "PAWL_JOB_TOKEN"
	JobVariable      = "PAWL_JOB_ID"
)
