package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/api"
)

// TestRoot asks at the beginning where things are, as a person and as a program, without a token
// and behind a proxy, and goes to each of them.
func TestRoot(t *testing.T) {
	for _, prefix := range []string{"", "/pawl"} {
		f := openWith(t, api.Config{Auth: byToken, Prefix: prefix})
		f.token = ""
		page := f.is(200, nil, "GET", prefix+"/", "", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		if kind := page.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/html") || !strings.Contains(page.body, "PAWL_SERVER="+f.url+prefix+" ") {
			t.Errorf("%s: %s", kind, page.body)
		}
		var a struct {
			Service string
			Links   map[string]string
		}
		answer := f.is(200, nil, "GET", prefix+"/", "")
		if err := json.Unmarshal([]byte(answer.body), &a); err != nil || a.Service != "pawl" || a.Links["docs"] != prefix+"/docs" {
			t.Errorf("%v: %s", err, answer.body)
		}
		f.token = "ada-token"
		links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page.body, -1)
		if len(links) != len(a.Links) {
			t.Errorf("%d links on the page, %d for programs", len(links), len(a.Links))
		}
		for _, l := range links {
			if r := f.call("GET", l[1], ""); r.code != 200 && !strings.HasSuffix(l[1], "/metrics") { // of which this service has none
				t.Errorf("%s: %d %s", l[1], r.code, r.body)
			}
		}
		if prefix != "" {
			f.is(200, nil, "GET", prefix, "")
		}
		if r := f.call("GET", prefix+"/nothing", ""); r.code != 404 {
			t.Errorf("%d %s", r.code, r.body)
		}
		if r := f.call("POST", prefix+"/", "{}"); r.code != 405 {
			t.Errorf("%d %s", r.code, r.body)
		}
	}
}
