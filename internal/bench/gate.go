package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func gateCommand(o *Options) *cobra.Command {
	b := &gateBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "gate",
		Short: "Measure how many tasks per second go through under a limit",
		Long: `Gate submits no-op tasks, --batch of them with each call, while the service runs them in --slots
slots: in one part of a round under no limit; in one all under the same key, of which --most jobs
may have a turn at once; and in one under --keys keys with the same limit each, in turn. Under a
limit a job waits until it has its turn, and each end hands one on. The tasks are those of --owners
owners, in turn: who waits for the same shares what is free.

What ends together is committed together, so with more slots than turns the part without a limit has
the larger transactions: the ratio depends on --slots. With no more slots than --most it is they
that hold jobs back, and hardly the limit.

What is counted: from the first call of submit until the last job is FINISHED in the database. The
three parts take turns, each on a fresh database, --rounds times; with --db there is one round
before these that does not count. Figures are medians; a ratio is the median of the rounds' own
ratios, since the parts of a round share the state of a busy machine. most_running is how many
handlers of one key were ever seen at once: more than --most ends the benchmark.`,
		Example: "  pawl bench gate --jobs 20000 --rounds 5",
	}, b.measure)
	cmd.Int(&b.jobs, "jobs", 50_000, 1, 10_000_000, "tasks in each part of a round")
	cmd.Int(&b.slots, "slots", 100, 1, 10_000, "tasks that run at once, if no limit holds them")
	cmd.Int(&b.batch, "batch", 1000, 1, 100_000, "tasks in each call of submit")
	cmd.Int(&b.rounds, "rounds", 3, 1, 100, "rounds, of all three parts each")
	cmd.Int(&b.most, "most", 50, 1, job.MaxTurns, "jobs that may have a turn of a key at once")
	cmd.Int(&b.keys, "keys", 1000, 1, 100_000, "keys in the part that has many")
	cmd.Int(&b.owners, "owners", 1, 1, 1_000_000, "owners of the tasks")
	cmd.Timeout(10 * time.Minute)
	return cmd.Command
}

type gateBench struct {
	jobs, slots, batch, rounds, most, keys, owners int
}

type gateFigures struct {
	Jobs   int `json:"jobs"`
	Slots  int `json:"slots"`
	Batch  int `json:"batch"`
	Rounds int `json:"rounds"`
	Most   int `json:"most"`
	Keys   int `json:"keys"`
	Owners int `json:"owners"`

	Unlimited   float64   `json:"unlimited_jobs_per_second"`
	OneKey      float64   `json:"one_key_jobs_per_second"`
	ManyKeys    float64   `json:"many_keys_jobs_per_second"`
	RatioOne    float64   `json:"ratio_one_key"`
	RatioMany   float64   `json:"ratio_many_keys"`
	MostRunning int       `json:"most_running"` // of one key
	EachNone    []float64 `json:"unlimited_jobs_per_second_rounds"`
	EachOne     []float64 `json:"one_key_jobs_per_second_rounds"`
	EachMany    []float64 `json:"many_keys_jobs_per_second_rounds"`
	Machine
}

// Rows implements [Figures].
func (f *gateFigures) Rows(row func(name, format string, args ...any)) {
	row("no limit", "%.0f jobs/s, median of %.0f", f.Unlimited, f.EachNone)
	row("one key", "%.0f jobs/s, median of %.0f; %.0f %% of no limit", f.OneKey, f.EachOne, 100*f.RatioOne)
	row(fmt.Sprintf("%d keys", f.Keys), "%.0f jobs/s, median of %.0f; %.0f %% of no limit", f.ManyKeys, f.EachMany,
		100*f.RatioMany)
	row("limit", "%d for each key; %d of one key were seen to run at once", f.Most, f.MostRunning)
	row("load", "%d no-op tasks of %s, %d slots, %d to a submit, %d rounds", f.Jobs,
		phrase.Plural(f.Owners, "owner"), f.Slots, f.Batch, f.Rounds)
}

func (b *gateBench) measure(ctx context.Context, m *Measurement) (Figures, error) {
	f := &gateFigures{
		Jobs: b.jobs, Slots: b.slots, Batch: b.batch, Rounds: b.rounds, Most: b.most, Keys: b.keys,
		Owners: b.owners, Machine: m.Machine,
	}
	if m.DB != "" {
		if _, err := b.round(ctx, m, 0, f); err != nil {
			return nil, err
		}
		fmt.Fprintln(m.Progress, "the round that does not count is over")
	}
	var one, many []float64
	for i := range b.rounds {
		r, err := b.round(ctx, m, i, f)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(m.Progress, "round %d of %d: no limit %.0f jobs/s, one key %.0f, %d keys %.0f\n", i+1, b.rounds,
			r[0], r[1], b.keys, r[2])
		f.EachNone, f.EachOne, f.EachMany = append(f.EachNone, Rounded(r[0], 1)),
			append(f.EachOne, Rounded(r[1], 1)), append(f.EachMany, Rounded(r[2], 1))
		one, many = append(one, r[1]/r[0]), append(many, r[2]/r[0])
	}
	f.Unlimited, f.OneKey, f.ManyKeys = Median(f.EachNone), Median(f.EachOne), Median(f.EachMany)
	f.RatioOne, f.RatioMany = Rounded(Median(one), 3), Rounded(Median(many), 3)
	return f, nil
}

// round measures the three parts, in an order that changes: jobs per second with no key, one, and
// many.
func (b *gateBench) round(ctx context.Context, m *Measurement, i int, f *gateFigures) (perSecond [3]float64,
	err error,
) {
	parts := []int{0, 1, 2}
	if i%2 == 1 { // what drifts weighs on all
		slices.Reverse(parts)
	}
	for _, part := range parts {
		dir := filepath.Join(m.Dir, fmt.Sprintf("%d-%d", i, part))
		runtime.GC()
		took, err := b.service(ctx, m, dir, []int{0, 1, b.keys}[part], f)
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			return perSecond, err
		}
		perSecond[part] = float64(b.jobs) / took.Seconds()
	}
	return perSecond, nil
}

// service measures one part in dir.
func (b *gateBench) service(ctx context.Context, m *Measurement, dir string, keys int,
	f *gateFigures,
) (took time.Duration, err error) {
	var handled, most atomic.Int64
	running := make([]atomic.Int64, keys+1)
	all := make(chan struct{})
	svc, err := m.openBed(ctx, dir, withSlots(b.slots), func(s *service.Service) {
		service.Handle(s, noop, func(_ context.Context, t *service.Task[noopArgs]) (struct{}, error) {
			if keys > 0 {
				of := &running[t.Args.N%keys]
				defer of.Add(-1)
				n := of.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
			}
			if handled.Add(1) == int64(b.jobs) {
				close(all)
			}
			return struct{}{}, nil
		})
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()
	if err := svc.SetLimit(svc.ctx, job.Limit{Key: "bench/*", Most: b.most}); err != nil {
		return 0, err
	}
	begin := time.Now()
	err = svc.submitAll(b.jobs, b.batch, func(n int) job.Spec {
		spec := service.NewTask(noop, noopArgs{n})
		spec.Owner = fmt.Sprintf("owner%d", n%b.owners)
		if keys > 0 {
			spec.Limits = []string{fmt.Sprintf("bench/%d", n%keys)}
		}
		return spec
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-all:
	case <-svc.ctx.Done():
		return 0, context.Cause(svc.ctx)
	}
	end, err := svc.finished(b.jobs)
	if err != nil {
		return 0, err
	}
	f.MostRunning = max(f.MostRunning, int(most.Load()))
	if keys > 0 && most.Load() > int64(b.most) {
		return 0, fmt.Errorf("%d handlers of one key ran at once, and %d may: this is a defect", most.Load(), b.most)
	}
	return end.Sub(begin), nil
}
