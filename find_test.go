package pawl_test

import (
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

func TestFind(t *testing.T) {
	svc := onDisk(t)
	id := func(text string) job.ID {
		id, err := job.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	named := func(text, name string) job.ID {
		r := task("mail", 0)
		r.ID, r.Spec.Name = id(text), name
		return submit(t, svc, r)[0].ID
	}
	alone := named("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", "letter")
	twin := named("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b78", "facade")
	thief := named("01926d3d-0000-7000-8000-000000000001", "3e1b77")
	named("01926d3d-0000-7000-8000-000000000002", "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	named("01926d3d-0000-7000-8000-000000000003", "twice")
	named("01926d3d-0000-7000-8000-000000000004", "twice")
	for _, c := range []struct {
		ref  string
		want job.ID
		kind job.ErrorKind
	}{
		{"letter", alone, ""},
		{"facade", twin, ""},
		{"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", alone, ""},
		{"01926D3C-7B1E-7C43-9D52-6F0C8A3E1B77", alone, ""},
		{"8a3e1b78", twin, ""},
		{"8A3E1B78", twin, ""},
		{"9d52-6f0c8a3e1b78", twin, ""},
		{"9d526f0c8a3e1b78", twin, ""},
		{"01926d3d-0000-7000-8000-000000000001", thief, ""},
		{"01926d3d000070008000000000000001", thief, ""},
		{"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b7", job.ID{}, job.Conflict}, // the beginning of two
		{"8a3e1b77", alone, ""},
		{"3e1b77", job.ID{}, job.Conflict}, // a name, and the end of another's id
		{"01926d3c", job.ID{}, job.Conflict},
		{"twice", job.ID{}, job.Conflict},
		{"e1b77", job.ID{}, job.NotFound}, // too short
		{"6f0c8-a3e1b77", job.ID{}, job.NotFound},
		{"6f0c8a", job.ID{}, job.NotFound}, // in the middle
		{"01926d3d-0000-7000-8000-000000000009", job.ID{}, job.NotFound},
		{"nobody", job.ID{}, job.NotFound},
		{strings.Repeat("n", 10_000), job.ID{}, job.NotFound},
		{"*", job.ID{}, job.NotFound},
		{"", job.ID{}, job.Invalid},
		{"a\x00", job.ID{}, job.Invalid},
		{"a\xff", job.ID{}, job.Invalid},
	} {
		v, err := svc.Find(t.Context(), c.ref, false)
		if c.kind == "" && err != nil || c.kind != "" && job.KindOf(err) != c.kind || v.ID != c.want {
			t.Errorf("%.50q: %s, %v", c.ref, v.ID, err)
		}
	}
	if _, err := svc.Find(t.Context(), "3e1b77", false); !strings.Contains(err.Error(), thief.String()) || !strings.Contains(err.Error(), alone.String()) {
		t.Errorf("not both are named: %v", err)
	}

	t.Run("the unfinished one of a name, else the newest, or the newest hidden one", func(t *testing.T) {
		old := named("01926d3e-0000-7000-8000-000000000001", "daily")
		mid := named("01926d3e-0000-7000-8000-000000000002", "daily")
		if _, err := svc.Bulk(t.Context(), pawl.Bulk{Action: pawl.ActCancel, Filter: job.Where("id", mid.String())}); err != nil {
			t.Fatal(err)
		}
		find := func(hidden bool, want job.ID) {
			t.Helper()
			if v, err := svc.Find(t.Context(), "daily", hidden); err != nil || v.ID != want {
				t.Errorf("%s, %v", v.ID, err)
			}
		}
		find(false, old)
		find(true, old)
		if errs, err := svc.Hide(t.Context(), true, mid); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		find(false, old)
		find(true, mid)
	})
}
