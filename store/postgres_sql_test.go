package store_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func str(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func opt(s string) string {
	if s == "" {
		return "NULL"
	}
	return str(s)
}

func uuid(id job.ID) string {
	if id.IsZero() {
		return "NULL"
	}
	return str(id.String())
}

func doc(d json.RawMessage) string { return opt(string(d)) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "NULL"
	}
	return str(t.Format(time.RFC3339Nano))
}

func num[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// array writes one column of s.
func array[T any](kind string, s []T, f func(T) string) string {
	lits := make([]string, len(s))
	for i, v := range s {
		lits[i] = f(v)
	}
	return "ARRAY[" + strings.Join(lits, ", ") + "]::" + kind + "[]"
}

func ids(s []job.ID) string { return array("uuid", s, uuid) }

func execute(name string, args ...string) string {
	return "EXECUTE " + name + "(" + strings.Join(args, ", ") + ")"
}

// scan reads a job as the database has it.
func scan(r row) job.Job {
	id := func(s string) (id job.ID) {
		_ = id.UnmarshalText([]byte(s)) // as the database wrote it
		return id
	}
	integer := func(s string) int { n, _ := strconv.Atoi(s); return n }
	instant := func(s string) time.Time {
		t, _ := time.Parse("2006-01-02 15:04:05.999999-07", s)
		return t.UTC()
	}
	raw := func(s string) json.RawMessage {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	return job.Job{
		ID: id(r["id"]), Tenant: r["tenant"], Kind: r["kind"], Queue: r["queue"], Machine: r["machine"],
		Priority: integer(r["priority"]), Created: instant(r["created"]),
		Place: job.Place{State: job.State(r["state"]), Custody: job.Custody(r["custody"])},
		Epoch: int64(integer(r["epoch"])), N: int64(integer(r["n"])), Lane: job.Lane(r["lane"]),
		Session: id(r["session"]), Claim: id(r["claim"]), Attempt: integer(r["attempt"]), MaxAttempts: integer(r["max_attempts"]),
		Recoveries: integer(r["recoveries"]), Suspect: integer(r["suspect"]), Launch: integer(r["launch"]), Live: r["live"] == "t",
		Since: instant(r["since"]), Due: instant(r["due"]), Ended: instant(r["ended"]), Needs: integer(r["needs"]),
		Ties: job.Ties(integer(r["ties"])), Wish: job.Wish(r["wish"]), WishedBy: r["wished_by"], Resume: job.State(r["resume"]),
		Code: job.Code(r["code"]), Message: r["message"], Work: raw(r["work"]), Result: raw(r["result"]),
	}
}

func scanAll(rows []row) (jobs []job.Job) {
	for _, r := range rows {
		if r["id"] != "" {
			jobs = append(jobs, scan(r))
		}
	}
	return jobs
}

// digest tells changes apart.
func digest(c job.Change) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", c)
	return int64(h.Sum64())
}

// encode writes v as JSON. Text that is no JSON stays as it is, for the database to refuse.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return str(err.Error())
	}
	return str(string(text))
}

func flags(p job.Patch) (n int) {
	for i, set := range []bool{p.Intent, p.Over, p.Retry, p.Recovery, p.Crash, p.Clear} {
		if set {
			n |= 1 << i
		}
	}
	return n
}
