package api_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// openQuiet returns the handler of a service that runs nothing, with a few jobs: requests may say
// what they like.
func openQuiet(t testing.TB) (http.Handler, []string) {
	t.Helper()
	svc := embedded.Open(t)
	var ids []string
	for _, spec := range []string{later, `{"kind":"mail","args":1}`, later} {
		s, err := job.ParseSpec([]byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		a, err := svc.Submit(t.Context(), service.Request{Spec: s})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a[0].ID.String())
	}
	id, err := job.ParseID(ids[2])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{}) // nothing is followed or waited for
	close(stopped)
	return api.New(api.Config{Service: svc.Service, Stopping: stopped, Log: slog.New(slog.DiscardHandler)}), ids
}

// checkAnswer sees to it that an answer is none of a defect, and that an error is a problem.
func checkAnswer(w *httptest.ResponseRecorder) string {
	kind := w.Header().Get("Content-Type")
	switch {
	case w.Code >= 500:
		return "a defect"
	case w.Header().Get("X-Request-Id") == "":
		return "no request id"
	case w.Code < 400:
		return ""
	case kind != "application/problem+json":
		return "an error of type " + kind
	}
	var p fault
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		return err.Error()
	}
	if p.Status != w.Code || p.Code == "" || p.Detail == "" || p.Instance == "" {
		return "a problem that says too little"
	}
	return ""
}

// A maker draws requests from the OpenAPI document.
type maker struct {
	ids    []string
	fits   map[string][]string // by parameter: values that go through, or nearly
	bodies map[string][]string // examples, by operation
	ops    []*operation
}

func newMaker(t testing.TB, h http.Handler, ids []string) *maker {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	m := &maker{ids: ids, bodies: map[string][]string{}, ops: doc.operations(), fits: map[string][]string{
		"after": {"0", "1", "4", "zz", "end"}, "Last-Event-ID": {"2", "3"}, "type": {"WAITING", "CANCELED,epoch"}, "sort": {"-created", "created", "ended", "name", "-name"},
		"limit": {"1", "2", "1000"}, "wait": {"1ms", "0s"}, "follow": {"true"}, "tail": {"1"}, "If-Match": {`"0"`, `"1"`}, "If-None-Match": {"*"},
	}}
	for _, sort := range m.fits["sort"] { // pages of each order, to go on from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/jobs?limit=1&sort="+sort, nil))
		var page service.Views
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || sort != "ended" && page.Next == "" {
			t.Fatalf("%s: %v: %s", sort, err, w.Body)
		}
		m.fits["cursor"] = append(m.fits["cursor"], page.Next)
	}
	for _, op := range m.ops {
		if op.RequestBody == nil {
			continue
		}
		text, err := json.Marshal(op.RequestBody)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Content map[string]struct {
				Examples map[string]struct{ Value json.RawMessage }
			}
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(body.Content["application/json"].Examples)) {
			m.bodies[op.ID] = append(m.bodies[op.ID], string(body.Content["application/json"].Examples[name].Value))
		}
		if m.bodies[op.ID] == nil {
			t.Errorf("%s has no example of its body", op.ID)
		}
	}
	return m
}

var strange = []string{
	"", "x", "-1", "0", "1", "99999999999999999999", "true", "null", "é", "\x00", "%", "..", "../..", "a/b", "'", `"`, "💥", "state=RUNNING", "name~*", "created>1h",
	"label.x=", "id=", "end", "~", "0~0", "default", "local", "night", "job", "-created", "ended", "stderr", "1ms", "FINISHED,x", strings.Repeat("x", 300),
}

// filter draws one of several terms.
func (m *maker) filter(t *rapid.T) string {
	terms := make([]string, rapid.IntRange(0, 4).Draw(t, "terms"))
	for i := range terms {
		field := rapid.SampledFrom(append(job.FilterFields, job.FilterField{Name: "label.team", Type: job.FieldWord})).Draw(t, "field")
		values := map[job.FieldType][]string{
			job.FieldState: {"WAITING", "PENDING,CANCELED"}, job.FieldCustody: {"none", "gate,ready"}, job.FieldID: m.ids, job.FieldNumber: {"1", "-5", "5"},
			job.FieldTime: {"1h", "2026-01-31", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}, job.FieldFlag: {"true", "false"},
			job.FieldGroup: {"aa16870f57a84994b32a0a30", "x"}, job.FieldWord: {"mail", "*", "a?,b*", `"x y\"z"`, `""`, "ä"},
		}[field.Type]
		op := rapid.SampledFrom([]job.Op{job.Is, job.Is, job.IsNot, job.Like, job.Less, job.AtLeast, job.More}).Draw(t, "op")
		terms[i] = field.Name + string(op) + rapid.SampledFrom(values).Draw(t, "value")
	}
	return strings.Join(terms, " ")
}

// value draws one for a parameter: one that is much like what fits, or a strange one.
func (m *maker) value(t *rapid.T, name string) string {
	known := m.fits[name]
	switch {
	case rapid.IntRange(0, 3).Draw(t, "strange") == 0 || known == nil && name != "filter":
		return rapid.SampledFrom(strange).Draw(t, name)
	case name == "filter":
		return m.filter(t)
	}
	return rapid.SampledFrom(known).Draw(t, name)
}

// request draws one.
func (m *maker) request(t *rapid.T) *http.Request {
	op := rapid.SampledFrom(m.ops).Draw(t, "operation")
	word := func(what string) string { return rapid.SampledFrom(strange).Draw(t, what) }
	path := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllStringFunc(op.path, func(p string) string {
		if p == "{id}" && rapid.IntRange(0, 4).Draw(t, "known") > 0 {
			return rapid.SampledFrom(m.ids).Draw(t, "id")
		}
		if w := url.PathEscape(word(p)); w != "" {
			return w
		}
		return "x"
	})
	query, header := url.Values{}, http.Header{}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path" || rapid.IntRange(0, 2).Draw(t, p.Name+"?") > 0:
		case p.In == "query":
			query.Set(p.Name, m.value(t, p.Name))
		case p.In == "header":
			header.Set(p.Name, strings.Map(func(r rune) rune {
				if r < ' ' {
					return -1
				}
				return r
			}, m.value(t, p.Name)))
		}
	}
	body := ""
	if known := m.bodies[op.ID]; known != nil {
		body = m.body(t, rapid.SampledFrom(known).Draw(t, "body"))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r := httptest.NewRequest(op.method, path, strings.NewReader(body))
	r.Header = header
	return r
}

// body draws a body that is much like one that is right.
func (m *maker) body(t *rapid.T, right string) string {
	var v any
	if err := json.Unmarshal([]byte(right), &v); err != nil {
		t.Fatal(err)
	}
	values := []any{nil, true, -1, 1e300, "", "x", []any{}, map[string]any{}, []any{nil}, map[string]any{"": nil}, "\x00", strings.Repeat("y", 200)}
	var change func(v any) any
	change = func(v any) any {
		if rapid.IntRange(0, 5).Draw(t, "change") == 0 {
			return rapid.SampledFrom(values).Draw(t, "value")
		}
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				switch rapid.IntRange(0, 9).Draw(t, "field") {
				case 0:
					delete(v, k)
				case 1:
					v[k+"x"] = v[k]
				default:
					v[k] = change(v[k])
				}
			}
		case []any:
			for i := range v {
				v[i] = change(v[i])
			}
		}
		return v
	}
	text, err := json.Marshal(change(v))
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 19).Draw(t, "cut") == 0 {
		text = text[:rapid.IntRange(0, len(text)).Draw(t, "at")]
	}
	return string(text)
}

func TestRandomRequests(t *testing.T) {
	h, ids := openQuiet(t)
	m := newMaker(t, h, ids)
	rapid.Check(t, func(t *rapid.T) {
		for range 60 {
			r := m.request(t)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if what := checkAnswer(w); what != "" {
				t.Fatalf("%s %s: %s: %d %s", r.Method, r.URL, what, w.Code, w.Body)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	h, ids := openQuiet(f)
	for _, op := range newMaker(f, h, ids).ops {
		f.Add(op.method, strings.ReplaceAll(op.path, "{id}", ids[0]), "", later)
	}
	for _, query := range []string{"filter=state%3DRUNNING+name~%2A", "limit=1&sort=-created&cursor=x", "after=0~1&type=RUNNING", "tail=3&stream=stderr"} {
		f.Add("GET", "/v1/jobs", query, "")
	}
	f.Add("POST", "/v1/bulk", "", `{"action":"hide","filter":"custody=none"}`)
	f.Add("PATCH", "/v1/jobs/"+ids[1]+"/annotations", "", `{"labels":{"a":null},"notes":{"x":{"y":null}}}`)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if !regexp.MustCompile(`^[A-Z]+$`).MatchString(method) {
			return
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://pawl/", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawQuery = path, query
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if what := checkAnswer(w); what != "" {
			t.Fatalf("%s: %d %s", what, w.Code, w.Body)
		}
	})
}
