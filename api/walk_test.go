package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

var update = flag.Bool("update", false, "write golden files anew")

// A document is the OpenAPI document as a client reads it.
type document struct {
	Paths      map[string]map[string]*operation `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	ID          string                `json:"operationId"`
	Summary     string                `json:"summary"`
	Tags        []string              `json:"tags"`
	Security    []map[string][]string `json:"security"`
	RequestBody any                   `json:"requestBody"`
	Parameters  []struct {
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Example     any    `json:"example"`
	} `json:"parameters"`
	Responses map[string]struct {
		Ref     string                     `json:"$ref"`
		Content map[string]json.RawMessage `json:"content"`
	} `json:"responses"`

	method, path string
}

// operations returns the operations of a document, by path and method.
func (d *document) operations() (list []*operation) {
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			op.method, op.path = strings.ToUpper(method), path
			list = append(list, op)
		}
	}
	return list
}

func TestOpenAPI(t *testing.T) {
	f := open(t, nil)
	var doc document
	r := f.is(200, &doc, "GET", "/openapi.json", "")

	t.Run("it is the one in docs", func(t *testing.T) {
		const name = "../docs/openapi.yaml"
		got := f.is(200, nil, "GET", "/openapi.yaml", "").body
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != got {
			t.Errorf("%s is not what is answered: run go test ./api -run TestOpenAPI -update", name)
		}
	})
	t.Run("everything in it is said in words", func(t *testing.T) {
		for name, s := range doc.Components.Schemas {
			for field, p := range s.Properties {
				if p.Description == "" {
					t.Errorf("%s.%s has no description", name, field)
				}
			}
		}
		for _, op := range doc.operations() {
			if op.ID == "" || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s %s has id %q, summary %q, tags %v", op.method, op.path, op.ID, op.Summary, op.Tags)
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s %s: parameter %s has no description", op.method, op.path, p.Name)
				}
			}
		}
	})
	t.Run("a page that tries requests sends nothing that nobody asked for", func(t *testing.T) {
		for _, op := range doc.operations() {
			for _, p := range op.Parameters {
				if !p.Required && p.Example != nil {
					t.Errorf("%s: %s is sent along as %v", op.ID, p.Name, p.Example)
				}
			}
		}
		_, examples, _ := strings.Cut(r.body, `"/v1/bulk":`)
		if _, first, _ := strings.Cut(examples, `"examples":{`); !strings.HasPrefix(first, `"count":`) {
			t.Errorf("the first example of a bulk action is %.100s", first)
		}
	})
	t.Run("a proxy's prefix is in it", func(t *testing.T) {
		f := openWith(t, api.Config{Prefix: "pawl/"})
		for _, path := range []string{"/openapi.json", "/pawl/openapi.json"} {
			if r := f.is(200, nil, "GET", path, ""); !strings.Contains(r.body, `"servers":[{"url":"/pawl/"}]`) {
				t.Errorf("%s: %s", path, r.body[:200])
			}
		}
	})
	if strings.Contains(r.body, "ErrorModel") {
		t.Error("it has the errors of huma")
	}
}

// A try is a request and what becomes of it. In path and body stand: {none}, an id of nothing;
// {waits}, a job made for this try that waits; {over}, one that was canceled; {ran}, a program that
// has ended; {runs}, a program that runs; {blocked}, one that was blocked for this try, and
// {group}, the group of such a one; {key}, that of the run of /a; {worker}, the process itself;
// {other}, another one; and {ended}, one that has ended.
type try struct {
	method, path, body string // method and path of the operation where they are empty
	header             []string
	status             int
}

// Times before and after all files.
const (
	past   = "Fri, 01 Jan 2016 00:00:00 GMT"
	future = "Fri, 01 Jan 2100 00:00:00 GMT"
)

// tries has for each operation what goes right and what goes wrong.
var tries = map[string][]try{
	"submit": {
		{body: later, status: 202},
		{path: "/v1/jobs?wait=30s", body: `{"command":["true"]}`, status: 200},
		{path: "/v1/jobs?wait=1ms", body: later, status: 202},
		{path: "/v1/jobs?wait=30s", body: `{"jobs":[{"command":["true"]},{"command":["true"]}]}`, status: 200},
		{body: `{"jobs":[{"arguments":["1"]},{"env":{"A":"2"}}],"defaults":{"command":["echo"],"env":{"A":"1","B":"1"}}}`, header: []string{"Idempotency-Key", "k"}, status: 202},
		{body: `{"jobs":[{"arguments":["1"]}]}`, header: []string{"Idempotency-Key", "k"}, status: 422},
		{body: later, header: []string{"Idempotency-Key", "k"}, status: 409},
		{body: later, header: []string{"Idempotency-Key", strings.Repeat("k", 256)}, status: 422},
		{body: later, header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415},
		{body: later, header: []string{"Content-Encoding", "gzip"}, status: 415},
		{path: "/v1/jobs?wait=-1s", body: later, status: 422},
		{body: `{"command":["ls"],"owner":"bob"}`, status: 202},
		{body: `{"jobs":[{"command":["ls"]}],"defaults":{"comand":["ls"]}}`, status: 422},
		{body: `{"jobs":[{"command":["ls"]}],"defaults":[]}`, status: 422},
		{body: ``, status: 400},
	},
	"run-file": {
		{path: "/v1/runs/{key}", body: `{"path":"/a","sum":"1","jobs":[` + later + `]}`, status: 202},
		{path: "/v1/runs/{key}", body: `{"path":"/a","sum":"1","jobs":[` + later + `]}`, status: 200},
		{path: "/v1/runs/x", body: `{"path":"/a","sum":"1","jobs":[` + later + `]}`, status: 422},
	},
	"list-jobs": {
		{status: 200},
		{path: "/v1/jobs?filter=state%3DWAITING&sort=name&limit=1", status: 200},
		{path: "/v1/jobs?filter=x", status: 422},
		{path: "/v1/jobs?limit=1001", status: 422},
	},
	"find-job": {
		{method: "POST", path: "/v1/jobs", body: `{"name":"sought","command":["ls"],"delay":"1h"}`, status: 202},
		{path: "/v1/lookup?job=sought", status: 200},
		{method: "POST", path: "/v1/jobs", body: `{"name":"sought","command":["ls"],"delay":"1h"}`, status: 202},
		{path: "/v1/lookup?job=sought", status: 409},
		{path: "/v1/lookup?job=nobody&hidden=true", status: 404},
		{path: "/v1/lookup?job=", status: 422},
		{path: "/v1/lookup", status: 422},
	},
	"count-jobs": {
		{status: 200},
		{path: "/v1/counts?filter=message~*x*", status: 200},
		{path: "/v1/counts?filter=created%3Dx", status: 422},
	},
	"bulk": {
		{body: `{"action":"cancel","filter":"name=later","dry_run":true}`, status: 200},
		{body: `{"action":"hide","filter":"custody=none"}`, status: 200},
		{body: `{"action":"unhide","filter":"hidden=true"}`, status: 200},
		{body: `{"action":"pause","all":true,"dry_run":true}`, status: 200},
		{body: `{"action":"cancel"}`, status: 422},
		{body: `{"action":"cancel","all":true,"filter":"name=x"}`, status: 422},
		{body: `{"action":"stop","filter":"name=x"}`, status: 422},
		{body: `{"action":"pause","filter":"name=x","force":true}`, status: 422},
		{body: `{"actoin":"pause"}`, status: 422},
		{body: `[]`, status: 422},
	},
	"get-job":     {{path: "/v1/jobs/{ran}", status: 200}, {path: "/v1/jobs/{waits}", status: 200}, {path: "/v1/jobs/{none}", status: 404}, {path: "/v1/jobs/x", status: 422}},
	"delete-job":  {{path: "/v1/jobs/{over}", status: 204}, {path: "/v1/jobs/{waits}", status: 409}, {path: "/v1/jobs/{none}", status: 404}},
	"get-request": {{path: "/v1/jobs/{waits}/request", status: 200}, {path: "/v1/jobs/{ran}/request?resolved=true", status: 200}, {path: "/v1/jobs/{waits}/request?resolved=true", status: 404}, {path: "/v1/jobs/{none}/request", status: 404}},
	"get-history": {{path: "/v1/jobs/{ran}/history", status: 200}, {path: "/v1/jobs/{none}/history", status: 404}},
	"cancel-job":  {{path: "/v1/jobs/{waits}/cancel", status: 200}, {path: "/v1/jobs/{runs}/cancel?wait=30s&force=true", status: 200}, {path: "/v1/jobs/{ran}/cancel", status: 409}, {path: "/v1/jobs/{waits}/cancel?force=x", status: 422}},
	"pause-job":   {{path: "/v1/jobs/{waits}/pause", status: 200}, {path: "/v1/jobs/{ran}/pause", status: 409}},
	"resume-job":  {{path: "/v1/jobs/{paused}/resume?wait=30s", status: 200}, {path: "/v1/jobs/{waits}/resume", status: 409}},
	"hide-job":    {{path: "/v1/jobs/{over}/hide", status: 200}, {path: "/v1/jobs/{waits}/hide", status: 409}, {path: "/v1/jobs/{none}/hide", status: 404}},
	"unhide-job":  {{path: "/v1/jobs/{over}/unhide", status: 200}, {path: "/v1/jobs/{none}/unhide", status: 404}},
	"resubmit-job": {
		{path: "/v1/jobs/{ran}/resubmit", status: 202},
		{path: "/v1/jobs/{ran}/resubmit", header: []string{"Idempotency-Key", "k"}, status: 202},
		{path: "/v1/jobs/{ran}/resubmit", header: []string{"Idempotency-Key", strings.Repeat("k", 256)}, status: 422},
		{path: "/v1/jobs/{none}/resubmit", status: 404},
	},
	"annotate-job": {
		{path: "/v1/jobs/{waits}/annotations", body: `{"labels":{"a":"b","team":null},"notes":{"x":1}}`, header: []string{"Content-Type", "application/merge-patch+json"}, status: 200},
		{path: "/v1/jobs/{waits}/annotations", body: `{"labels":{"a b":"c"}}`, status: 422},
		{path: "/v1/jobs/{waits}/annotations", body: `{"label":{}}`, status: 422},
		{path: "/v1/jobs/{none}/annotations", body: `{"labels":{"a":"b"}}`, status: 404},
	},
	"replace-annotations": {
		{path: "/v1/jobs/{waits}/annotations", body: `{"labels":{"a":"b"}}`, status: 200},
		{path: "/v1/jobs/{none}/annotations", body: `{"labels":{}}`, status: 404},
	},
	"list-output": {{path: "/v1/jobs/{ran}/output", status: 200}, {path: "/v1/jobs/{none}/output", status: 404}},
	"get-output": {
		{path: "/v1/jobs/{ran}/output/sub/a.txt", status: 200},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"Range", "bytes=1-2"}, status: 206},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"Range", "bytes=1-2,4-5"}, status: 206},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"Range", "bytes=99-"}, status: 416},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"If-Modified-Since", future}, status: 304},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"If-Unmodified-Since", past}, status: 412},
		{path: "/v1/jobs/{ran}/output/sub/a.txt", header: []string{"If-Match", `"1"`}, status: 412},
		{path: "/v1/jobs/{ran}/output/nothing", status: 404},
		{path: "/v1/jobs/{ran}/output/%2E%2E/x", status: 422},
	},
	"get-logs":   {{path: "/v1/jobs/{ran}/logs?follow=true", status: 200}, {path: "/v1/jobs/{waits}/logs", status: 404}, {path: "/v1/jobs/{ran}/logs?tail=-1", status: 422}},
	"job-events": {{path: "/v1/jobs/{ran}/events?follow=true", status: 200}, {path: "/v1/jobs/{ran}/events?type=RUNNING,x", status: 200}, {path: "/v1/jobs/{ran}/events?type=a%20b", status: 422}, {path: "/v1/jobs/{none}/events", status: 404}},
	"events":     {{path: "/v1/events?filter=name%3Dlater&type=WAITING", status: 200}, {path: "/v1/events?after=end", status: 200}, {path: "/v1/events?after=!", status: 422}, {path: "/v1/events?filter=x", status: 422}},
	"add-event": {
		{path: "/v1/jobs/{waits}/events", body: `{"name":"epoch","message":"1 of 3","data":{"loss":0.5}}`, status: 201},
		{path: "/v1/jobs/{waits}/events", body: `{"name":"epoch","key":"e1"}`, status: 201},
		{path: "/v1/jobs/{waits}/events", body: `{"name":"epoch","key":"e1"}`, status: 201},
		{path: "/v1/jobs/{over}/events", body: `{"name":"epoch"}`, status: 409},
		{path: "/v1/jobs/{waits}/events", body: `{"name":"a b"}`, status: 422},
		{path: "/v1/jobs/{none}/events", body: `{"name":"epoch"}`, status: 404},
	},
	"list-queues": {{status: 200}, {path: "/v1/queues?x=1", status: 422}},
	"get-queue":   {{path: "/v1/queues/default", status: 200}, {path: "/v1/queues/none", status: 404}},
	"apply-queue": {
		{path: "/v1/queues/night", body: `{"max_waiting":5}`, header: []string{"If-None-Match", "*"}, status: 201},
		{path: "/v1/queues/night", body: `{"name":"night"}`, header: []string{"If-None-Match", "*"}, status: 412},
		{path: "/v1/queues/night", body: `{"name":"night"}`, header: []string{"If-Match", `"1"`}, status: 200},
		{path: "/v1/queues/night", body: `{"name":"night"}`, header: []string{"If-Match", `"1"`}, status: 412},
		{path: "/v1/queues/night", body: `{"name":"night"}`, header: []string{"If-Match", `1`}, status: 422},
		{path: "/v1/queues/night", body: `{"name":"night"}`, header: []string{"If-Match", `"1"`, "If-None-Match", "*"}, status: 422},
		{path: "/v1/queues/night", body: `{}`, status: 200},
		{path: "/v1/queues/night", body: `{"name":"day"}`, status: 422},
		{path: "/v1/queues/night", body: `{"max_waiting":-1}`, status: 422},
		{path: "/v1/queues/night", body: `7`, status: 422},
	},
	"enable-queue": {
		{path: "/v1/queues/night/enable", status: 200},
		{path: "/v1/queues/none/enable", status: 404},
		{path: "/v1/queues/night/enable", header: []string{"If-Match", `"1"`}, status: 412},
	},
	"disable-queue": {
		{path: "/v1/queues/night/disable", status: 200},
		{path: "/v1/queues/none/disable", status: 404},
		{path: "/v1/queues/night/disable", header: []string{"If-Match", `"1"`}, status: 412},
	},
	"delete-queue": {
		{path: "/v1/queues/night", header: []string{"If-Match", `"1"`}, status: 412},
		{path: "/v1/queues/night", status: 204},
		{path: "/v1/queues/night", status: 404},
	},
	"list-systems":    {{status: 200}, {path: "/v1/systems?x=1", status: 422}},
	"get-system":      {{path: "/v1/systems/local", status: 200}, {path: "/v1/systems/none", status: 404}},
	"apply-system":    {{path: "/v1/systems/lab", body: `{"most":{"cores":4,"memory":"4GiB"}}`, status: 201}, {path: "/v1/systems/lab", body: `{"host":{"kind":"ssh"}}`, status: 422}},
	"enable-system":   {{path: "/v1/systems/lab/enable", status: 200}, {path: "/v1/systems/none/enable", status: 404}},
	"disable-system":  {{path: "/v1/systems/lab/disable", status: 200}, {path: "/v1/systems/none/disable", status: 404}},
	"delete-system":   {{path: "/v1/systems/lab", status: 204}, {path: "/v1/systems/lab", status: 404}},
	"list-retentions": {{status: 200}, {path: "/v1/retentions?x=1", status: 422}},
	"get-retention":   {{path: "/v1/retentions/default", status: 200}, {path: "/v1/retentions/none", status: 404}},
	"apply-retention": {
		{path: "/v1/retentions/default", body: `{"keep":{"FINISHED":"720h"}}`, status: 201},
		{path: "/v1/retentions/default", body: `{"keep":{"FINISHED":"59m"}}`, status: 422},
		{path: "/v1/retentions/other", body: `{"keep":{"FINISHED":"720h"}}`, status: 422},
	},
	"enable-retention":  {{path: "/v1/retentions/default/enable", status: 200}, {path: "/v1/retentions/none/enable", status: 404}},
	"disable-retention": {{path: "/v1/retentions/default/disable", status: 200}, {path: "/v1/retentions/none/disable", status: 404}},
	"delete-retention":  {{path: "/v1/retentions/default", status: 204}, {path: "/v1/retentions/default", status: 404}},
	"list-policies":     {{status: 200}, {path: "/v1/policies?x=1", status: 422}},
	"get-policy":        {{path: "/v1/policies/calm", status: 200}, {path: "/v1/policies/none", status: 404}},
	"apply-policy": {
		{path: "/v1/policies/calm", body: `{"stages":[{"every":"1m","times":10},{"every":"5m"}],"max_wait":"12h"}`, status: 201},
		{path: "/v1/policies/FILESYSTEM_FULL", body: `{"max_wait":"1h"}`, status: 201},
		{path: "/v1/policies/calm", body: `{"stages":[{"every":"1ms"}]}`, status: 422},
		{path: "/v1/policies/calm", body: `{}`, status: 422},
	},
	"enable-policy":  {{path: "/v1/policies/calm/enable", status: 200}, {path: "/v1/policies/none/enable", status: 404}},
	"disable-policy": {{path: "/v1/policies/calm/disable", status: 200}, {path: "/v1/policies/none/disable", status: 404}},
	"delete-policy":  {{path: "/v1/policies/calm", status: 204}, {path: "/v1/policies/calm", status: 404}},
	"check-system":   {{path: "/v1/systems/local/check", status: 200}, {path: "/v1/systems/none/check", status: 404}},
	"list-system": {
		{path: "/v1/systems/local/files?path=/", status: 200},
		{path: "/v1/systems/none/files?path=/", status: 404},
		{path: "/v1/systems/local/files?path=/&limit=0", status: 422},
	},
	"list-groups":   {{status: 200}, {path: "/v1/recovery?x=1", status: 422}},
	"get-group":     {{path: "/v1/recovery/{group}", status: 200}, {path: "/v1/recovery/none", status: 404}, {path: "/v1/recovery/no%00ne", status: 400}},
	"try-group":     {{path: "/v1/recovery/{group}/try", status: 200}, {path: "/v1/recovery/none/try", status: 404}},
	"release-group": {{path: "/v1/recovery/{group}/release", status: 200}, {path: "/v1/recovery/none/release", status: 404}},
	"give-up-group": {{path: "/v1/recovery/{group}/give-up", status: 200}, {path: "/v1/recovery/none/give-up", status: 404}},
	"try-job":       {{path: "/v1/jobs/{blocked}/try", status: 200}, {path: "/v1/jobs/{waits}/try", status: 409}, {path: "/v1/jobs/{none}/try", status: 404}},
	"release-job":   {{path: "/v1/jobs/{blocked}/release", status: 200}, {path: "/v1/jobs/{ran}/release", status: 409}, {path: "/v1/jobs/x/release", status: 422}},
	"give-up-job":   {{path: "/v1/jobs/{blocked}/give-up", status: 200}, {path: "/v1/jobs/{over}/give-up", status: 409}, {path: "/v1/jobs/{none}/give-up", status: 404}},
	"list-limits":   {{status: 200}, {path: "/v1/limits?x=1", status: 422}},
	"set-limit": {
		{path: "/v1/limits/user%2F*", body: `{"most": 3}`, status: 200},
		{path: "/v1/limits/gpu", body: `{"most": -1}`, status: 422},
		{path: "/v1/limits/gpu", body: `{}`, status: 422},
		{path: "/v1/limits/gpu", body: `{"most": null, "weights": {"ada": 2}}`, status: 422},
		{path: "/v1/limits/system%2Flocal%2Fusers%2Fada", body: `{"most": 1}`, status: 422},
		{path: "/v1/limits/gpu", body: `{"key": "cpu", "most": 1}`, status: 422},
		{path: "/v1/limits/ahead%2Fgpu", body: `{"most": 1}`, status: 422},
		{path: "/v1/limits/order%2Fledger", body: `{"most": 2}`, status: 422},
	},
	"get-limit": {
		{path: "/v1/limits/user%2F*", status: 200},
		{path: "/v1/limits/none", status: 404},
		{path: "/v1/limits/no%00ne", status: 400},
		{path: "/v1/limits/order%2Fledger", status: 200},
		{path: "/v1/limits/ahead%2Forder%2Fledger", status: 404},
	},
	"remove-limit": {
		{path: "/v1/limits/user%2F*", status: 204},
		{path: "/v1/limits/user%2F*", status: 404},
		{path: "/v1/limits/order%2Fledger", status: 404},
	},
	"list-workers": {{status: 200}, {path: "/v1/workers?x=1", status: 422}},
	"get-worker":   {{path: "/v1/workers/{worker}", status: 200}, {path: "/v1/workers/{none}", status: 404}, {path: "/v1/workers/x", status: 422}},
	"drain-worker": {
		{path: "/v1/workers/{worker}/drain", status: 200},
		{path: "/v1/workers/{worker}/drain", header: []string{"Authorization", "Bearer bob-token"}, status: 403},
		{path: "/v1/workers/{none}/drain", status: 404},
		{path: "/v1/workers/{ended}/drain", status: 409},
	},
	"undrain-worker": {{path: "/v1/workers/{worker}/undrain", status: 200}, {path: "/v1/workers/{none}/undrain", status: 404}},
	"stop-worker": {
		{path: "/v1/workers/{other}/stop", status: 200},
		{path: "/v1/workers/{other}/stop", header: []string{"Authorization", "Bearer bob-token"}, status: 403},
		{path: "/v1/workers/x/stop", status: 422},
	},
	"list-schemas":  {{status: 200}, {path: "/v1/schemas?x=1", status: 422}},
	"get-schema":    {{path: "/v1/schemas/job", status: 200}, {path: "/v1/schemas/none", status: 404}},
	"get-version":   {{status: 200}, {path: "/v1/version?x=1", status: 422}},
	"whoami":        {{status: 200}, {path: "/v1/whoami?x=1", status: 422}},
	"get-metrics":   {{status: 200}, {path: "/metrics?x=1", status: 422}},
	"get-health":    {{path: "/healthz?from=balancer", status: 200}, {method: "DELETE", status: 405}},
	"get-readiness": {{status: 200}, {path: "/readyz?broken=1", status: 503}},
}

// TestOperations walks the OpenAPI document: each operation has tries of both kinds, and is
// answered as it is documented.
func TestOperations(t *testing.T) {
	broken := false
	c := api.Config{Auth: byToken, Ready: func(context.Context) []api.Check {
		checks := []api.Check{{Name: "database", Detail: "fine"}, {Name: "broker", Degraded: true, Err: errors.New("gone")}}
		if broken {
			checks[0].Err = errors.New("no space left")
		}
		return checks
	}, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, "pawl_up 1")
	})}
	f := openWith(t, c)
	f.token = "ada-token"
	var doc document
	text := f.is(200, &doc, "GET", "/openapi.json", "").body
	schemas := schemasOf(t, text)
	ops := doc.operations()
	large := strings.Repeat("x", 64<<10)
	everywhere := []try{ // what each operation answers before it looks at the request
		{path: "?x=" + large, status: 414}, {path: "?x=%FF", status: 400}, {header: []string{"X", large}, status: 431},
	}
	at := func(op *operation) int { return slices.Index(order, op.ID) }
	slices.SortStableFunc(ops, func(a, b *operation) int { return at(a) - at(b) })
	known, tries := map[string]bool{}, maps.Clone(tries)
	maps.Copy(tries, scheduleTries)
	maps.Copy(tries, kindTries)
	maps.Copy(tries, claimTries())
	made := &places{f: f}
	for _, op := range ops {
		known[op.ID] = true
		t.Run(op.ID, func(t *testing.T) {
			f.T = t
			right, wrong := false, false
			for _, try := range tries[op.ID] {
				right, wrong = right || try.status < 400, wrong || try.status >= 400
				broken = try.status == 503
				method, path := try.method, try.path
				if method == "" {
					method = op.method
				}
				if path == "" {
					path = op.path
				}
				r := f.call(method, made.fill(path), made.fill(try.body), try.header...)
				if r.code != try.status {
					t.Errorf("%s %s %s: %d, want %d: %s", method, path, try.body, r.code, try.status, r.body)
					continue
				}
				if method == op.method {
					schemas.check(t, op, r)
				}
			}
			for _, try := range everywhere {
				r := f.call(op.method, strings.NewReplacer("{", "", "}", "").Replace(op.path)+try.path, "", try.header...)
				if schemas.check(t, op, r); r.code != try.status {
					t.Errorf("%s %s%.10s: %d, want %d", op.method, op.path, try.path, r.code, try.status)
				}
			}
			if !right || !wrong {
				t.Errorf("%s %s has no try that goes right, or none that goes wrong", op.method, op.path)
			}
			if op.Security != nil {
				token := f.token
				f.token = ""
				r := f.call(op.method, strings.NewReplacer("{", "", "}", "").Replace(op.path), "{}")
				f.token = token
				if r.code != 401 || r.header.Get("WWW-Authenticate") != `Bearer realm="pawl"` || !strings.Contains(r.body, `"code":"denied"`) {
					t.Errorf("without login: %d %s", r.code, r.body)
				}
			}
		})
	}
	f.T = t
	for id := range tries {
		if !known[id] {
			t.Errorf("there are tries of %s, which is no operation", id)
		}
	}
}

// places makes what stands in the paths of tries.
type places struct {
	f    *face
	ran  string
	shut int // systems that are disabled
}

// blocked makes a job that is blocked, on a system of its own.
func (p *places) blocked() job.Job {
	f := p.f
	f.Helper()
	p.shut++
	system := fmt.Sprint("shut-", p.shut)
	f.is(201, nil, "PUT", "/v1/systems/"+system, `{"disabled":true}`)
	var a struct{ ID job.ID }
	f.is(202, &a, "POST", "/v1/jobs", `{"command":["true"],"system":"`+system+`"}`)
	f.until(a.ID, job.Blocked)
	j, err := f.svc.Job(f.Context(), a.ID)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

func (p *places) fill(text string) string {
	f := p.f
	f.Helper()
	submit := func(spec string) string {
		var a struct{ ID job.ID }
		f.is(202, &a, "POST", "/v1/jobs", spec)
		return "/v1/jobs/" + a.ID.String()
	}
	for name, make := range map[string]func() string{
		"{none}":  func() string { return "/v1/jobs/" + job.NewID().String() },
		"{waits}": func() string { return submit(later) },
		"{over}": func() string {
			path := submit(later)
			f.is(200, nil, "POST", path+"/cancel", "")
			return path
		},
		"{paused}": func() string {
			path := submit(later)
			f.is(200, nil, "POST", path+"/pause", "")
			return path
		},
		"{blocked}": func() string { return "/v1/jobs/" + p.blocked().ID.String() },
		"{runs}": func() string {
			path := submit(`{"command":["sleep","60"]}`)
			id, _ := job.ParseID(strings.TrimPrefix(path, "/v1/jobs/"))
			f.until(id, job.Running)
			return path
		},
		"{ran}": func() string {
			if p.ran == "" {
				id := f.run(`{"command":["sh","-c","echo out; mkdir sub; echo 0123456789 > sub/a.txt"]}`).ID
				p.ran = "/v1/jobs/" + id.String()
			}
			return p.ran
		},
	} {
		if strings.Contains(text, name) {
			text = strings.ReplaceAll(text, "/v1/jobs/"+name, make())
		}
	}
	if strings.Contains(text, "{held") {
		text = strings.ReplaceAll(text, "{held", f.held())
	}
	session := func(end bool) string {
		f.Helper()
		s := store.Session{ID: job.NewID(), Lease: time.Hour}
		if err := f.svc.Store.Begin(f.Context(), s); err != nil {
			f.Fatal(err)
		}
		if end {
			if _, err := f.svc.Store.End(f.Context(), s.ID); err != nil {
				f.Fatal(err)
			}
		}
		return s.ID.String()
	}
	for name, make := range map[string]func() string{
		"{none}":  func() string { return job.NewID().String() },
		"{other}": func() string { return session(false) },
		"{ended}": func() string { return session(true) },
		"{worker}": func() string {
			var list struct{ Items []service.Worker }
			f.is(200, &list, "GET", "/v1/workers", "")
			for _, w := range list.Items {
				if len(w.Kinds) > 0 {
					return w.ID.String()
				}
			}
			f.Fatal("the service itself is no worker")
			return ""
		},
	} {
		if strings.Contains(text, "/v1/workers/"+name) {
			text = strings.ReplaceAll(text, name, make())
		}
	}
	if strings.Contains(text, "{group}") {
		text = strings.ReplaceAll(text, "{group}", p.blocked().Group)
	}
	return strings.ReplaceAll(text, "{key}", service.RunKey("/a"))
}

// until waits for a job to come to a state.
func (f *face) until(id job.ID, s job.State) {
	f.Helper()
	for e, err := range f.svc.Events(f.Context(), id, "") {
		if err != nil {
			f.Fatal(err)
		}
		if e.State == s {
			return
		}
	}
	f.Fatalf("job %s has ended and was never %s", id, s)
}

// documented checks answers against the OpenAPI document.
type documented struct{ compiler *jsonschema.Compiler }

func schemasOf(t *testing.T, text string) *documented {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	components := doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for _, s := range components { // an answer has no fields that are not documented
		s := s.(map[string]any)
		if _, said := s["additionalProperties"]; !said && s["properties"] != nil {
			s["additionalProperties"] = false
		}
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return &documented{c}
}

// check holds an answer to what the document says of it.
func (d *documented) check(t *testing.T, op *operation, r reply) {
	t.Helper()
	status := fmt.Sprint(r.code)
	resp, ok := op.Responses[status]
	if !ok {
		t.Errorf("%s %s answers %s, which is not documented", op.method, op.path, status)
		return
	}
	where := "/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(op.path) + "/" + strings.ToLower(op.method) + "/responses/" + status
	kind, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	if resp.Ref != "" {
		where = strings.TrimPrefix(resp.Ref, "#")
		if kind != "application/problem+json" {
			t.Errorf("%s %s: %s is answered as %s", op.method, op.path, status, kind)
		}
	} else if resp.Content[kind] == nil && resp.Content["*/*"] == nil && (len(resp.Content) > 0 || r.body != "") {
		t.Errorf("%s %s: %s is answered as %s, which is not documented", op.method, op.path, status, kind)
	}
	if !strings.HasSuffix(kind, "json") || kind == "application/schema+json" {
		return
	}
	at := "openapi.json#" + where + "/content/" + strings.NewReplacer("~", "~0", "/", "~1", "+", "%2B").Replace(kind) + "/schema"
	s, err := d.compiler.Compile(at)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(r.body)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s %s: %s: %v\n%s", op.method, op.path, status, err, r.body)
	}
}
