package jobs

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestLasting(t *testing.T) {
	f := job.Unended().And("name", job.Like, "a*").And("label.x", job.Is, "1").And("kind", job.Is,
		"app").And("code", job.IsNot, "X")
	if got := lasting(f).String(); got != "name~a* kind=app" {
		t.Errorf("%s", got)
	}
}
