// Package client is the Go client of the service's API (package api). The service is on the network
// ([Dial]), behind a Unix socket ([Unix], [Dialed]), or in this process without a connection
// ([Local]).
//
// An error has the kind of package job that the service gave it. If a spec is wrong, its chain has
// a [job.SpecError]. The kind is [job.Unavailable] if the service cannot be reached, [job.Denied]
// if it does not let the caller in, and [job.Exhausted] if it has no room now. An error of kind
// [job.Internal] names the request, so that people find it in the log of the service. If the
// service has another version than the client and does not know the call, the error says so.
//
// # Calls that are repeated
//
// A client from [Dial] repeats a call that did not reach the service, whose answer was lost, or
// that the service asks to repeat later (429, 502, 503 and 504). It makes up to [Options.Tries]
// tries, with growing pauses. It repeats reads, replacements, wishes and submissions; a submission
// has an idempotency key for that. A call that must not be carried out twice is repeated only if
// the service has certainly not begun with it.
package client

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Revision is the revision of the API that this client knows. A service tells its own in the header
// [RevisionHeader] of each answer.
const Revision = 3

// Headers of each answer of a service.
const (
	VersionHeader  = "Pawl-Version" // the version of its build
	RevisionHeader = "Pawl-API"     // the revision of its API
)

// A Client makes calls to a service. It is safe for concurrent use.
type Client struct {
	http  http.Client
	base  string
	token string
	tries int
}

// Options configure [Dial]. The zero value works for a service that needs no token.
type Options struct {
	// Token proves who the caller is. Default: none is sent.
	Token string
	// HTTP sends the requests. A Timeout in it also ends streams. Default: a client with
	// [http.DefaultTransport].
	HTTP *http.Client
	// Tries is the most times that a call is made. Default: 4, which takes a second or two if
	// nothing answers.
	Tries int
}

const defaultTries = 4

// Dial returns a client of the service at a URL such as https://host:7295, or https://host/pawl if
// a proxy serves it under a path. It connects at the first call. The error is of kind [job.Invalid]
// if the URL cannot be that of a service.
func Dial(service string, o Options) (*Client, error) {
	u, err := url.Parse(service)
	wrong := func(what string) (*Client, error) {
		return nil, job.Errorf(job.Invalid,
			"%q is not the URL of a service: %s: give one such as https://host:7295", service, what)
	}
	switch {
	case err != nil:
		return wrong("it cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return wrong("it does not begin with http:// or https://")
	case u.Hostname() == "":
		return wrong("it names no host")
	case u.User != nil:
		return wrong("it holds a user name")
	case u.RawQuery != "" || u.Fragment != "":
		return wrong("it goes on behind the path")
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), token: o.Token, tries: o.Tries}
	if o.HTTP != nil {
		c.http = *o.HTTP
	}
	c.http.CheckRedirect = stay
	if c.tries < 1 {
		c.tries = defaultTries
	}
	return c, nil
}

// stay follows no redirect: a POST would become a GET on its way.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// New returns a client that sends requests over rt. It makes each call only once: a service on this
// machine or in this process either runs or does not.
func New(rt http.RoundTripper) *Client {
	return &Client{http: http.Client{Transport: rt, CheckRedirect: stay}, base: "http://pawl", tries: 1}
}

// Trying returns a client that is like c but makes a call up to tries times; see [Options].Tries.
// The longest pause is 5 seconds, so 12 tries last half a minute. A service may take that long to
// restart.
func (c *Client) Trying(tries int) *Client {
	other := *c
	other.tries = max(1, tries)
	return &other
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }
