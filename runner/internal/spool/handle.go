package spool

import (
	"context"
	"encoding/json"
	mathrand "math/rand/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Handle returns the handle of a launch. at, a struct, is what its runner needs to find it again.
// The spool is named in it, too: by the time its program ends, that of the account may be another
// one.
func (s *Spool) Handle(k runner.Key, token string, at any) runner.Handle {
	data, err := json.Marshal(at)
	var all map[string]json.RawMessage // sorted by name, as in a row
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err == nil {
		all["spool"], err = json.Marshal(s.Dir)
	}
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err != nil {
		panic(err) // plain data
	}
	return runner.Handle{Key: k, Host: s.Host.ID(), Token: token, Data: string(data)}
}

// before returns the spool in which a launch tells its end, if it is not this one.
func (s *Spool) before(h runner.Handle) string {
	var of struct {
		Spool string `json:"spool"`
	}
	if json.Unmarshal([]byte(h.Data), &of) != nil || of.Spool == s.Dir {
		return ""
	}
	return of.Spool
}

// Find reads what [Spool.Handle] was given. The error is of kind Invalid if the handle is not one
// of this host.
func (s *Spool) Find(h runner.Handle, at any) error {
	if h.Host != s.Host.ID() {
		return job.Errorf(job.Invalid, "%s is on host %q, not on %q", h.Key, h.Host, s.Host.ID())
	}
	if err := json.Unmarshal([]byte(h.Data), at); err != nil {
		return job.Errorf(job.Invalid, "the handle of %s is damaged: %w", h.Key, err)
	}
	return nil
}

// Locks draws a number for the limit of file locks of a launch, or 0 if there is no room for
// numbers. The number is below the limit of the host, so that its programs can set it. If this
// process itself runs in a launch, the number also differs from that of its launch.
func (s *Spool) Locks(ctx context.Context) (uint64, error) {
	limit, err := s.Host.LockLimit(ctx)
	if err != nil || limit < 1<<20 {
		return 0, err
	}
	limit = min(limit, 1<<62) // some shells count with a sign
	return limit/2 + mathrand.Uint64N(limit/2), nil
}
