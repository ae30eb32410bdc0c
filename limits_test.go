package pawl_test

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A family says of all keys together on which it decides what each of them says for itself.
func TestLimitOfAFamily(t *testing.T) {
	t.Parallel()
	svc := pawl.New(pawl.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
	for _, l := range []job.Limit{{Key: "gpu/*", Most: 1, Weights: map[string]int{"bob": 2}}, {Key: "gpu/own", Most: 5}} {
		if err := svc.SetLimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	under := func(owner string, keys ...string) {
		r := task("any", 0)
		r.Spec.Owner, r.Spec.Limits = owner, keys
		submit(t, svc, r)
	}
	under("ann", "gpu/a")
	under("ann", "gpu/b")
	under("bob", "gpu/b")
	under("bob", "gpu/own")
	l, err := svc.Limit(t.Context(), "gpu/*")
	if err != nil || l.InUse != 2 || l.Waiting != 1 || l.KeysInUse != 2 || !slices.Equal(l.Keys, []string{"gpu/a", "gpu/b"}) || l.Set.Most != 1 || l.Jobs != nil {
		t.Errorf("%+v, %v", l, err)
	}
	if want := []pawl.LimitShare{{Owner: "ann", Weight: 1, InUse: 2}, {Owner: "bob", Weight: 2, Waiting: 1}}; !slices.Equal(l.Owners, want) {
		t.Errorf("its owners are %+v, want %+v", l.Owners, want)
	}
	if l, err := svc.Limit(t.Context(), "gpu/b"); err != nil || l.InUse != 1 || l.Waiting != 1 || l.KeysInUse != 0 || len(l.Jobs) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
