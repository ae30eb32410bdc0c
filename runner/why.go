package runner

import (
	"cmp"
	"context"
)

// Over begins what [Why] says of a launch that is over.
const Over = ": it is over: "

// Why says for people why a launch has not begun, as the end of a sentence; "" if that is not
// known.
func Why(ctx context.Context, r Runner, h Handle) string {
	all, err := r.Probe(ctx, []Handle{h})
	if err != nil {
		return ": " + err.Error()
	}
	s := all[0]
	said, hint := cmp.Or(s.Reason, s.Said), "it has left no word"
	if s.End != nil && s.End.NotStarted != "" {
		said = s.End.NotStarted
	}
	if r.Traits().Queues {
		hint = "its node may not see the work folder"
	}
	switch {
	case s.State == Queued && said != "":
		return ": " + said
	case s.State == Lost || s.State == Ended:
		return Over + cmp.Or(said, hint)
	}
	return ""
}

// NameOf returns by what people find a launch in its scheduler; "" if it has none, or h is nil.
func NameOf(r Runner, h *Handle) string {
	if n, ok := r.(Named); ok && h != nil {
		return n.Name(*h)
	}
	return ""
}

// Submitted says under which name a scheduler has a launch; "" without a scheduler.
func Submitted(r Runner, h Handle) string {
	if name := NameOf(r, &h); name != "" {
		return "submitted as " + name
	}
	return ""
}
