package target

import (
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Nobody is told that a job goes on by itself which has failed.
func TestAdvice(t *testing.T) {
	const byItself = "goes on by itself"
	for _, i := range job.Codes {
		text := Advice(i.Code, false, "lab")
		if strings.Contains(text, "by itself then") || strings.Contains(text, byItself) {
			t.Errorf("%s of a job that has ended: %s", i.Code, text)
		} else if strings.Contains(text, "NAME") {
			t.Errorf("%s does not name the system: %s", i.Code, text)
		}
		if text := Advice(i.Code, true, ""); i.Recoverable && !strings.HasSuffix(text, byItself) {
			t.Errorf("%s of a job that is blocked: %s", i.Code, text)
		}
	}
	for want, params := range map[string]map[string]string{
		"lab":   {"watch": "lab/ada"},
		"local": {"kind": "system", "name": "local"},
		"":      {"kind": "app", "name": "sim"},
	} {
		if got := SystemOf(&service.BlockedGroup{Params: params}); got != want {
			t.Errorf("%v is about %q, not %q", params, got, want)
		}
	}
}
