package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/claims"
)

const secret = "a secret of thirty-two bytes, or more"

var asWorker = []string{"Pawl-Worker", secret}

// reportTries are what a worker can say of a task, and something that is wrong with it.
var reportTries = map[string][2]string{
	"finish":     {`, "result": {"sent": 1}`, `, "resul": 1`},
	"fail":       {`, "message": "boo", "final": true, "code": "TIME_LIMIT", "data": [1]`, `, "code": "POISON"`},
	"checkpoint": {`, "checkpoint": {"page": 7}`, ``},
	"progress":   {`, "done": 40, "total": 100, "what": "sending"`, `, "done": "x"`},
	"log":        {`, "name": "log", "message": "page 7 is empty", "key": "page-7"`, `, "name": "RUNNING"`},
	"snooze":     {`, "delay": "5m"`, ``},
	"block":      {`, "message": "away", "tester": "tcp", "params": {"address": "x:1"}`, `, "message": "away"`},
	"cancel":     {`, "message": "closed"`, `, "message": 1`},
	"release":    {``, `, "x": 1`},
}

// claimTries are tries of the operations on claims.
func claimTries() map[string][]try {
	all := map[string][]try{
		"claim": {
			{body: `{"kinds":["claimed"],"slots":2}`, header: asWorker, status: 200},
			{body: `{"id":"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77","worker":"w","host":"h","pid":1,"version":"2","kinds":["claimed"],` +
				`"queues":["default"],"slots":2,"lease":"2s","wait":"1ms"}`, header: asWorker, status: 200},
			{body: `{"kinds":["claimed"],"slots":2}`, status: 422},
			{body: `{"kinds":["claimed"],"slots":2}`, header: []string{"Pawl-Worker", "short"}, status: 422},
			{body: `{"kinds":["claimed"]}`, header: asWorker, status: 422},
			{body: `{"slots":1}`, header: asWorker, status: 422},
			{body: `{"kinds":["app"],"slots":1}`, header: asWorker, status: 422},
			{body: `{"kinds":["claimed"],"slots":1001}`, header: asWorker, status: 422},
			{body: `{"kinds":["claimed"],"slots":1,"queues":["none"]}`, header: asWorker, status: 422},
			{body: `{"kinds":["claimed"],"slots":1,"lease":"1ms"}`, header: asWorker, status: 422},
			{body: `{"kinds":["claimed"],"slots":1,"wait":"-1s"}`, header: asWorker, status: 422},
			{body: `{"kinds":["claimed"],"slots":1}`, header: append([]string{"Authorization", "Bearer bob-token"}, asWorker...), status: 403},
		},
		"renew-claims": {
			{body: `{}`, header: asWorker, status: 200},
			{body: `{"jobs":[{held}]}`, header: asWorker, status: 200},
			{body: `{"jobs":[],"lease":"20s"}`, header: asWorker, status: 200},
			{body: `{"lease":"2h"}`, header: asWorker, status: 422},
			{body: `{"wait":"-1s"}`, header: asWorker, status: 422},
			{body: `{}`, header: []string{"Pawl-Worker", secret + " of nobody"}, status: 409},
		},
		"end-claims": {
			{header: []string{"Pawl-Worker", secret + " that ends"}, status: 204},
			{header: []string{"Pawl-Worker", secret + " that ends"}, status: 204},
			{status: 422},
		},
	}
	all["snooze-claims"] = []try{{body: `{"jobs":[{held, "delay": "-5m"}]}`, header: asWorker, status: 422}}
	all["progress-claims"] = []try{
		{body: `{"jobs":[{held, "total": 100}]}`, header: asWorker, status: 422},
		{body: `{"jobs":[{held, "done": -1}]}`, header: asWorker, status: 422},
		{body: `{"jobs":[{held, "done": 1, "total": -1}]}`, header: asWorker, status: 422},
	}
	for verb, of := range reportTries {
		all[verb+"-claims"] = append(all[verb+"-claims"], []try{
			{body: `{"jobs":[{held` + of[0] + `}]}`, header: asWorker, status: 200},
			{body: `{"jobs":[{held` + of[0] + `}]}`, header: []string{"Pawl-Worker", secret + " of nobody"}, status: 409},
			{body: `{"jobs":[{held` + of[1] + `}]}`, header: asWorker, status: 422},
			{body: `{"jobs":[]}`, header: asWorker, status: 422},
			{body: `{"jobs":[{held` + of[0] + `}]}`, status: 422},
		}...)
	}
	return all
}

// held claims a new task and names it as reports do, without the bracket at the end.
func (f *face) held() string {
	f.Helper()
	f.is(202, nil, "POST", "/v1/jobs", `{"kind":"claimed"}`)
	var c struct{ Jobs []claims.Task }
	f.is(200, &c, "POST", "/v1/claims", `{"kinds":["claimed"],"slots":1}`, asWorker...)
	if len(c.Jobs) != 1 {
		f.Fatalf("claimed %+v", c.Jobs)
	}
	b, err := json.Marshal(claims.Held{ID: c.Jobs[0].ID, Epoch: c.Jobs[0].Epoch})
	if err != nil {
		f.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "}")
}

// TestWaitingClaims: claims that wait are woken by jobs, and take a place as streams do.
func TestWaitingClaims(t *testing.T) {
	stopping := make(chan struct{})
	f := open(t, stopping)
	type answer struct{ Jobs []claims.Task }
	ask := func(name string) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			var a answer
			r := f.call("POST", "/v1/claims", `{"kinds":["claimed"],"slots":1,"lease":"1h","wait":"5m"}`, "Pawl-Worker", secret+name)
			if err := json.Unmarshal([]byte(r.body), &a); err != nil || r.code != 200 {
				t.Errorf("%d: %s", r.code, r.body)
			}
			got <- a
		}()
		return got
	}
	one, two := ask(" one"), ask(" two")
	f.is(202, nil, "POST", "/v1/jobs", `{"kind":"claimed"}`)
	var first answer
	left := two
	select {
	case first = <-one:
	case first = <-two:
		left = one
	}
	if len(first.Jobs) != 1 {
		t.Errorf("a claim was answered with %+v", first)
	}
	close(stopping)
	if second := <-left; len(second.Jobs) != 0 {
		t.Errorf("one job, and two claims have it: %+v", second)
	}
}
