package job

import (
	"slices"
	"testing"
	"time"
)

// Scope leaves out no job that matches, and no more than terms for other fields may leave out.
func TestScope(t *testing.T) {
	for _, text := range []string{
		"", "state=RUNNING", "state!=RUNNING", "state=RUNNING,BLOCKED custody=worker", "custody=gate,ready",
		"state=FINISHED custody=gate",
		"hidden=true", "hidden=false", "hidden=true,false", "hidden!=true state=FAILED",
	} {
		f, err := ParseFilter(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s := f.Scope()
		for _, state := range States {
			for _, custody := range Places(state) {
				for _, hidden := range []bool{false, true} {
					j := &Job{Place: Place{State: state, Custody: custody}, Hidden: hidden}
					looked := slices.Contains(s.Places, j.Place) && (hidden && s.Hidden || !hidden && s.Visible)
					if looked != f.Match(j) {
						t.Errorf("%q looks at %s, hidden %t: %t", text, j.Place, hidden, looked)
					}
				}
			}
		}
	}
}

func TestScopeOfAGroup(t *testing.T) {
	f, err := ParseFilter("group=0123456789abcdef01234567", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Scope().Places {
		if p.Custody != Recovery {
			t.Errorf("a job of a group is looked for at %s", p)
		}
	}
}
