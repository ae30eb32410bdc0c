package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// What every store does alike with a request.

// Once returns the claim with each queue, kind and job named once. A store that reads a queue and
// kind twice would return its jobs twice.
func (c Claim) Once() Claim {
	c.Queues, c.Kinds, c.Jobs = distinct(c.Queues), distinct(c.Kinds), distinct(c.Jobs)
	return c
}

// distinct returns list with the first of those that are equal.
func distinct[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}

// Digest returns what must be equal in two calls with the same idempotency key.
func (s *Submission) Digest() []byte {
	h := sha256.New()
	for i := range s.Jobs {
		h.Write(s.Jobs[i].Fingerprint[:])
	}
	return h.Sum(nil)
}

// Strongest returns each prerequisite once. If one is there twice, it has the need that meets both.
func Strongest(after []After) []After {
	var all []After
	for _, a := range after {
		i := slices.IndexFunc(all, func(b After) bool { return a.Job == b.Job })
		switch {
		case i < 0:
			all = append(all, a)
		case a.Need == job.NeedFinished:
			all[i].Need = a.Need
		}
	}
	return all
}

// Allowed returns the error of kind [job.Conflict] for an event that may not be written to j, or
// nil.
func (n *NewEvent) Allowed(j *job.Job) error {
	switch {
	case j.State.Terminal():
		return job.Errorf(job.Conflict, "job %s has already ended %s", j.ID, j.State)
	case n.Cause == job.CauseUser:
		return nil
	case n.Epoch != 0 || !j.Program():
		if j.Custody != job.Worker || n.Epoch != j.Epoch {
			return job.Errorf(job.Conflict, "job %s: the holder of epoch %d has lost it: it stands at %s in epoch %d",
				j.ID, n.Epoch, j.Place, j.Epoch)
		}
	case !j.Live || n.Launch != j.Launch:
		return job.Errorf(job.Conflict, "launch %d of job %s is not the one that runs", n.Launch, j.ID)
	}
	return nil
}

// Repeats returns the error of kind [job.Conflict] if the key of n belongs to another event, which
// is e; nil: n says e again.
func (n *NewEvent) Repeats(e *job.Event) error {
	if e.Name == n.Name && e.Message == n.Message && e.Cause == n.Cause && e.Actor == n.By && sameJSON(e.Data, n.Data) {
		return nil
	}
	return job.Errorf(job.Conflict, "job %s has another event with the key %s: give each event a key of its own, such "+
		"as a UUID", n.Job, n.Key)
}

// sameJSON reports whether two texts are written alike but for space.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// Admit returns why the jobs of s may not enter a queue, in which waiting jobs then wait; nil: they
// may.
func (s *Submission) Admit(queue string, waiting int) error {
	most := s.Queues[queue].Most
	if most == 0 || waiting <= most {
		return nil
	}
	own := 0
	for i := range s.Jobs {
		if s.Jobs[i].Job.Queue == queue {
			own++
		}
	}
	if own > most {
		return job.Errorf(job.Invalid, "queue %s has room for %d waiting jobs, and these are %d: submit fewer at once",
			queue, most, own)
	}
	return job.Errorf(job.Exhausted, "queue %s is full (max_waiting %d): submit again when some "+
		"of its jobs have started", queue, most)
}
