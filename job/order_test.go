package job

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func ordered(by, args string) *Spec {
	return &Spec{Kind: "send", Order: &Order{Key: "k", By: by}, Args: json.RawMessage(args)}
}

func TestRank(t *testing.T) {
	t.Parallel()
	var last string
	for _, v := range []string{
		`-1e308`, `-9007199254740993`, `-9007199254740992`, `-1.5`, `-1`, `-0.5`, `0`, `0.5`, `1`, `1.5`, `9007199254740992`, `9007199254740993`,
		`9223372036854775807`, `1e300`, `""`, `"A"`, `"a"`, `"aa"`, `"b"`, `null`,
	} {
		rank, err := ordered("args.a.b", `{"a":{"b":`+v+`}}`).Rank()
		if err != nil || rank <= last {
			t.Errorf("%s has the rank %q, the one before it %q, %v", v, rank, last, err)
		}
		last = rank
	}
	for by, want := range map[string]string{"": "", "created": "", "due": RankDue, "args.c": "z", "args.a.b.c": "z"} {
		if rank, err := ordered(by, `{"a":{"b":1}}`).Rank(); rank != want || err != nil {
			t.Errorf("by %q: %q, want %q, %v", by, rank, want, err)
		}
	}
	if rank, err := ordered("args.a", ``).Rank(); rank != "z" || err != nil {
		t.Errorf("without args: %q, %v", rank, err)
	}
	same := func(a, b string) {
		t.Helper()
		x, _ := ordered("args.a", `{"a":`+a+`}`).Rank()
		if y, err := ordered("args.a", `{"a":`+b+`}`).Rank(); x != y || err != nil {
			t.Errorf("%s has the rank %q, %s %q, %v", a, x, b, y, err)
		}
	}
	same(`1`, `1.0`)
	same(`0`, `-0`)
	same(`0`, `-0.0`)
	same(`5e18`, `5000000000000000000`)
	same(`9223372036854775807`, `9223372036854775808`) // a double holds neither, and the greater one is no less
	same(`-9223372036854775808`, `-9223372036854775809`)
	for _, v := range []string{`[]`, `{}`, `true`, `1e999`} {
		if rank, err := ordered("args.a", `{"a":`+v+`}`).Rank(); err == nil {
			t.Errorf("%s has the rank %q", v, rank)
		}
	}
}

// TestRanksSort compares the order of ranks with that of numbers.
func TestRanksSort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64), rapid.Float64Range(-10, 10))
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, y := rank(t, a), rank(t, b)
		if (a < b) != (x < y) || (a > b) != (x > y) {
			t.Fatalf("%v, %v have the ranks %q, %q", a, b, x, y)
		}
		i, j := rapid.Int64().Draw(t, "i"), rapid.Int64().Draw(t, "j")
		if x, y := rank(t, i), rank(t, j); (i < j) != (x < y) || (i > j) != (x > y) {
			t.Fatalf("%d, %d have the ranks %q, %q", i, j, x, y)
		}
	})
}

func rank(t *rapid.T, v any) string {
	text, err := json.Marshal(map[string]any{"a": v})
	if err != nil {
		t.Fatal(err)
	}
	rank, err := ordered("args.a", string(text)).Rank()
	if err != nil {
		t.Fatal(err)
	}
	return rank
}

// TestOrder goes through what a job in order has, from its place in line to its end.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, limits := range [][]string{nil, {"gpu"}} {
		for _, pass := range []Ties{0, TiePass} {
			t.Run(fmt.Sprint(limits, pass), func(t *testing.T) {
				t.Parallel()
				j := Job{Kind: "send", Order: "order/k", Limits: limits, Ties: TieLimited | pass, Attempt: 1, MaxAttempts: 2}
				if first := j.First(); !slices.Equal(first, []string{"order/k"}) {
					t.Errorf("it needs %q first", first)
				}
				j.Place = Place{Waiting, Gate}
				now := time.Unix(1000, 0)
				if j = j.InLine(now); j.Line != "order/k" || !j.Since.Equal(now) {
					t.Errorf("it stands in the line of %q since %v", j.Line, j.Since)
				}
				granted := func() {
					t.Helper()
					for _, group := range [][]string{{"order/k"}, limits} {
						if len(group) == 0 {
							continue
						}
						if keys := j.TurnKeys(j.Lacks(j.State)); !slices.Equal(keys, group) || j.Line != group[0] {
							t.Errorf("it lacks %q, and stands in the line of %q", keys, j.Line)
						}
						j, _ = j.Apply(Granted(&j), now)
					}
					if j.Place != (Place{Pending, Ready}) || !slices.Equal(j.Turns(), append([]string{"order/k"}, limits...)) {
						t.Errorf("it is %s, with turns of %q", j.Place, j.Turns())
					}
				}
				granted()
				j.Place, j.Session = Place{Running, Worker}, NewID()
				before := j
				retry := Change{Job: j.ID, From: j.Guard(Fence{}), To: Gate, Path: []Entry{{State: Waiting}}, Set: Patch{Retry: true, Delay: 1}}
				j, _ = j.Apply(retry, now)
				want := limits
				if pass != 0 {
					want = append([]string{"order/k"}, limits...)
				}
				if back := Returned(&before, &j); !slices.Equal(back, want) || j.Line != "" {
					t.Errorf("a failure gives back %q, want %q; line %q", back, want, j.Line)
				}
				j.Due = now.Add(-1)
				if p := Next(&j, Pending, now); pass == 0 && limits == nil && p != (Place{Pending, Ready}) {
					t.Errorf("who has kept its place goes to %s", p)
				}
				j.Due = time.Time{}
				j.Ties |= TieOrder
				before = j
				j, _ = j.Apply(Change{Job: j.ID, To: None, Path: []Entry{{State: Canceled}}}, now)
				if back := Returned(&before, &j); !slices.Equal(back, []string{"order/k"}) {
					t.Errorf("its end gives back %q", back)
				}
			})
		}
	}
}

// TestPass: who is paused, or blocked, lets others pass where it stands in line when it goes on,
// and keeps nothing then.
func TestPass(t *testing.T) {
	t.Parallel()
	for _, trouble := range []Place{{Paused, User}, {Blocked, Recovery}} {
		for _, at := range []State{Pending, ProcessingInputs, StagingInputs, StagingJob, SubmittingJob, Archiving} {
			for _, pass := range []Ties{0, TiePass} {
				j := Job{Kind: KindApp, App: "sh", Order: "order/k", Limits: []string{"gpu"}, Place: Place{at, Worker}, Ties: TieLimited | TieOrder | TieAhead | pass}
				c := Change{Job: j.ID, From: j.Guard(Fence{}), To: trouble.Custody, Path: []Entry{{State: trouble.State}}, Set: Patch{Resume: at}}
				if trouble.State == Blocked {
					c.Set.Block = &Block{Code: FilesystemFull, Tester: "space"}
				}
				j, _ = j.Apply(c, time.Unix(1000, 0))
				passed := j.Ties&TieOrder == 0
				if want := pass != 0 && at != Archiving; passed != want || passed && len(j.Turns()) > 0 {
					t.Errorf("%s in %s, pass %t: others pass %t, want %t; it keeps %q", trouble.State, at, pass != 0, passed, want, j.Turns())
				}
				if p := Next(&j, at, time.Unix(2000, 0)); passed != (p.Custody == Gate && j.Lacks(p.State) == TieOrder) {
					t.Errorf("%s in %s, pass %t: it goes on at %s", trouble.State, at, pass != 0, p)
				}
			}
		}
	}
}
