package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestRetentionOfTwoMachines: of two machines on one database each removes its own jobs, hidden or
// not, with their files, as soon as one of them has been told for how long jobs are kept.
func TestRetentionOfTwoMachines(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var nodes []*node.Node
	var ids []job.ID
	var results []string
	for range 2 {
		n, err := node.Open(ctx, t.TempDir(),
			node.Options{
				DB: node.DatabaseConfig{DSN: dsn}, Migrate: true, Log: io.Discard,
				Options: engine.Options{Lease: 5 * time.Second},
			})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- n.Run(running) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		answers, err := n.Submit(ctx, service.Request{Spec: job.Spec{Command: []string{"touch", "out.txt"}}})
		if err != nil {
			t.Fatal(err)
		}
		if j, err := n.Wait(ctx, answers[0].ID); err != nil || j.State != job.Finished {
			t.Fatalf("%s, %v", j.State, err)
		}
		nodes, ids = append(nodes, n), append(ids, answers[0].ID)
		results = append(results, filepath.Join(n.Dir, "archive", n.Tenant(), answers[0].ID.String(), "out.txt"))
	}
	for _, name := range results {
		if _, err := os.Stat(name); err != nil {
			t.Fatal(err)
		}
	}
	if errs, err := nodes[0].Hide(ctx, true, ids[0]); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "UPDATE pawl.ended SET ended = ended - interval '3 h'"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := nodes[0].Retentions().Apply(ctx, []byte(`{"name":"default","keep":{"FINISHED":"2h"}}`),
		0); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		testenv.Until(ctx, func() bool { return n.Removed(job.Finished) > 0 })
		if removed := n.Removed(job.Finished); removed != 1 {
			t.Errorf("machine %d has removed %d jobs, want 1", i, removed)
		}
		if _, err := os.Stat(results[i]); !os.IsNotExist(err) {
			t.Errorf("the results on machine %d: %v", i, err)
		}
		if _, err := n.Job(ctx, ids[i]); job.KindOf(err) != job.NotFound {
			t.Errorf("the job of machine %d: %v", i, err)
		}
	}
}
