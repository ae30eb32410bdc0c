package runner

import (
	"cmp"
	"context"
)

// Why says for people why a launch has not begun, as the end of a sentence; "" if that is not
// known.
func Why(ctx context.Context, r Runner, h Handle) string {
	all, err := r.Probe(ctx, []Handle{h})
	if err != nil {
		return ": " + err.Error()
	}
	s := all[0]
	said := cmp.Or(s.Reason, s.Said)
	switch {
	case s.State == Queued && said != "":
		return ": " + said
	case s.State == Lost || s.State == Ended:
		return ": it is over: " + cmp.Or(said, "its node may not see the work folder")
	}
	return ""
}
