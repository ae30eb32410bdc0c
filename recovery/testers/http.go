package testers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/recovery"
)

// HTTP makes a request to a server. The server is well if it answers with a status below 500,
// except 429. A redirect is an answer, and is not followed. Parameters: url, and method, which is
// GET (the default) or HEAD.
type HTTP struct{ Dial Dial }

// client makes one request for each connection: tests are far apart. It uses the proxy that the
// environment names only where it is told nothing else: nobody here sees where that goes.
func (h HTTP) client() *http.Client {
	t := &http.Transport{DialContext: h.Dial.orUsual(), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	if h.Dial == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	asked := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: asked}
}

// Test implements [recovery.Tester].
func (h HTTP) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	u, err := url.Parse(q.Params["url"])
	switch {
	case q.Params["url"] == "":
		return recovery.Answer{}, missing(recovery.HTTP, "url")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		// it may have a password
		return recovery.Answer{}, fmt.Errorf(
			"tester %s: parameter url is no URL such as https://files.example.org/health", recovery.HTTP)
	}
	method := q.Params["method"]
	switch method {
	case "":
		method = http.MethodGet
	case http.MethodGet, http.MethodHead:
	default:
		return recovery.Answer{}, fmt.Errorf("tester %s: method %q is none that changes nothing: give GET or HEAD",
			recovery.HTTP, method)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return recovery.Answer{}, err
	}
	r.Header.Set("User-Agent", "pawl")
	res, err := h.client().Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err // without the URL, which may have a secret in its query
		}
		return recovery.Answer{}, fmt.Errorf("%s gives no answer: %w", u.Host, err)
	}
	res.Body.Close() // the status says it all
	a := recovery.Answer{
		Clear: res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests,
		Says:  fmt.Sprintf("%s answers %s", u.Host, res.Status),
	}
	if after := egress.RetryAfter(res.Header); after > 0 && !a.Clear {
		a.After = after
		a.Says += fmt.Sprintf(", and asks to come back after %v", after)
	}
	return a, nil
}
