package pawl_test

import (
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/fake"
)

// TestTenant: folders are named after a tenant.
func TestTenant(t *testing.T) {
	for _, name := range []string{"*", "../../x", ".", "..", "a/b", ".staging", "a\x00b"} {
		svc := pawl.New(pawl.Config{Store: fake.New(time.Now), Broker: &local.Broker{}, Tenant: name})
		if err := svc.Run(t.Context()); job.KindOf(err) != job.Invalid {
			t.Errorf("Run of tenant %q: %v", name, err)
		}
		if _, err := svc.Submit(t.Context(), task("mail", nil)); job.KindOf(err) != job.Invalid {
			t.Errorf("Submit for tenant %q: %v", name, err)
		}
		svc = pawl.New(pawl.Config{Store: fake.New(time.Now), Broker: &local.Broker{}, Tenants: []string{"default", name}})
		if err := svc.Run(t.Context()); job.KindOf(err) != job.Invalid {
			t.Errorf("Run for the jobs of tenant %q: %v", name, err)
		}
	}
}
