package main

import (
	"strings"
	"testing"
	"time"
)

// A process that is slow is not stuck. One in which nothing happens is, and one that does not come
// to an end.
func TestPatience(t *testing.T) {
	const limit = 50 * time.Second
	for name, c := range map[string]struct {
		writes int           // how often something is written, once in half the limit
		after  time.Duration // from then until the process ends
		want   string
	}{
		"quick":         {0, limit, ""},
		"slow":          {15, limit, ""},
		"nothing":       {0, limit + 1, "no job did anything"},
		"nothing later": {15, limit + 1, "no job did anything"},
		"no end":        {30, 0, "did not end within 8m20s"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1, 0)
			p, why := newPatience(limit, now), ""
			for i := range c.writes {
				now = now.Add(limit / 2)
				if why = p.over(now, int64(i+1)); why != "" {
					break
				}
			}
			if why == "" {
				why = p.over(now.Add(c.after), p.written)
			}
			if !strings.Contains(why, c.want) || (why == "") != (c.want == "") {
				t.Errorf("it says %q, want %q", why, c.want)
			}
		})
	}
}
