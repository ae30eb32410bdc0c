package main

import (
	"fmt"
	"time"
)

// goesOn is how many times the limit a process may take to its end while jobs do something. A busy
// machine takes long, and what goes on for ever takes longer.
const goesOn = 10

// A patience tells a process that is stuck from one that is slow, by the size of the ledger: jobs
// that do something write there.
type patience struct {
	limit        time.Duration // for how long no job needs to do anything
	began, since time.Time     // since: when a job last did
	written      int64
}

func newPatience(limit time.Duration, now time.Time) *patience {
	return &patience{limit: limit, began: now, since: now}
}

// over says why a process is taken to be stuck that has not ended; empty: it is not.
func (p *patience) over(now time.Time, written int64) string {
	if written != p.written {
		p.written, p.since = written, now
	}
	switch {
	case now.Sub(p.began) > goesOn*p.limit:
		return fmt.Sprintf("did not end within %s", goesOn*p.limit)
	case now.Sub(p.since) > p.limit:
		return fmt.Sprintf("did not end, and for %s no job did anything", p.limit)
	}
	return ""
}
