package observe

import (
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A session is what is known of the lease of this process. Its calls of the store tell.
type session struct {
	mu sync.Mutex
	id job.ID // guarded by mu: of the newest one
	// guarded by mu, monotonic: when the newest renewal that was answered was sent; zero: there is
	// no session
	last  time.Time
	lease time.Duration // guarded by mu: as it was asked for then

	begun     chan struct{} // closed with the first one
	beginning sync.Once
}

func (s *session) began(id job.ID, at time.Time, lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.last, s.lease = id, at, lease
}

// ended notes the end of a session, which may be one that was lost before the newest began.
func (s *session) ended(id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == id {
		s.last, s.lease = time.Time{}, 0
	}
}

func (s *session) renewed(at time.Time, lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.lease = at, lease
}

// Begun is closed once this process has had its first session.
func (o *Observer) Begun() <-chan struct{} { return o.session.begun }

// Session reports why this process runs no jobs now. It is nil while it has a session whose lease
// was renewed in time.
func (o *Observer) Session() error {
	o.session.mu.Lock()
	defer o.session.mu.Unlock()
	switch ago := time.Since(o.session.last); {
	case o.session.last.IsZero():
		return job.Errorf(job.Unavailable, "this process has no session: it runs no jobs")
	case ago > o.session.lease:
		return job.Errorf(job.Unavailable,
			"the lease was renewed %v ago, and is %v long: others may have the jobs of this process now",
			ago.Round(time.Millisecond), o.session.lease)
	}
	return nil
}
