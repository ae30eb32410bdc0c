package sqlite

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// This file has all SQL that writes history, and all that moves a job: what sets its state,
// custody, epoch and n. [tx.change] and submit call it.

// Changes of many jobs that differ in nothing but whose they are: most claims and most ends of
// tasks, and the first events of a bulk submit. They are written together, in two statements for
// all of them instead of two for each.
type changes struct {
	jobs []int64 // seq

	columns uint32 // of jobs, by their place in [mutable]; 0: only history is written
	values  []any  // of these columns
	epoch   int64  // from which they go out
	n       int64

	from, to job.Custody
	path     []job.Entry
	cause    job.Cause
	actor    any
	asked    any // see [tx.change]
}

// alike reports whether the change b can be written together with those of a.
func (a *changes) alike(b *changes) bool {
	return a.columns == b.columns && a.epoch == b.epoch && a.n == b.n && a.from == b.from && a.to == b.to &&
		a.cause == b.cause &&
		same(a.actor, b.actor) && a.asked == b.asked && slices.EqualFunc(a.values, b.values, same) &&
		slices.EqualFunc(a.path, b.path, func(a, b job.Entry) bool {
			return a.State == b.State && a.Code == b.Code && a.Message == b.Message && bytes.Equal(a.Data, b.Data)
		})
}

// same compares two values on their way into the database.
func same(a, b any) bool {
	x, ok := a.([]byte)
	if !ok {
		return a == b
	}
	y, ok := b.([]byte)
	return ok && bytes.Equal(x, y)
}

// add puts a change with those that wait to be written. [tx.flush] writes them, and every statement
// that might look at them or touch the same rows calls it first.
func (t *tx) add(seq int64, c changes) error {
	if len(t.waiting.jobs) == 0 || !t.waiting.alike(&c) {
		if err := t.flush(); err != nil {
			return err
		}
		c.jobs = t.waiting.jobs
		t.waiting = c
	}
	t.waiting.jobs = append(t.waiting.jobs, seq)
	return nil
}

// flush writes the changes that wait, and the turns.
func (t *tx) flush() error {
	if err := t.flushTurns(); err != nil {
		return err
	}
	c := &t.waiting
	if len(c.jobs) == 0 {
		return nil
	}
	form, jobs := which(c.jobs)
	if c.columns != 0 {
		args := append(append(c.values, jobs...), c.epoch, c.n)
		n, err := t.run(t.w.updateOf(update{c.columns, form}), args...)
		if err != nil {
			return err
		}
		if n != int64(len(c.jobs)) {
			return job.Errorf(job.Internal, "%d of %d jobs moved under the lock", int64(len(c.jobs))-n, len(c.jobs))
		}
	}
	insert := `INSERT OR FAIL INTO events (n, epoch, state, custody, at, cause, actor, code, message, data,
		change, job) ` + form.rows(11)
	for i, e := range c.path {
		custody, asked := c.from, any(nil)
		if i == len(c.path)-1 {
			custody, asked = c.to, c.asked
		}
		args := append([]any{
			c.n + 1 + int64(i), c.epoch, string(e.State), string(custody), micros(t.now), string(c.cause), c.actor,
			optional(string(e.Code)), optional(e.Message), document(e.Data), asked,
		}, jobs...)
		if _, err := t.run(insert, args...); err != nil {
			return err
		}
	}
	c.jobs = c.jobs[:0]
	return nil
}

// A form is how a statement says which jobs it is about.
type form int

const (
	one form = iota // by its number
	// by the first and the last of numbers without a gap, as jobs mostly have that were submitted
	// together
	span
	list // by a JSON list
)

// where is the condition on a column that it is the number of one of the jobs.
func (f form) where(column string) string {
	return column + [...]string{one: " = ?", span: " BETWEEN ? AND ?", list: " IN (SELECT value FROM json_each(?))"}[f]
}

// rows is the part of an INSERT that makes a row for each job, of as many values and the job's
// number.
func (f form) rows(n int) string {
	values := strings.Repeat("?, ", n)
	return [...]string{
		one:  "VALUES (" + values + "?)",
		span: "SELECT " + values + "seq FROM jobs NOT INDEXED WHERE seq BETWEEN ? AND ?",
		list: "SELECT " + values + "value FROM json_each(?)",
	}[f]
}

// which returns how a statement says that it is about these jobs, and the arguments for that.
func which(seqs []int64) (form, []any) {
	first, last := slices.Min(seqs), slices.Max(seqs)
	switch int64(len(seqs)) {
	case 1:
		return one, []any{first}
	case last - first + 1:
		return span, []any{first, last}
	}
	return list, []any{seqList(seqs)}
}

// seqList writes numbers as a JSON list, for json_each.
func seqList(seqs []int64) string {
	b := append(make([]byte, 0, 2+8*len(seqs)), '[')
	for i, n := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, ']'))
}

// mutable are the columns that changes write.
var mutable = [...]string{
	"state", "custody", "epoch", "n", "lane", "session", "claim", "attempt", "recoveries", "suspect", "launch", "live",
	"since", "due", "ended", "wish", "resume", "code", "message", "work", "result",
	"ties", "line",
	"grp", "until",
}

// An update is a statement that sets some of the [mutable] columns.
type update struct {
	columns uint32
	form    form
}

func (u update) String() string {
	var set []string
	for i, name := range mutable {
		if u.columns&(1<<i) != 0 {
			set = append(set, name+" = ?")
		}
	}
	return "UPDATE OR FAIL jobs SET " + strings.Join(set, ", ") + " WHERE " + u.form.where("seq") +
		" AND epoch = ? AND n = ?"
}

// changed returns which of the [mutable] columns are different in after, and what goes into them.
// Columns that stay as they are are left out of the statement: each costs, and each may have an
// index.
func changed(before, after *job.Job) (columns uint32, values []any) {
	values = make([]any, 0, len(mutable)+4)
	set := func(column int, v any) {
		columns |= 1 << column
		values = append(values, v)
	}
	if after.State != before.State {
		set(0, string(after.State))
	}
	if after.Custody != before.Custody {
		set(1, string(after.Custody))
	}
	if after.Epoch != before.Epoch {
		set(2, after.Epoch)
	}
	set(3, after.N)
	if after.Lane != before.Lane {
		set(4, string(after.Lane))
	}
	if after.Session != before.Session {
		set(5, blob(after.Session))
	}
	if after.Claim != before.Claim {
		set(6, blob(after.Claim))
	}
	for i, v := range [...][2]int{
		{before.Attempt, after.Attempt},
		{before.Recoveries, after.Recoveries},
		{before.Suspect, after.Suspect},
		{before.Launch, after.Launch},
	} {
		if v[0] != v[1] {
			set(7+i, int64(v[1]))
		}
	}
	if after.Live != before.Live {
		set(11, flag(after.Live))
	}
	for i, v := range [...][2]time.Time{
		{before.Since, after.Since},
		{before.Due, after.Due},
		{before.Ended, after.Ended},
	} {
		if !v[0].Equal(v[1]) {
			set(12+i, micros(v[1]))
		}
	}
	if after.Wish != before.Wish {
		set(15, string(after.Wish))
	}
	if after.Resume != before.Resume {
		set(16, string(after.Resume))
	}
	if after.Code != before.Code {
		set(17, string(after.Code))
	}
	if after.Message != before.Message {
		set(18, after.Message)
	}
	if !bytes.Equal(after.Work, before.Work) {
		set(19, document(after.Work))
	}
	if !bytes.Equal(after.Result, before.Result) {
		set(20, document(after.Result))
	}
	if after.Ties != before.Ties {
		set(21, int64(after.Ties))
	}
	if after.Line != before.Line {
		set(22, after.Line)
	}
	if after.Group != before.Group {
		set(23, after.Group)
	}
	if !after.Until.Equal(before.Until) {
		set(24, micros(after.Until))
	}
	return columns, values
}

// insertJob makes the row of a job, insertLimited one that is under limits or in an order. Its
// first event is one of the changes that wait.
var insertJob, insertLimited = inserting("", ""), inserting(", limit_keys, line, ordered, rank", ", ?, ?, ?, ?")

func inserting(columns, values string) string {
	return `INSERT INTO jobs (id, tenant, owner, kind, name, queue, machine, priority, max_attempts, created,
		external_id, parent, state, custody, epoch, n, lane, attempt, since, due, needs, ties, app, trace, stem, watch` +
		columns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?` + values + `)
		ON CONFLICT (id) DO NOTHING`
}

// addEvent writes an event of a user, or of the job itself, that is no change of the job.
const addEvent = `INSERT INTO events (job, n, sub, epoch, state, custody, at, cause, actor, message, data, name,
		key)
	VALUES (?, ?, (SELECT coalesce(max(sub), 0) + 1 FROM events WHERE job = ? AND n = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	RETURNING sub, seq`

// keepJob and keepEvent make rows of nobody, which keep the highest numbers from being given again:
// see [tx.reserve]. dropJob and dropEvent remove them.
var (
	keepJob = store.SQL(`INSERT INTO jobs (seq, id, tenant, owner, kind, name, queue, machine, priority, max_attempts,
		created, state, custody, epoch, n, lane, attempt, since, hidden)
		VALUES (?, zeroblob(16), '', '', '', '', '', '', 0, 0, ?, '', {None}, 0, 0, '', 0, 0, 2)`)
	keepEvent = store.SQL(`INSERT INTO events (seq, job, n, epoch, state, custody, at, cause)
		VALUES (?, 0, 0, 0, '', {None}, 0, '')`)
	dropJob   = `DELETE FROM jobs WHERE id = zeroblob(16)`
	dropEvent = `DELETE FROM events WHERE job = 0`
)
