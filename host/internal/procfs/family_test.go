package procfs

import (
	"testing"

	"github.com/pawl-jobs/pawl/host"
)

func TestRelated(t *testing.T) {
	numbered := host.Family{Leader: host.Process{PID: 7}, Locks: 1000}
	plain := host.Family{Leader: host.Process{PID: 8}}
	for _, tt := range []struct {
		what    string
		fs      []host.Family
		session int
		locks   uint64
		want    bool
	}{
		{"the number of the family", []host.Family{numbered}, 1, 1000, true},
		{"its session", []host.Family{numbered}, 7, 0, true},
		{"a stranger", []host.Family{numbered}, 1, 9, false},
		{"another launch", []host.Family{numbered}, 1, 1001, false},
		{"the limit of the account, where a family has no number", []host.Family{numbered, plain}, 1, 9, true},
		{"another launch, where a family has no number", []host.Family{numbered, plain}, 1, 1001, false},
	} {
		if got := Related(tt.fs, 9)(tt.session, tt.locks); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.what, got, tt.want)
		}
	}
}
