// Package client is the Go client of the service's API (package api): of one on the network
// ([Dial]), on a Unix socket ([Unix], [Dialed]), or in this process, without a connection
// ([Local]).
//
// Errors have the kind of package job that they had where they were made, and a [job.SpecError] in
// their chain where a spec is wrong. A service that cannot be reached is Unavailable, a caller whom
// it does not let in is Denied, and what it has no room for now is Exhausted. An error of kind
// Internal names the request, for the log of the service. Where the service is of another version
// than the client, and does not know what it was asked, the error says so.
//
// # Calls that are repeated
//
// A client that was made with [Dial] repeats a call that did not reach the service, or whose answer
// was lost, or that the service asks to repeat later (429, 502, 503 and 504), with growing pauses
// and up to [Options.Tries] times. It does so with reads, with what replaces something, with
// wishes, and with submissions, which go out under an idempotency key for that. A call that would
// be carried out twice is repeated only when the service has certainly not begun with it.
package client

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Revision is that of the API this client knows. A service tells its own in the header
// [RevisionHeader] of each answer.
const Revision = 3

// Headers of each answer of a service.
const (
	VersionHeader  = "Pawl-Version" // of its build
	RevisionHeader = "Pawl-API"     // of its API
)

// A Client asks a service. It is safe for concurrent use.
type Client struct {
	http  http.Client
	base  string
	token string
	tries int
}

// Options configure [Dial]. The zero value works for a service that asks for no token.
type Options struct {
	// Token proves to the service who asks.
	Token string
	// HTTP sends the requests; [http.DefaultTransport] with its settings by default. A Timeout in
	// it also ends streams.
	HTTP *http.Client
	// Tries is how often a call is made at most; 4 by default, which takes a second or two where
	// nobody answers.
	Tries int
}

const defaultTries = 4

// Dial returns a client of the service at a URL such as https://host:7295, or https://host/pawl
// where a proxy serves it under a path. It connects when the first call is made. The error is
// Invalid where that is not the URL of a service.
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

// New returns a client that asks over rt, once: who is on this machine, or in this process, is
// there or is not.
func New(rt http.RoundTripper) *Client {
	return &Client{http: http.Client{Transport: rt, CheckRedirect: stay}, base: "http://pawl", tries: 1}
}

// Trying returns a client that shares all with c and makes a call up to so many times; see
// [Options].Tries. The longest pause is 5 seconds, so that 12 last for half a minute: as long as a
// service may take to start again.
func (c *Client) Trying(tries int) *Client {
	other := *c
	other.tries = max(1, tries)
	return &other
}

// Close releases connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }
