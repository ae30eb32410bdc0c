// Package config is the configuration of pawl serve: one struct, whose tags say all that there is to say of each
// setting, and the way from flags, environment and file to it.
//
// A flag wins over the environment, that over the file, and that over the default. What nobody knows is an error, and
// each error names where the value came from.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Config is everything that can be set. A field's tags: key, by which the file names it; default; doc, for people; oneof,
// min and max, which values there are; reload, when SIGHUP takes a new value over without a restart. A field that is a
// struct is a section, whose key stands before those in it: tls.cert is --tls-cert and PAWL_TLS_CERT.
type Config struct {
	Listen         string   `key:"listen" default:"127.0.0.1:7295" doc:"address to listen on; port 0: any that is free"`
	URL            string   `key:"url" doc:"how others reach the service, such as https://jobs.example.org/pawl; by default what follows from listen"`
	Prefix         string   `key:"prefix" doc:"path under which a proxy serves it, such as /pawl; requests may come with it or without"`
	TrustedProxies Prefixes `key:"trusted_proxies" reload:"true" doc:"networks of proxies, whose X-Forwarded-For and Forwarded are believed"`

	TLS struct {
		Cert      string `key:"cert" doc:"file with the certificate chain, PEM; read again when it changes"`
		Key       string `key:"key" doc:"file with the key of the certificate, PEM; read again when it changes"`
		Elsewhere bool   `key:"elsewhere" default:"false" doc:"a proxy before this process speaks TLS: listen without it although others can reach the address"`
	} `key:"tls"`

	Peer struct {
		Listen string `key:"listen" doc:"address to listen on for processes of other machines, which fetch files and logs of jobs that belong to this one, and delete such jobs; nobody else is answered there; by default none, and they come to listen"`
		URL    string `key:"url" doc:"how processes of other machines reach this very process, such as https://node7.example.org:7296; by default what follows from peer.listen, or else from url and listen"`
		CA     string `key:"ca" doc:"file with the certificates of the authorities, PEM, that are believed in when a process of another machine shows its own; by default those of the system"`
	} `key:"peer"`

	DB        Secret `key:"db" doc:"database that holds the jobs, as the URL of PostgreSQL (postgres://…): many processes may work on it; by default the one in the data folder, which serves one process"`
	DBSchema  string `key:"db_schema" default:"pawl" doc:"schema of the database db that holds Pawl's tables"`
	DBListen  Secret `key:"db_listen" doc:"the database db without a pooler, for the one connection that listens for wake-ups, and for the migration at the start; by default db"`
	DBPooled  bool   `key:"db_pooled" default:"false" doc:"db leads through a pooler in transaction mode, such as PgBouncer; db_listen must not"`
	DBMigrate bool   `key:"db_migrate" default:"true" doc:"bring the schema of db up to date at the start; false: it must be, by pawl migrate"`

	Roles []string `key:"roles" default:"api,worker,recovery,watcher" oneof:"api,worker,recovery,watcher" doc:"what this process does: serve the API at an address, claim jobs and run them, look after time, blocked jobs and dead processes, watch the programs of its machine"`

	Queues  []string `key:"queues" doc:"the only queues whose jobs this process runs; by default all there are"`
	Kinds   []string `key:"kinds" doc:"the only kinds of job that this process runs; by default all that it knows"`
	Tenants []string `key:"tenants" doc:"the only tenants whose jobs this process runs; by default all; to part work, queues cost less"`
	Slots   struct {
		Finish  int `key:"finish" default:"16" min:"1" max:"10000" doc:"jobs whose results are archived at once"`
		Launch  int `key:"launch" default:"16" min:"1" max:"10000" doc:"jobs that are launched at once"`
		Prepare int `key:"prepare" default:"16" min:"1" max:"10000" doc:"jobs whose inputs are staged at once"`
		Task    int `key:"task" default:"50" min:"1" max:"10000" doc:"tasks that run at once; pawl serve and pawl worker run programs only, so it is of no use there"`
	} `key:"slots"`
	Lease time.Duration `key:"lease" default:"15s" min:"1s" max:"10m" doc:"how long the jobs of this process stay its own when it is not heard of"`
	Grace time.Duration `key:"grace" default:"10s" min:"0s" max:"1h" doc:"how long running steps and requests may go on after SIGTERM"`

	Testers     Programs      `key:"testers" doc:"programs that find out whether what blocks jobs has cleared, by name: what starts each, and its arguments; a job that is blocked with tester command names one"`
	TestTimeout time.Duration `key:"test_timeout" default:"30s" min:"1s" max:"10m" doc:"how long a test of what blocks jobs may take"`

	Remember time.Duration `key:"remember" default:"720h" min:"1h" max:"87600h" doc:"how long the machine remembers of which jobs it ran the program, after their folders are gone; longer than the oldest backup of the database is old that may be restored"`

	HTTPInputs string `key:"http_inputs" default:"public" oneof:"none,public,all" doc:"from where jobs may have inputs fetched by http and https: public is any server but those at addresses of this machine and of private networks; all is these too, and a proxy that HTTPS_PROXY names; none refuses such jobs"`
	HTTPSize   Size   `key:"http_size" default:"100GiB" min:"1KiB" doc:"largest file that an input may have that is fetched by http or https"`

	Limits struct {
		Body    Size          `key:"body" default:"64MiB" min:"1KiB" max:"1GiB" reload:"true" doc:"largest body of a request"`
		Jobs    int           `key:"jobs" default:"10000" min:"1" max:"100000" reload:"true" doc:"jobs of one submission"`
		Depth   int           `key:"depth" default:"64" min:"8" max:"1000" reload:"true" doc:"depth of JSON in a body"`
		Rate    float64       `key:"rate" default:"0" min:"0" max:"1e6" reload:"true" doc:"requests per second of one principal; 0: no bound"`
		Burst   int           `key:"burst" default:"0" min:"0" max:"1000000" reload:"true" doc:"requests of one principal that may come at once; 0: as many as rate"`
		Streams int           `key:"streams" default:"1000" min:"1" max:"100000" reload:"true" doc:"streams of events and logs that are open at the same time"`
		Wait    time.Duration `key:"wait" default:"5m" min:"1s" max:"1h" reload:"true" doc:"longest wait of one request"`
	} `key:"limits"`

	Disk struct {
		Low   Size `key:"low" default:"2GiB" reload:"true" doc:"free space of the data folder below which readyz says degraded"`
		Least Size `key:"least" default:"256MiB" reload:"true" doc:"free space below which the service is not ready"`
	} `key:"disk"`

	Log struct {
		Level  slog.Level    `key:"level" default:"info" reload:"true" doc:"least level of what is logged: debug, info, warn or error"`
		Format string        `key:"format" default:"text" oneof:"text,json" doc:"form of the log"`
		Slow   time.Duration `key:"slow" default:"1s" min:"1ms" max:"1h" reload:"true" doc:"calls of the store and requests that take longer are logged; streams and waits are not"`
	} `key:"log"`

	Trace struct {
		Endpoint string  `key:"endpoint" doc:"base URL of an OTLP/HTTP collector; by default OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; without any nothing is traced"`
		Headers  Secret  `key:"headers" doc:"headers for the collector, as name=value,…; by default OTEL_EXPORTER_OTLP_HEADERS"`
		Sample   float64 `key:"sample" default:"1" min:"0" max:"1" doc:"part of the requests that is traced, of those that no trace came with"`
	} `key:"trace"`
}

// check looks at what no field knows alone.
func (c *Config) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	address := func(key, text string, opens bool) {
		host, _, err := net.SplitHostPort(text)
		if err != nil {
			fault("%s: %q is no address: write HOST:PORT, such as 127.0.0.1:7295", key, text)
		} else if opens && !loopback(host) && c.TLS.Cert == "" && !c.TLS.Elsewhere {
			fault("%s: others can reach %s, and tokens would go in clear: name the files of a certificate (--tls-cert, --tls-key), "+
				"say that a proxy speaks TLS (--tls-elsewhere), or listen on 127.0.0.1", key, text)
		}
	}
	address("listen", c.Listen, c.Plays("api"))
	if c.Peer.Listen != "" {
		address("peer.listen", c.Peer.Listen, true)
	}
	if c.Peer.Listen != "" && c.DB == "" {
		fault("peer.listen without db: the jobs in a folder have no other machine; name the database that many processes share")
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		fault("tls.cert and tls.key belong together: name both files, or none")
	}
	if c.TLS.Elsewhere && c.TLS.Cert != "" {
		fault("tls.elsewhere says that a proxy speaks TLS, and tls.cert that this process does: choose one")
	}
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || path.Clean(c.Prefix) != c.Prefix || c.Prefix == "/") {
		fault("prefix: %q is no path such as /pawl", c.Prefix)
	}
	for _, u := range []struct{ key, value string }{{"url", c.URL}, {"peer.url", c.Peer.URL}, {"trace.endpoint", c.Trace.Endpoint}} {
		if u.value == "" {
			continue
		}
		p, err := url.Parse(u.value)
		if strings.Contains(u.value, "@") { // what stands before it may be a password, and both are shown
			fault("%s: a URL with a name or a password is not taken: give it without; trace.headers takes what a collector wants to know", u.key)
		} else if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" || p.RawQuery != "" {
			fault("%s: %q is no URL such as https://jobs.example.org", u.key, u.value)
		}
	}
	if c.Disk.Least > c.Disk.Low {
		fault("disk.least (%v) is more than disk.low (%v): the service would be out before it is degraded", c.Disk.Least, c.Disk.Low)
	}
	if c.Limits.Burst > 0 && c.Limits.Rate == 0 {
		fault("limits.burst without limits.rate bounds nothing: set the rate")
	}
	if c.DBPooled && c.DBListen == "" {
		fault("db_pooled without db_listen: nobody can listen for wake-ups through a pooler in transaction mode; name the database without it")
	}
	if len(c.Roles) == 0 {
		fault("roles: a process without any does nothing: name one at least")
	}
	for _, l := range []struct {
		key   string
		names []string
	}{{"queues", c.Queues}, {"kinds", c.Kinds}, {"tenants", c.Tenants}} {
		if slices.Contains(l.names, "") {
			fault("%s: a name is empty", l.key)
		}
	}
	if len(faults) > 0 {
		return job.Errorf(job.Invalid, "%w", errors.Join(faults...))
	}
	return nil
}

// Plays reports whether the process has a role.
func (c *Config) Plays(role string) bool { return slices.Contains(c.Roles, role) }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
