package api

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// TestDocument holds the tables of docs/api.md to the code.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	// The first two cells of each row whose first is one word.
	cells := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		cells[m[1]] = m[2]
	}

	t.Run("it has the status of every code", func(t *testing.T) {
		want, got := map[job.ErrorKind]int{}, map[job.ErrorKind]int{}
		for _, k := range errorKinds {
			want[k] = http.StatusInternalServerError
			if n, ok := cells[string(k)]; ok {
				got[k], _ = strconv.Atoi(n)
			}
		}
		maps.Copy(want, statusOf)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-code +document)\n%s", diff)
		}
	})
	t.Run("it has the default of every limit", func(t *testing.T) {
		var l Limits
		l.fill()
		want := map[string]string{
			"body": fmt.Sprintf("%d MiB ", l.Body>>20), "jobs": strconv.Itoa(l.Jobs) + " ", "depth": strconv.Itoa(l.Depth) + " ",
			"rate": "no bound ", "burst": "as many as `limits.rate` ", "streams": strconv.Itoa(l.Streams) + " ",
			"wait": strings.TrimSuffix(l.Wait.String(), "0s") + " ",
		}
		for f := range reflect.TypeFor[Limits]().Fields() {
			name := strings.ToLower(f.Name)
			if want[name] == "" || !strings.HasPrefix(cells["limits."+name], want[name]) {
				t.Errorf("limits.%s: %q does not begin with %q", name, cells["limits."+name], want[name])
			}
		}
		if l.Rate != 0 {
			t.Errorf("rate is %g by default", l.Rate)
		}
	})
	t.Run("it has every operation", func(t *testing.T) {
		h := New(Config{}).(*handler)
		doc := h.openAPI()
		for path := range doc.Paths {
			// A document's path may be that of queues, which stands for those of the other kinds.
			if !strings.HasSuffix(path, "/check") && path != "/v1/systems/{name}/files" { // which systems alone have
				path = strings.ReplaceAll(path, "/v1/systems", "/v1/queues")
			}
			path = strings.NewReplacer("/v1/retentions", "/v1/queues", "/v1/policies", "/v1/queues", "/v1/kinds", "/v1/queues").Replace(path)
			pattern := regexp.MustCompile(`\\\{[a-z]+(\\\.\\\.\\\.)?\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^\s]+`)
			if !regexp.MustCompile(pattern + `[^a-z]`).Match(text) {
				t.Errorf("it has no %s", path)
			}
		}
	})
}
