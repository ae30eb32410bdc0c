package postgres

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A beginning is where the line of a key begins as far as a process knows. That others have left it
// before that place the index still tells to everyone who comes along, until the table is vacuumed.
//
// It holds at a mark, which is how many debts there have been: nobody has come to stand before it
// since then who is not owed that his line is looked at. Who comes into a line owes that, and who
// pays for it makes a mark (see [makeMark]), as who has a line changed without a debt; each has the
// turns lock meanwhile. So where the mark is the same still, and nothing is owed, nobody has. A
// server that takes over, or begins anew, has other marks.
type beginning struct {
	Tenant   string    `json:"tenant"`
	Key      string    `json:"key"`
	Mark     string    `json:"mark"`
	Owner    string    `json:"owner"`
	Priority int       `json:"priority"`
	Created  time.Time `json:"created"`
	ID       job.ID    `json:"id"`
}

// beginnings are those of the lines on which a process hands turns most.
type beginnings struct {
	mu sync.Mutex
	of map[spot]beginning
}

const (
	mostBeginnings = 16
	fewestPassedOn = 8 // to remember where a line begins. Where less is handed on at once, there is less to pass over
)

// known returns them as a document; nil: none is known.
func (b *beginnings) known() *string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.of) == 0 {
		return nil
	}
	text := encode(slices.Collect(maps.Values(b.of)))
	return &text
}

// learn notes that lines begin after jobs that have left them, which were the first ones there.
// Without a mark nothing is known any more.
func (b *beginnings) learn(mark string, left []job.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.of, func(_ spot, at beginning) bool { return at.Mark != mark })
	if mark == "" {
		return
	}
	lines := map[spot][]*job.Job{}
	for i := range left {
		at := spot{left[i].Tenant, left[i].Limits[0]}
		lines[at] = append(lines[at], &left[i])
	}
	for at, jobs := range lines {
		_, there := b.of[at]
		if len(jobs) < fewestPassedOn || !there && len(b.of) >= mostBeginnings {
			continue
		}
		last := slices.MaxFunc(jobs, func(x, y *job.Job) int {
			return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Priority, y.Priority),
				x.Created.Compare(y.Created), x.ID.Compare(y.ID))
		})
		if b.of == nil {
			b.of = map[spot]beginning{}
		}
		b.of[at] = beginning{at.tenant, at.key, mark, last.Owner, last.Priority, last.Created, last.ID}
	}
}

// makeMark has every line looked at from where it begins.
const makeMark = `SELECT nextval('pawl.turns_owed_seq_seq')`
