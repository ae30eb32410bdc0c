// Package observe says what a process does: in its log, as metrics, and as traces. It decorates the
// contracts that the process uses and changes nothing of what they do; the library knows nothing of
// it.
//
// An id of a job, a request or a trace is in logs and traces, and never a label of a metric.
// Arguments of calls are nowhere.
package observe

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Config configures an observer.
type Config struct {
	// Log receives what is slow; [slog.Default] by default.
	Log *slog.Logger
	// Slow is the time above which a call of the store or a request is logged, until SetSlow names
	// another; 0: none.
	Slow time.Duration
	// Traces makes the spans; nil: there are none. Its sampler should be [Sampler].
	Traces trace.TracerProvider
	// Version of the build.
	Version string
}

// An Observer looks on. Make one with New; its methods are safe for concurrent use.
type Observer struct {
	log      *slog.Logger
	slow     atomic.Int64
	tracer   trace.Tracer // nil: no traces
	registry *prometheus.Registry
	metrics  metrics
	session  session
}

// New returns an observer.
func New(c Config) *Observer {
	o := &Observer{log: c.Log, registry: prometheus.NewRegistry()}
	o.session.begun = make(chan struct{})
	if o.log == nil {
		o.log = slog.Default()
	}
	if c.Traces != nil {
		o.tracer = c.Traces.Tracer("github.com/pawl-jobs/pawl")
	}
	o.SetSlow(c.Slow)
	o.metrics = newMetrics(o.registry, c.Version)
	o.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pawl_session_live", Help: "1 while this process has a session whose lease was renewed in time, " +
			"and may run jobs; else 0.",
	}, func() float64 {
		if o.Session() == nil {
			return 1
		}
		return 0
	}))
	return o
}

// SetSlow sets the time above which a call or a request is logged; 0: none.
func (o *Observer) SetSlow(d time.Duration) { o.slow.Store(int64(d)) }

func (o *Observer) isSlow(took time.Duration) bool {
	slow := time.Duration(o.slow.Load())
	return slow > 0 && took > slow
}
