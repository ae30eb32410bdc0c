package cli

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A collector keeps what is sent to it.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	bodies  []byte
	headers http.Header
	path    string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies, c.headers, c.path = append(c.bodies, body...), r.Header, r.URL.Path
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// What a request with a trace starts is sent to the collector, by the time the service has ended; a
// program gets the trace of its run.
func TestServeTraces(t *testing.T) {
	c := newCollector(t)
	p := startServe(t, t.TempDir(), []string{"PAWL_TRACE_HEADERS=x-key=a%20b", "PAWL_TRACE_SAMPLE=0"}, "--trace-endpoint", c.URL+"/")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/jobs?wait=30s", strings.NewReader(`{"command": ["sh", "-c", "echo $TRACEPARENT"]}`))
	if err != nil {
		t.Fatal(err)
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	a, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var view struct{ ID, State, Results, Trace string }
	if err := json.NewDecoder(a.Body).Decode(&view); err != nil || view.State != "FINISHED" {
		t.Fatalf("%+v, %v", view, err)
	}
	if !strings.Contains(view.Trace, trace) {
		t.Errorf("the job keeps the trace %q", view.Trace)
	}
	stdout, err := os.ReadFile(filepath.Join(view.Results, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSpace(string(stdout)), "-")
	if len(parts) != 4 || parts[1] == trace {
		t.Fatalf("the program has the trace %q", stdout)
	}
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.log)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path != "/v1/traces" || c.headers.Get("X-Key") != "a b" {
		t.Errorf("sent to %s with %v", c.path, c.headers)
	}
	for _, id := range []string{trace, parts[1]} {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(c.bodies), string(raw)) {
			t.Errorf("the collector has no trace %s", id)
		}
	}
	for _, name := range []string{"submit", "run app", "PROCESSING_INPUTS", "STAGING_INPUTS", "STAGING_JOB", "SUBMITTING_JOB", "RUNNING", "ARCHIVING", view.ID} {
		if !strings.Contains(string(c.bodies), name) {
			t.Errorf("the collector has no %s", name)
		}
	}
}

// A collector that is not there costs nobody anything.
func TestServeWithoutACollector(t *testing.T) {
	c := newCollector(t)
	c.Close()
	p := startServe(t, t.TempDir(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_TIMEOUT=100"})
	if status, body := p.get(http.MethodPost, "/v1/jobs?wait=30s", `{"command": ["true"]}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.log)
	}
	if !strings.Contains(p.log.String(), `level=WARN msg="traces not sent"`) {
		t.Errorf("nobody is told:\n%s", p.log)
	}
}
