package job

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Order puts a job in order with others: jobs with the same key go one after the other. The next
// one is chosen from the jobs whose time has come and whose prerequisites have ended.
type Order struct {
	// Jobs with the same key go one after the other, also if their kinds differ.
	Key string `json:"key,omitempty" maxLength:"255" example:"account-4711"`

	// In place of key: tasks of one kind go one after the other if these fields of args are equal. A
	// dot leads into a field.
	Args []string `json:"args,omitempty" maxItems:"16" example:"[\"account\"]"`

	// What decides which job goes first. created: the time of its submission. due: the time before
	// which it does not start, or else its submission. A field of args, such as args.version: the
	// least value goes first, numbers before texts, and a job without the field last.
	By string `json:"by,omitempty" pattern:"^(created|due|args\\..+)$" default:"created" example:"args.version"`

	// What the jobs behind it do while it waits for a retry, is blocked or is paused. block: they
	// wait. pass: they go.
	Failing OrderFailing `json:"failing,omitempty" enum:"block,pass" default:"block"`
}

// An OrderFailing says what the jobs behind a job do while it is in trouble.
type OrderFailing string

// The values of OrderFailing.
const (
	OrderBlock OrderFailing = "block" // they wait
	OrderPass  OrderFailing = "pass"  // they go
)

const (
	byCreated = "created"
	byDue     = "due"
	byArgs    = "args."
)

// RankDue is the rank of a job that goes by its due time. An empty rank goes by the time of
// submission. See [Job.RankAt].
const RankDue = "due"

// order checks the order of a spec.
func (v *validation) order(s *Spec) {
	o := s.Order
	if o == nil {
		return
	}
	switch {
	case o.Key == "" && len(o.Args) == 0:
		v.add("order.key", "", "is missing", "give a key, or fields of args")
	case o.Key != "" && o.Args != nil:
		v.add("order.args", "", "cannot be given together with key", "give one of them")
	case o.Key == "" && s.kind() == KindApp:
		v.add("order.args", "", "reads args, which a program does not have", "give a key")
	}
	v.fields("order.args", o.Args)
	v.text("order.key", o.Key, MaxKey)
	switch field, of := strings.CutPrefix(o.By, byArgs); {
	case o.By == "", o.By == byCreated, o.By == byDue:
	case of && field != "" && s.kind() == KindApp:
		v.add("order.by", o.By, "reads args, which a program does not have", "give created or due")
	case of && field != "":
		if _, err := s.Rank(); err != nil {
			v.add("order.by", o.By, err.Error(), "give a field that has a number or a text")
		}
	default:
		v.add("order.by", o.By, "is unknown", "give created, due, or a field such as args.version")
	}
	switch o.Failing {
	case "", OrderBlock, OrderPass:
	default:
		v.add("order.failing", string(o.Failing), "is unknown", "give block or pass")
	}
}

// OrderKey returns the key of the turn that the job takes because of its order.
func (s *Spec) OrderKey() (string, error) {
	if s.Order.Key != "" {
		return inOrder + part(s.Order.Key), nil
	}
	key, err := s.chosen(s.Order.Args)
	return inOrder + s.kind() + "/" + key, err
}

// OrderOf returns the key of an order as specs name it, for the key of its turn.
func OrderOf(key string) string { return names.Replace(strings.TrimPrefix(key, inOrder)) }

// Rank returns where the job stands in its order: a text that sorts by its bytes, the first job
// first. It is empty if the time of submission decides, and [RankDue] if the due time does. The
// error says what is wrong with the field of args.
func (s *Spec) Rank() (string, error) {
	switch s.Order.By {
	case "", byCreated:
		return "", nil
	case byDue:
		return RankDue, nil
	}
	all, err := decode(s.Args)
	if err != nil && len(s.Args) > 0 {
		return "", err
	}
	switch v := within(all, strings.Split(strings.TrimPrefix(s.Order.By, byArgs), ".")).(type) {
	case nil:
		return "z", nil
	case string:
		if len(v) > 255 || strings.Contains(v, "\x00") {
			return "", Errorf(Invalid, "has a text of more than 255 bytes, or with a zero byte")
		}
		return "t" + v, nil
	case json.Number:
		return rankOf(v)
	}
	return "", Errorf(Invalid, "is neither a number nor a text")
}

// RankAt returns where j stands in its order if it is submitted at the time now. The text sorts by
// its bytes. It is empty for a job without an order.
//
// Jobs of one submission go in the order of their ids. Jobs that are due at the same time have the
// same text: they go by priority.
func (j *Job) RankAt(now time.Time) string {
	switch {
	case j.Order == "":
		return ""
	case j.Rank == "":
		return fmt.Sprintf("%018d%s", now.UnixMicro(), j.ID)
	case j.Rank != RankDue:
		return j.Rank
	case j.Due.IsZero():
		return fmt.Sprintf("%018d", now.UnixMicro())
	}
	return fmt.Sprintf("%018d", max(0, j.Due.UnixMicro()))
}

// rankOf returns a text for a number, so that texts sort as the numbers do. Large integers sort
// right even where many of them are the same floating-point number.
func rankOf(n json.Number) (string, error) {
	f, err := n.Float64()
	if err != nil {
		return "", Errorf(Invalid, "has a number that is out of range")
	}
	i, err := n.Int64()
	if err != nil { // of numbers that are as large the order is as far as they are exact
		if i = math.MaxInt64; f < 1<<63 {
			i = int64(max(math.MinInt64, f))
		}
	}
	bits := math.Float64bits(f + 0) // and never that of a negative zero
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return fmt.Sprintf("n%016x%016x", bits, uint64(i)^1<<63), nil
}
