package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A row is a job as the database holds it.
type row struct {
	job.Job
	seq int64
}

// columns of a row, in the order in which scan reads them.
const columns = `j.seq, j.id, j.tenant, j.owner, j.kind, j.name, j.queue, j.machine, j.priority, j.max_attempts,
	j.created, j.external_id, j.parent, j.state, j.custody, j.epoch, j.n, j.lane, j.session, j.claim, j.attempt,
	j.recoveries, j.suspect, j.launch, j.live, j.since, j.due, j.ended, j.needs, j.ties, j.wish, j.wished_by,
	j.resume, j.code, j.message, j.work, j.result, j.app, j.hidden, j.trace,
	j.limit_keys, j.line, j.passed, j.ordered, j.rank, j.grp, j.until, j.watch`

const nColumns = 48

func scan(v []driver.Value) row {
	r := row{seq: v[0].(int64)}
	j := &r.Job
	j.ID = id(v[1])
	j.Tenant, j.Owner, j.Kind, j.Name = text(v[2]), text(v[3]), text(v[4]), text(v[5])
	j.Queue, j.Machine = text(v[6]), text(v[7])
	j.Priority, j.MaxAttempts = integer(v[8]), integer(v[9])
	j.Created, j.ExternalID, j.Parent = instant(v[10]), text(v[11]), id(v[12])
	j.State, j.Custody = job.State(text(v[13])), job.Custody(text(v[14]))
	j.Epoch, j.N = v[15].(int64), v[16].(int64)
	j.Lane, j.Session, j.Claim = job.Lane(text(v[17])), id(v[18]), id(v[19])
	j.Attempt, j.Recoveries, j.Suspect = integer(v[20]), integer(v[21]), integer(v[22])
	j.Launch, j.Live = integer(v[23]), integer(v[24]) != 0
	j.Since, j.Due, j.Ended = instant(v[25]), instant(v[26]), instant(v[27])
	j.Needs, j.Ties = integer(v[28]), job.Ties(integer(v[29]))
	j.Wish, j.WishedBy = job.Wish(text(v[30])), text(v[31])
	j.Resume, j.Code, j.Message = job.State(text(v[32])), job.Code(text(v[33])), text(v[34])
	j.Work, j.Result = raw(v[35]), raw(v[36])
	j.App, j.Hidden, j.Trace = text(v[37]), integer(v[38]) != 0, text(v[39])
	j.Limits, j.Line, j.Passed = keysOf(v[40]), text(v[41]), integer(v[42])
	j.Order, j.Rank = text(v[43]), text(v[44])
	j.Group, j.Until, j.Watch = text(v[45]), instant(v[46]), text(v[47])
	return r
}

// withSpec are the columns of a row and of its spec, and nWithSpec their number.
const (
	withSpec  = columns + `, s.request, s.resolved, s.labels, s.notes`
	nWithSpec = nColumns + 4
)

func scanSpec(v []driver.Value) row {
	r := scan(v)
	r.Request, r.Resolved = raw(v[nColumns]), raw(v[nColumns+1])
	r.Labels, r.Notes = labelsOf(v[nColumns+2]), raw(v[nColumns+3])
	return r
}

// rows reads the jobs that a query for columns finds.
func (t *tx) rows(q string, args ...any) ([]row, error) {
	var rs []row
	err := t.query(q, func(v []driver.Value) error {
		rs = append(rs, scan(v))
		return nil
	}, args...)
	return rs, err
}

// find reads rows by id; those that are not there are missing in the answer.
func (t *tx) find(ids []job.ID) (map[job.ID]*row, error) {
	m := make(map[job.ID]*row, len(ids))
	var unknown []job.ID
	for _, id := range ids {
		if r := t.w.held[id]; r != nil {
			m[id] = r
		} else {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return m, nil
	}
	rs, err := t.rows(`SELECT `+columns+` FROM json_each(?) e CROSS JOIN jobs j ON j.id = unhex(e.value, '-')`,
		idList(unknown))
	if err != nil {
		return nil, err
	}
	for i := range rs {
		m[rs[i].ID] = &rs[i]
	}
	return m, nil
}

// idList writes ids as a JSON list, for json_each and unhex(value, '-').
func idList(ids []job.ID) string {
	b := append(make([]byte, 0, 2+len(ids)*39), '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, id.String()...)
		b = append(b, '"')
	}
	return string(append(b, ']'))
}

// write makes a change that nobody repeats.
func (t *tx) write(r *row, c job.Change, cause job.Cause, actor any, eff *store.Effects) error {
	return t.change(r, c, cause, actor, nil, eff)
}

// change is the one function that changes a job: it writes the row that c makes of r and its
// history, gives up its keys, and notes what it owes. c has been guarded, fenced and diverted;
// asked is the digest of what was asked for. r becomes the new row.
func (t *tx) change(r *row, c job.Change, cause job.Cause, actor, asked any, eff *store.Effects) error {
	if err := c.Check(); err != nil {
		return err
	}
	before := r.Job
	after, path := before.Apply(c, t.now)
	if after.Live && (after.State.Terminal() || after.Custody == job.User) {
		return job.Errorf(job.Internal, "change of job %s: %s with a launch whose end is not known", c.Job, after.Place)
	}
	w := changes{
		epoch: before.Epoch, n: before.N, from: before.Custody, to: after.Custody, path: path,
		cause: cause, actor: actor, asked: asked,
	}
	w.columns, w.values = changed(&before, &after)
	if err := t.add(r.seq, w); err != nil {
		return err
	}
	if after.Resolved != nil && c.Set.Resolved != nil {
		if _, err := t.exec(`UPDATE specs SET resolved = ? WHERE seq = ? AND resolved IS NULL`,
			document(after.Resolved), r.seq); err != nil {
			return err
		}
	}
	for _, mode := range job.Releases(&before, &after) {
		if _, err := t.exec(`DELETE FROM unique_keys WHERE job = ? AND mode = ?`, r.seq, string(mode)); err != nil {
			return err
		}
	}
	if err := t.giveBack(r, job.Returned(&before, &after)); err != nil {
		return err
	}
	if err := t.owe(r, after.Line, job.Owes(&before, &after), eff); err != nil {
		return err
	}
	t.waits(r, -1)
	r.Job = after
	t.waits(r, 1)
	t.w.remember(r)
	eff.Add(&after)
	eff.Passed(&before, &after)
	if c.Set.Block != nil {
		return t.join(r, c.Set.Block, eff)
	}
	return nil
}

// owe writes down what a change of a job owes to others.
func (t *tx) owe(r *row, line string, owed []job.Owed, eff *store.Effects) error {
	for _, o := range owed {
		var err error
		switch {
		case o.Debt == job.DebtTurns && t.returned != nil:
			t.returned[spot{r.Tenant, o.Key}] = true
			continue
		case o.Debt == job.DebtTurns:
			err = t.oweTurns(r.Tenant, o.Key)
		default:
			_, err = t.run(`INSERT INTO followups (debt, job, at) VALUES (?, ?, ?)`, string(o.Debt), r.seq,
				micros(t.now))
		}
		if err != nil {
			return err
		}
		eff.Owed = true
	}
	return nil
}

// actorOf returns what a history row keeps of a fence.
func actorOf(f job.Fence) any {
	if !f.Session.IsZero() {
		return blob(f.Session)
	}
	return optional(f.Duty)
}

// Values on their way into the database.

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func blob(id job.ID) any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func document(d json.RawMessage) any {
	if d == nil {
		return nil
	}
	return string(d)
}

// keysDocument writes the keys under which a job stands.
func keysDocument(keys []string) any {
	if len(keys) == 0 {
		return nil
	}
	b, _ := json.Marshal(keys) // text is always JSON
	return string(b)
}

// labelsDocument writes labels for specs.
func labelsDocument(m map[string]string) (any, error) {
	if len(m) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(m)
	return string(b), err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Values on their way out. NULL is the zero value.

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

func integer(v driver.Value) int {
	n, _ := v.(int64)
	return int(n)
}

func instant(v driver.Value) time.Time {
	n, ok := v.(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

func id(v driver.Value) job.ID {
	var id job.ID
	b, _ := v.([]byte)
	copy(id[:], b)
	return id
}

func keysOf(v driver.Value) []string {
	var keys []string
	s, ok := v.(string)
	if !ok {
		return nil
	}
	if !strings.ContainsRune(s, '\\') && strings.HasPrefix(s, `["`) { // nothing is escaped, so no quote is in a key
		return strings.Split(s[2:len(s)-2], `","`)
	}
	json.Unmarshal([]byte(s), &keys) //nolint:errcheck // written from such a list
	return keys
}

func labelsOf(v driver.Value) map[string]string {
	var m map[string]string
	if s, ok := v.(string); ok {
		json.Unmarshal([]byte(s), &m) //nolint:errcheck // written from such a map
	}
	return m
}

func raw(v driver.Value) json.RawMessage {
	s, ok := v.(string)
	if !ok {
		return nil
	}
	return json.RawMessage(s)
}
