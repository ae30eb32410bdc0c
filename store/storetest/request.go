package storetest

import (
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// An option says how a new job differs from the plain one.
type option func(*store.New)

// newTask returns a task that nothing gates.
func newTask(options ...option) store.New { return newJob(task, options) }

// newProgram returns a program that nothing gates.
func newProgram(options ...option) store.New { return newJob(job.KindApp, options) }

func newJob(kind string, options []option) store.New {
	id := job.NewID()
	n := store.New{Job: job.Job{
		ID: id, Owner: ann, Kind: kind, Name: kind + "-" + id.Short(), Queue: job.DefaultQueue,
		Priority: job.DefaultPriority, MaxAttempts: 10, Request: json.RawMessage(`{"kind":"` + kind + `"}`),
	}}
	for _, o := range options {
		o(&n)
	}
	return n
}

func inQueue(q string) option { return func(n *store.New) { n.Job.Queue = q } }
func ofKind(k string) option  { return func(n *store.New) { n.Job.Kind = k } }
func on(machine string) option {
	return func(n *store.New) { n.Job.Machine, n.Job.Watch = machine, machine }
}
func withPriority(p int) option      { return func(n *store.New) { n.Job.Priority = p } }
func withID(id job.ID) option        { return func(n *store.New) { n.Job.ID = id } }
func named(name string) option       { return func(n *store.New) { n.Job.Name = name } }
func delayed(d time.Duration) option { return func(n *store.New) { n.Delay = d } }
func externally(id string) option    { return func(n *store.New) { n.Job.ExternalID = id } }
func fingerprint(b byte) option      { return func(n *store.New) { n.Fingerprint = [32]byte{b} } }
func labeled(key, value string) option {
	return func(n *store.New) {
		if n.Job.Labels == nil {
			n.Job.Labels = map[string]string{}
		}
		n.Job.Labels[key] = value
	}
}

func after(need job.Need, ids ...job.ID) option {
	return func(n *store.New) {
		for _, id := range ids {
			n.After = append(n.After, store.After{Job: id, Need: need})
		}
	}
}

func unique(mode job.UniqueMode, keys ...string) option {
	return func(n *store.New) {
		for _, k := range keys {
			n.Unique = append(n.Unique, store.Unique{Mode: mode, Key: k})
		}
	}
}

// submission is one call that submits jobs.
func submission(jobs ...store.New) store.Submission {
	return store.Submission{Tenant: acme, By: ann, Jobs: jobs}
}
