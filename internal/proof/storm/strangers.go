package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Strangers are people of another tenant, whom the same processes serve, and who have tasks of
// their own run. They try to see and to touch the jobs of the others, and the others try that with
// theirs.
type strangers struct {
	s *storm

	mu       sync.Mutex
	accepted []job.ID // guarded by mu
}

const (
	strangerTenant = "strangers"
	strangerName   = "stranger-"
)

// stranger is where a node serves the other tenant: a socket without a file, for disks are full at
// times.
func (n *node) stranger() string { return "@" + n.s.dir + "/" + n.name }

func (n *node) strangerClient() (*client.Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.stranger())
	}
	c := &http.Client{Timeout: people.Timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return client.Dial("http://"+strangerTenant, client.Options{Tries: 1, HTTP: c})
}

// come has them come and go until ctx ends.
func (a *strangers) come(ctx context.Context) {
	rnd := a.s.random("strangers")
	servers := a.s.servers()
	for i := 0; pause(ctx, between(rnd, 50*time.Millisecond, 300*time.Millisecond)); i++ {
		n := servers[rnd.IntN(len(servers))]
		if theirs, err := n.strangerClient(); err == nil {
			a.submit(ctx, theirs, i)
		}
		a.visit(ctx, n, rnd, anyTouch(rnd))
	}
}

// leave has them try everything once more, when nothing goes wrong any more.
func (a *strangers) leave(ctx context.Context) {
	rnd := a.s.random("strangers leave")
	for _, what := range slices.Sorted(maps.Keys(touches)) {
		a.visit(ctx, a.s.servers()[0], rnd, what)
	}
}

// visit has each side try to do something with a job of the other.
func (a *strangers) visit(ctx context.Context, n *node, rnd *rand.Rand, what string) {
	ours, err := n.client(1)
	if err != nil {
		return // it has never served
	}
	theirs, err := n.strangerClient()
	if err != nil {
		a.s.breaks("harness: %v", err)
		return
	}
	if p := a.s.book.pick(rnd); p != nil {
		a.keepsOut(ctx, what, theirs, "a stranger", p.id)
	}
	if id, found := a.pick(rnd); found {
		a.keepsOut(ctx, what, ours, "somebody", id)
	}
	a.lists(ctx, theirs, "a stranger", func(name string) bool { return strings.HasPrefix(name, strangerName) })
	a.lists(ctx, ours, "somebody", func(name string) bool { return !strings.HasPrefix(name, strangerName) })
}

func (a *strangers) submit(ctx context.Context, theirs *client.Client, i int) {
	spec := fmt.Sprintf(`{"name": "%s%d", "kind": "storm", "args": {}}`, strangerName, i)
	answers, err := theirs.Submit(ctx, fmt.Sprint(strangerName, i), json.RawMessage(spec))
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.accepted = append(a.accepted, answers[0].ID)
	}
}

func (a *strangers) pick(rnd *rand.Rand) (job.ID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.accepted) == 0 {
		return job.ID{}, false
	}
	return a.accepted[rnd.IntN(len(a.accepted))], true
}

// touches are what people can do with a job, by its id.
var touches = map[string]func(context.Context, *client.Client, job.ID) error{
	"see": func(ctx context.Context, c *client.Client, id job.ID) error { _, err := c.Job(ctx, id); return err },
	"read the request of": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, err := c.Request(ctx, id, false)
		return err
	},
	"read the history of": func(ctx context.Context, c *client.Client, id job.ID) error {
		_,
			err := c.History(ctx, id)
		return err
	},
	"list the files of": func(ctx context.Context, c *client.Client, id job.ID) error {
		_,
			err := c.Output(ctx, id)
		return err
	},
	"cancel": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, _, err := c.Cancel(ctx, id, 0)
		return err
	},
	"pause": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, _, err := c.Pause(ctx, id, 0)
		return err
	},
	"resume": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, _, err := c.Resume(ctx, id, 0)
		return err
	},
	"resubmit": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, err := c.Resubmit(ctx, id)
		return err
	},
	"delete": func(ctx context.Context, c *client.Client, id job.ID) error { return c.Delete(ctx, id) },
	"hide": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, err := c.Hide(ctx, id, true)
		return err
	},
	"write in the log of": func(ctx context.Context, c *client.Client, id job.ID) error {
		_, err := c.AddEvent(ctx, id, job.CustomEvent{Name: "visit", Message: "I was here"})
		return err
	},
	"follow the events of": func(ctx context.Context, c *client.Client, id job.ID) (err error) {
		for _, err = range c.Events(ctx, client.EventQuery{Job: id}) {
			break
		}
		return err
	},
}

func anyTouch(rnd *rand.Rand) string {
	return slices.Sorted(maps.Keys(touches))[rnd.IntN(len(touches))]
}

// keepsOut: of a job of another tenant nobody hears more than that there is none.
func (a *strangers) keepsOut(ctx context.Context, what string, c *client.Client, who string, id job.ID) {
	err := touches[what](ctx, c, id)
	switch {
	case err != nil && !answered(err):
		return
	case job.KindOf(err) != job.NotFound:
		a.s.breaks("tenant: %s could %s job %s of another tenant, and was answered %v", who, what, id, err)
		a.s.tell(id)
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.sum.Strangers++
}

// lists: what is listed is of whoever asks.
func (a *strangers) lists(ctx context.Context, c *client.Client, who string, may func(name string) bool) {
	page, err := c.List(ctx, store.Query{Limit: 20})
	if err != nil {
		return
	}
	for _, v := range page.Jobs {
		if !may(v.Name) {
			a.s.breaks("tenant: %s sees job %s (%s) of another tenant in a list", who, v.ID, v.Name)
		}
	}
}

// apart: the jobs of the other tenant are those that it submitted, all have run, for nobody could
// touch them, and nobody heard of them.
func (c *checker) apart() {
	for id, j := range c.theirs {
		if !strings.HasPrefix(j.Name, strangerName) {
			c.breaks("tenant: job %s (%s) is of a tenant that did not submit it", id, j.Name)
		}
		if j.State != job.Finished && j.Code != job.Poison {
			c.breaks("tenant: job %s (%s), which nobody of its tenant touched, is %s (%s)", id, j.Name, j.Place, j.Code)
		}
	}
	for _, id := range c.strangers.accepted {
		if _, found := c.theirs[id]; !found && !c.restored() {
			c.breaks("lost: job %s of the strangers is not there", id)
		}
	}
	for _, e := range c.ears {
		for id := range e.jobs {
			if _, found := c.theirs[id]; found {
				c.breaks("tenant: %s heard of job %s of another tenant", e.name, id)
			}
		}
	}
}
