package postgres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
)

// sent enqueues one task in SQL.
func (a *app) sent(task string) (id job.ID, existed bool, err error) {
	var text string
	err = a.db.QueryRow(a.Context(), "SELECT job::text, existed FROM pawl.enqueue(jsonb_build_object('jobs', jsonb_build_array($1::jsonb)))",
		task).Scan(&text, &existed)
	if err == nil {
		id, err = job.ParseID(text)
	}
	return id, existed, err
}

// A statement of SQL gets what the kind says, as the library does.
func TestEnqueueInSQLFollowsTheKind(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	task := pawl.Task[order, int]{
		Kind: "declared", Unique: pawl.UntilDone("account"), Order: pawl.InOrder("account").By("args.n").Passing(),
		Limits: []string{"license", "account/{account}"},
		Retry:  &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Base: job.Duration(time.Minute)}},
	}
	a.must(task.Declare(ctx, a.svc))
	by := func(h *pawl.Handle[int]) string {
		j, err := h.Job(ctx)
		a.must(err)
		spec, err := job.ParseSpec(j.Request)
		a.must(err)
		return fmt.Sprint(j.Limits, strings.HasPrefix(j.Order, "order/declared/"), j.Rank, j.MaxAttempts, j.Queue, spec.RetryPolicy(), j.Ties&^job.TieTurn)
	}
	id, existed, err := a.sent(`{"kind": "declared", "args": {"n": 1, "account": "ada"}, "retry": null}`)
	if err != nil || existed {
		t.Fatal(existed, err)
	}
	if h := a.enqueue(task, order{"ada", 2}); h.ID != id || !h.Existed {
		t.Errorf("the library made job %s, and SQL job %s", h.ID, id)
	}
	h := a.enqueue(task, order{"eve", 3})
	if again, existed, err := a.sent(`{"kind": "declared", "args": {"account": "eve", "n": 4}}`); again != h.ID || !existed || err != nil {
		t.Errorf("SQL made job %s, and the library job %s: %v", again, h.ID, err)
	}
	if sql, lib := by(task.Find(a.svc, id)), strings.Replace(by(h), "account/eve", "account/ada", 1); sql != lib {
		t.Errorf("SQL: %s\nlibrary: %s", sql, lib)
	}

	// What a task says itself stands.
	id, _, err = a.sent(`{"kind": "declared", "args": {"account": "ada", "n": 5}, "unique": {"key": "five"}, "limits": [],
		"order": {"key": "five"}, "retry": {"max_attempts": 7}}`)
	a.must(err)
	if j, err := a.svc.Jobs().Job(ctx, id); err != nil || j.MaxAttempts != 7 || j.Order != "order/five" || len(j.Limits) != 0 {
		t.Errorf("%+v, %v", j, err)
	}

	_, err = a.svc.Jobs().Kinds().Disable(ctx, "declared", true, service.AnyVersion)
	a.must(err)
	if _, _, err := a.sent(`{"kind": "declared", "args": {}}`); err == nil || !strings.Contains(err.Error(), "kind: declared is disabled") {
		t.Errorf("of a disabled kind: %v", err)
	}
}

// Each account is under a limit of its own and has an order of its own, also for jobs from SQL.
func TestLimitsAndOrdersByArguments(t *testing.T) {
	testenv.Aside(t)
	a := start(t)
	ctx := t.Context()
	task := pawl.Task[order, int]{
		Kind: "by", Limits: []string{"account/{account}"}, Order: pawl.InOrder("account").By("args.n"),
	}
	a.must(task.Declare(ctx, a.svc))
	a.must(a.svc.Jobs().SetLimit(ctx, job.Limit{Key: "account/*", Most: 1}))
	a.must(a.svc.Jobs().SetLimit(ctx, job.Limit{Key: "account/eve", Most: 0}))
	tx := a.begin(1)
	var hs []*pawl.Handle[int]
	for _, n := range []int{10, 9, -3} {
		a.enqueue(task, order{"eve", n}, postgres.In(tx))
		hs = append(hs, a.enqueue(task, order{"ada", n}, postgres.In(tx)))
		var id string
		a.must(tx.QueryRow(ctx, "SELECT job::text FROM pawl.enqueue($1::jsonb)",
			fmt.Sprintf(`{"jobs": [{"kind": "by", "args": {"account": "ada", "n": %d}}]}`, n-1)).Scan(&id))
		of, err := job.ParseID(id)
		a.must(err)
		hs = append(hs, task.Find(a.svc, of))
	}
	a.must(tx.Commit(ctx))
	var ran []int
	task.Handle(a.svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		ran = append(ran, j.Args.N) // no lock: one of an account at once, and eve has none
		return 0, nil
	})
	a.run()
	for _, h := range hs {
		if _, err := h.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{-4, -3, 8, 9, 9, 10}; !slices.Equal(ran, want) {
		t.Errorf("they ran as %v, want %v", ran, want)
	}
	// The others of eve wait behind the first.
	for key, waiting := range map[string]int{"account/eve": 1, "account/ada": 0} {
		if u, err := a.svc.Jobs().Limit(ctx, key); err != nil || u.Waiting+u.InUse != waiting {
			t.Errorf("%s: %+v, %v", key, u, err)
		}
	}
}

// The keys of equal arguments are those of package job, whatever is in them.
func TestKeysInSQLAreThoseOfTheLibrary(t *testing.T) {
	a := start(t)
	both := func(args string, fields []string) (sql, lib string) {
		spec := job.Spec{Kind: "k", Args: json.RawMessage(args), Unique: &job.Unique{Args: fields}}
		lib, err := spec.UniqueKey()
		if err != nil {
			t.Fatal(err)
		}
		list, _ := json.Marshal(fields)
		if fields == nil {
			list = nil
		}
		if err := a.db.QueryRow(context.Background(), "SELECT pawl.args_key($1::jsonb, $2::jsonb)", args, list).Scan(&sql); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		return sql, lib
	}
	for _, args := range []string{
		`null`, `true`, `0`, `-0`, `0.0`, `1`, `-1.50`, `1e3`, `1E-3`, `-12.5e2`, `123456789012345678901234567890`, `0.000001`, `1e100`, `""`,
		`"\"\\\b\f\n\r\t\u0001\u001f\u007f/<>&'\u2028\u2029é😀"`, `[]`, `{}`, `[1,[2.0,{"a":null}]]`, `{"b":1,"a":2,"B":3,"":4,"é":5,"a.b":6,"ab":7}`,
		`{"a":{"b":[1,2]},"a.b":1}`, `{"a":[5],"b":{"c":"x"}}`, `{"a":1,"a":2}`,
	} {
		for _, fields := range [][]string{nil, {"a"}, {"a.b", "b.c"}, {"b", "a", "é", "a"}, {"a.0"}, {"a."}, {"<&>"}, {}} {
			if sql, lib := both(args, fields); sql != lib {
				t.Errorf("%s by %q: SQL has %s, the library %s", args, fields, sql, lib)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(value(t, 3))
		if err != nil {
			t.Skip(err)
		}
		if strings.Contains(string(text), `\u0000`) {
			t.Skip("jsonb has no such character")
		}
		if sql, lib := both(string(text), rapid.SampledFrom([][]string{nil, {"a"}, {"b.a", "c"}}).Draw(t, "fields")); sql != lib {
			t.Fatalf("%s: SQL has %s, the library %s", text, sql, lib)
		}
	})
}

// The keys of limits and the places in an order that a task has because of its arguments are those
// of package job, too, and so is what is refused.
func TestPlacesInSQLAreThoseOfTheLibrary(t *testing.T) {
	a := start(t)
	place := func(args, limit, by string) (sql, lib string) {
		spec := job.Spec{Kind: "k", Args: json.RawMessage(args), Limits: []string{limit}}
		keys, err := spec.LimitKeys()
		lib = refusal(strings.Join(keys, " "), cmp.Or(err, spec.Validate()))
		spec.Order = &job.Order{Key: "o", By: "args." + by}
		rank, err := spec.Rank()
		ask := func(sql, of string) (text string, err error) {
			err = a.db.QueryRow(a.Context(), sql, args, of).Scan(&text)
			return text, err
		}
		sql = refusal(ask("SELECT pawl.limit_key($1::jsonb, $2)", limit))
		return sql + " " + refusal(ask("SELECT pawl.rank($1::jsonb, $2)", by)), lib + " " + refusal(rank, err)
	}
	for _, v := range []string{
		`null`, `true`, `0`, `-0`, `-0.0`, `0.0`, `1`, `-1.50`, `1e3`, `1E-3`, `-12.5e2`, `4711.000`,
		`9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `-9223372036854775809`,
		`123456789012345678901234567890`, `0.000001`, `1e100`, `-1e100`, `1e400`, `-1e400`, `1e-400`, `9007199254740993`,
		`""`, `"ada"`, `"a b+c~d:e@f.g_h-i"`, `"50% / *é😀"`, `"\u0001"`, `"{v}"`, `[]`, `{}`, `{"v": 1}`, `1e395`,
		`"` + strings.Repeat("x", 255) + `"`, `"` + strings.Repeat("x", 256) + `"`, `"` + strings.Repeat("x", 395) + `"`,
		`"` + strings.Repeat("é", 200) + `"`,
	} {
		for _, limit := range []string{"of/{v}", "of/{v.v}", "of/a{v}b-{w}", "of/{v}/{v}", "plain"} {
			if sql, lib := place(`{"v": `+v+`, "w": 5}`, limit, "v"); sql != lib {
				t.Errorf("%s, %s: SQL has %q, the library %q", v, limit, sql, lib)
			}
		}
	}
	for _, limit := range []string{
		"", "{v}", "{v}/a", "a{v}/b", "a/{}", "a/{v", "a/v}", "a//b", "a/*", "user/ada", "kind/{v}", "tenant", "order/x",
		"order", "unique/x", "ahead/a", "starts/a", "dials", "orders/x", "a b/c", "a/b c", "é", "a/é",
		"a/" + strings.Repeat("x", 398), "a/" + strings.Repeat("x", 399),
	} {
		if sql, lib := place(`{"v": "x"}`, limit, "v"); sql != lib {
			t.Errorf("%s: SQL has %q, the library %q", limit, sql, lib)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v, err := json.Marshal(value(t, 0))
		if err != nil || strings.Contains(string(v), `\u0000`) {
			t.Skip("jsonb has no such character")
		}
		if sql, lib := place(`{"v": `+string(v)+`}`, "of/x-{v}", "v"); sql != lib {
			t.Fatalf("%s: SQL has %q, the library %q", v, sql, lib)
		}
	})
}

// refusal is text, or that it was refused.
func refusal(text string, err error) string {
	if err != nil {
		return "refused"
	}
	return text
}

// value draws a JSON value.
func value(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "type") {
	case 0:
		return rapid.Float64Range(-1e20, 1e20).Draw(t, "number")
	case 1:
		return rapid.Int64().Draw(t, "integer")
	case 2:
		return rapid.String().Draw(t, "text")
	case 3:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "word")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "items"))
		for i := range list {
			list[i] = value(t, depth-1)
		}
		return list
	}
	fields := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		name := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.String()).Draw(t, "name")
		fields[name] = value(t, depth-1)
	}
	return fields
}

func TestMain(m *testing.M) { testenv.Main(m) }
