package observe

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-jobs/pawl/job"
)

// metrics are what this process counts and measures itself. All begin at 0 with the process.
type metrics struct {
	calls    *prometheus.HistogramVec // by operation and result
	jobs     *prometheus.HistogramVec // by operation
	requests *prometheus.HistogramVec // by operation and class of status
	open     prometheus.Gauge
	streams  prometheus.Gauge

	claimed  prometheus.Counter
	launches prometheus.Counter
	ended    *prometheus.CounterVec // by state
	changes  *prometheus.CounterVec // by outcome
	expired  prometheus.Counter
	sessions prometheus.Counter
	renewals *prometheus.CounterVec // by result
	lost     prometheus.Counter

	tests     *prometheus.CounterVec   // by tester and result
	blocked   *prometheus.CounterVec   // by code
	reblocked *prometheus.CounterVec   // by code
	released  *prometheus.CounterVec   // by code
	failed    *prometheus.CounterVec   // by code
	waited    *prometheus.HistogramVec // by code
}

// Buckets from 0.1 ms to 26 s. A call of the store takes some milliseconds where the disk is a good
// one.
var seconds = prometheus.ExponentialBuckets(0.0001, 4, 10)

// Buckets from 1 s to 9 days: a condition clears within seconds, or over a weekend.
var waits = prometheus.ExponentialBuckets(1, 3, 13)

func newMetrics(r *prometheus.Registry, version string) metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		r.MustRegister(h)
		return h
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pawl_build_info",
		Help: "1; the labels say which build this is.",
	}, []string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	r.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return metrics{
		calls: histograms("pawl_store_operation_duration_seconds",
			"Time of calls of the database, with their waiting for the disk.", seconds, "operation", "result"),
		jobs: histograms("pawl_store_operation_jobs", "Jobs that one call of the database was about.",
			[]float64{0, 1, 10, 100, 1000, 10000}, "operation"),
		requests: histograms("pawl_http_request_duration_seconds",
			"Time of requests, until all of the answer was written. Streams last as long as their readers stay.",
			seconds, "operation", "status"),
		open:    gauge("pawl_http_requests_open", "Requests that are being answered now, streams among them."),
		streams: gauge("pawl_event_streams_open", "Streams of events that are open now."),
		claimed: counter("pawl_jobs_claimed_total",
			"Jobs that this process has claimed. A program is claimed twice or more: to be launched, and to be "+
				"archived."),
		launches: counter("pawl_launches_total",
			"Programs that this process was about to launch; their intent was on disk."),
		ended: counters("pawl_jobs_ended_total", "Jobs that workers and the watcher of this process brought "+
			"to an end. Those that were canceled while they waited are not among them.", "state"),
		changes: counters("pawl_changes_total", "Changes of jobs by workers and watchers, by what became of "+
			"them: applied, diverted (by a wish), fenced (another has the job now), conflict.", "outcome"),
		expired: counter("pawl_jobs_expired_total", "Jobs taken from sessions that died."),
		sessions: counter("pawl_sessions_begun_total",
			"Sessions that this process began: one, and one more for each time that its lease was lost."),
		renewals: counters("pawl_lease_renewals_total", "Renewals of the lease.", "result"),
		lost: counter("pawl_wakeups_lost_total",
			"Wake-ups that could not be sent. Each costs a delay of a renewal at most, no job."),

		tests: counters("pawl_recovery_tests_total",
			"Tests that this process made of what blocks jobs, by what they found: clear, not_clear, error, timeout.", "tester", "result"),
		blocked: counters("pawl_recovery_blocks_total", "Jobs of this process that were blocked, by condition.",
			"code"),
		reblocked: counters("pawl_recovery_reblocks_total",
			"Of these, jobs that were blocked by what had cleared just before, as it seemed.", "code"),
		released: counters("pawl_recovery_releases_total",
			"Blocked jobs that this process let go on, by condition.", "code"),
		failed: counters("pawl_recovery_failures_total",
			"Blocked jobs that failed, for they had waited for too long or were given up, by condition.", "code"),
		waited: histograms("pawl_recovery_wait_seconds",
			"For how long jobs were blocked that this process let go on, by condition.", waits, "code"),
	}
}

// Metrics serves /metrics.
func (o *Observer) Metrics() http.Handler {
	return promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Repaired counts what repaired returns as repairs.
func (o *Observer) Repaired(repaired func() int64) {
	o.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pawl_repairs_total", Help: "What was found that no wake-up told of, or that was wrong. 0 where " +
			"nothing is broken.",
	}, func() float64 { return float64(repaired()) }))
}

// Tested counts a test of what blocks jobs.
func (o *Observer) Tested(tester, result string) {
	o.metrics.tests.WithLabelValues(tester, result).Inc()
}

// Removed counts what removed returns, by the state in which they ended, as jobs that were removed.
func (o *Observer) Removed(removed func(job.State) int64) {
	for _, s := range job.Ends {
		o.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pawl_jobs_removed_total",
			Help: "Jobs that this process removed because they were kept no longer, by the state in which " +
				"they had ended.",
			ConstLabels: prometheus.Labels{"state": string(s)},
		}, func() float64 { return float64(removed(s)) }))
	}
}

// Stalled tells how many steps stand still in each lane, for their file systems do not answer, and
// how many were left behind.
func (o *Observer) Stalled(count func() (stalled map[job.Lane]int, left int)) {
	for _, l := range []job.Lane{job.LanePrepare, job.LaneFinish} {
		o.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pawl_steps_stalled", Help: "Steps of this process that have a slot and have not moved for " +
				"five minutes, by lane: a lane of which all slots are among them stands still.",
			ConstLabels: prometheus.Labels{"lane": string(l)},
		}, func() float64 { stalled, _ := count(); return float64(stalled[l]) }))
	}
	o.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pawl_steps_left_behind", Help: "Steps that this process has left behind, for their file systems " +
			"do not answer. Each has a thread, until they do.",
	}, func() float64 { _, left := count(); return float64(left) }))
}
