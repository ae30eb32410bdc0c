package bed

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/cli/term"
)

func TestBoundsAreRefusedByName(t *testing.T) {
	raise := func(to float64) string { return fmt.Sprintf("set it to %.0f", to) }
	list := Bounds{
		{name: "none", room: math.Inf(1), raise: raise, each: 2},
		{name: "processes", set: 1000, room: 700, raise: raise, each: 2, spare: 100},
		{name: "memory", set: 0, room: 50 << 20, raise: raise, each: 1 << 20, spare: 10 << 20, bytes: true},
	}
	if err := list.Refuse(40, "sleepers"); err != nil {
		t.Errorf("40 fit: %v", err)
	}
	var usage *term.UsageError
	if err := list.Refuse(301, "sleepers"); !errors.As(err, &usage) {
		t.Errorf("301 fit: %v", err)
	} else if diff := cmp.Diff(`301 programs cannot sleep here at once; nothing was started
  processes leaves room for 700 and 702 are needed: set it to 1002
  memory leaves room for 50 MB and 311 MB are needed: set it to 273678336
or give --sleepers 40`, err.Error()); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	list = append(list, bound{name: "descriptors", set: 10, room: 10, raise: raise, spare: 256})
	if err := list.Refuse(1, "sleepers"); err == nil || strings.Contains(err.Error(), "--sleepers") {
		t.Errorf("no lower number helps: %v", err)
	}
}
