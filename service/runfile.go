package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A FileRun is a run of the jobs in a file.
type FileRun struct {
	Path string `json:"path"` // the absolute path of the file
	Sum  string `json:"sum"`  // identifies the bytes of the file
	New  bool   `json:"new"`  // begin another run, even if one of the same bytes has not ended
	// Find only finds the jobs of a run that goes on: a new one is not begun, and has no jobs.
	Find bool `json:"find,omitempty"`
	// Call is an id that the caller makes for a New run. The call can then be repeated if its
	// answer was lost.
	Call string `json:"call,omitempty"`
}

// A FileAnswer answers a FileRun.
type FileAnswer struct {
	Jobs    []job.ID   `json:"jobs"`            // in the order of the requests
	Existed bool       `json:"existed"`         // they were there before this call
	Older   []OlderRun `json:"older,omitempty"` // other runs of the file that have not ended, newest first
}

// An OlderRun is another run of the same file.
type OlderRun struct {
	Sum  string   `json:"sum"`
	Jobs []job.ID `json:"jobs"` // those that have not ended
}

// RunKey returns the name under which the runs of the file at path are stored.
func RunKey(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

// runKind is the kind of these documents.
const runKind = "run"

// A runsDoc is such a document: the runs of a file, oldest first.
type runsDoc struct {
	Path string    `json:"path"`
	Runs []fileRun `json:"runs"`
}

type fileRun struct {
	Sum  string    `json:"sum"`
	Jobs []job.ID  `json:"jobs"`
	At   time.Time `json:"at"`
	Call string    `json:"call,omitempty"`
}

// RunFile submits the jobs of a file. If the newest run of the same bytes has a job that has not
// ended, it returns the jobs of that run instead.
//
// A run is written down with the ids of its jobs before they are submitted. So if a call dies in
// between, the next one finishes it, and two calls at the same time submit the same jobs. sub needs
// no key. Errors are those of [Service.SubmitAll].
func (s *Service) RunFile(ctx context.Context, run FileRun, sub Submission) (FileAnswer, error) {
	var specs []job.Spec
	if !run.Find { // nothing is written down that would be refused
		var err error
		if specs, _, err = s.prepareAll(ctx, &sub); err != nil {
			return FileAnswer{}, err
		}
	}
	for {
		r, err := s.noteRun(ctx, run, len(sub.Jobs))
		if job.KindOf(err) == job.Conflict {
			continue // another call wrote the document first
		}
		if err != nil {
			return FileAnswer{}, err
		}
		if run.Find && !r.under {
			return FileAnswer{Existed: true, Older: r.older}, nil
		}
		return s.submitRun(ctx, r, &sub, specs)
	}
}

// A notedRun is a run that is written down.
type notedRun struct {
	jobs  []job.ID
	under bool // its jobs have been submitted, and not all of them have ended
	older []OlderRun
}

// noteRun finds the run to go on with, or writes down a new one. The error is of kind Conflict if
// another call wrote meanwhile.
func (s *Service) noteRun(ctx context.Context, run FileRun, jobs int) (notedRun, error) {
	name := RunKey(run.Path)
	res, err := store.FindResource(ctx, s.cfg.Store, s.cfg.Tenant, runKind, name)
	if err != nil && job.KindOf(err) != job.NotFound {
		return notedRun{}, err
	}
	doc := runsDoc{Path: run.Path}
	if err == nil {
		if err := json.Unmarshal(res.Doc, &doc); err != nil {
			return notedRun{}, job.Errorf(job.Corrupt, "runs of %s: %w", run.Path, err)
		}
	}
	known, err := s.states(ctx, doc)
	if err != nil {
		return notedRun{}, err
	}
	found := -1
	if !run.New || run.Call != "" {
		for i, r := range slices.Backward(doc.Runs) {
			if r.Sum == run.Sum && (!run.New || r.Call == run.Call) {
				// a repeated call has its answer, ended or not
				if len(r.Jobs) == jobs && (run.New || known.unfinished(r) != nil || known.none(r)) {
					found = i
				}
				break
			}
		}
	}
	var n notedRun
	var kept []fileRun
	for i, r := range doc.Runs {
		unfinished := known.unfinished(r)
		if unfinished != nil || known.none(r) && time.Since(r.At) < keepUnsubmitted {
			kept = append(kept, r)
		}
		if unfinished != nil && i != found {
			n.older = append(n.older, OlderRun{Sum: r.Sum, Jobs: unfinished})
		}
	}
	slices.Reverse(n.older)
	if run.Find && found < 0 {
		return n, nil
	}
	if found >= 0 {
		n.jobs, n.under = doc.Runs[found].Jobs, !known.none(doc.Runs[found])
		return n, nil
	}
	for range jobs {
		n.jobs = append(n.jobs, job.NewID())
	}
	doc.Runs = append(kept, fileRun{Sum: run.Sum, Jobs: n.jobs, At: time.Now().UTC(), Call: run.Call})
	b, err := json.Marshal(doc)
	if err != nil {
		return notedRun{}, err
	}
	_, err = s.cfg.Store.Put(ctx, store.Resource{
		Tenant: s.cfg.Tenant, Kind: runKind, Name: name,
		Version: res.Version, Doc: b,
	})
	return n, err
}

// keepUnsubmitted is how long a run is remembered that has no submitted job: its caller may be
// about to submit them.
const keepUnsubmitted = 24 * time.Hour

// submitRun submits the jobs of a run that is written down. It can be repeated.
func (s *Service) submitRun(ctx context.Context, n notedRun, sub *Submission, specs []job.Spec) (FileAnswer, error) {
	a := FileAnswer{Jobs: n.jobs, Existed: true, Older: n.older}
	if n.under {
		return a, nil
	}
	sub.Jobs = slices.Clone(sub.Jobs)
	for i := range sub.Jobs {
		sub.Jobs[i].ID = n.jobs[i]
	}
	jobs, err := s.rows(ctx, sub, specs, make([]error, len(specs)))
	if err != nil {
		return FileAnswer{}, err
	}
	answers, err := s.submit(ctx, sub, specs, jobs)
	if err != nil {
		return FileAnswer{}, err
	}
	a.Jobs = nil // a job that an external id names has another id than was noted
	for _, sub := range answers {
		a.Jobs = append(a.Jobs, sub.ID)
		a.Existed = a.Existed && sub.Existed
	}
	return a, nil
}

// runStates holds the states of the jobs of a file that exist.
type runStates map[job.ID]job.State

func (s *Service) states(ctx context.Context, doc runsDoc) (runStates, error) {
	var ids []job.ID
	for _, r := range doc.Runs {
		ids = append(ids, r.Jobs...)
	}
	known := runStates{}
	if len(ids) == 0 {
		return known, nil
	}
	jobs, err := s.cfg.Store.Find(ctx, store.FindQuery{IDs: ids})
	for i := range jobs {
		if jobs[i].Tenant == s.cfg.Tenant {
			known[jobs[i].ID] = jobs[i].State
		}
	}
	return known, err
}

// unfinished returns the jobs of a run that exist and have not ended.
func (k runStates) unfinished(r fileRun) (ids []job.ID) {
	for _, id := range r.Jobs {
		if st, there := k[id]; there && !st.Terminal() {
			ids = append(ids, id)
		}
	}
	return ids
}

// none reports whether no job of a run exists.
func (k runStates) none(r fileRun) bool {
	return !slices.ContainsFunc(r.Jobs, func(id job.ID) bool { _, there := k[id]; return there })
}
