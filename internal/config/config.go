// Package config is the configuration of pawl serve: one struct, whose tags say all that there is
// to say of each setting, and the way from flags, environment and file to it.
//
// A flag wins over the environment, that over the file, and that over the default. What nobody
// knows is an error, and each error names where the value came from.
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

// Config is everything that can be set. A field's comment says what it is, also in help and docs.
// Its tags: key, by which the file names it; default; oneof, min and max, which values there are;
// reload, when SIGHUP takes a new value over without a restart. A field that is a struct is a
// section, whose key stands before those in it: tls.cert is --tls-cert and PAWL_TLS_CERT.
type Config struct {
	// address to listen on; port 0: any that is free
	Listen string `key:"listen" default:"127.0.0.1:7295"`

	// how others reach the service, such as https://jobs.example.org/pawl; by default what follows
	// from listen
	URL string `key:"url"`

	// path under which a proxy serves it, such as /pawl; requests may come with it or without
	Prefix string `key:"prefix"`

	// networks of proxies, whose X-Forwarded-For and Forwarded are believed
	TrustedProxies Prefixes `key:"trusted_proxies" reload:"true"`

	TLS struct {
		// file with the certificate chain, PEM; read again when it changes
		Cert string `key:"cert"`

		// file with the key of the certificate, PEM; read again when it changes
		Key string `key:"key"`

		// a proxy before this process speaks TLS: listen without it although others can reach the
		// address
		Elsewhere bool `key:"elsewhere" default:"false"`
	} `key:"tls"`

	Peer struct {
		// address to listen on for processes of other machines, which fetch files and logs of jobs
		// that belong to this one, and delete such jobs; nobody else is answered there; by default
		// none, and they come to listen
		Listen string `key:"listen"`

		// how processes of other machines reach this very process, such as
		// https://node7.example.org:7296; by default what follows from peer.listen, or else from
		// url and listen
		URL string `key:"url"`

		// file with the certificates of the authorities, PEM, that are believed in when a process
		// of another machine shows its own; by default those of the system
		CA string `key:"ca"`
	} `key:"peer"`

	// database that holds the jobs, as the URL of PostgreSQL (postgres://…): many processes may
	// work on it; by default the one in the data folder, which serves one process
	DB Secret `key:"db"`

	// schema of the database db that holds Pawl's tables
	DBSchema string `key:"db_schema" default:"pawl"`

	// the database db without a pooler, for the one connection that listens for wake-ups, and for
	// the migration at the start; by default db
	DBListen Secret `key:"db_listen"`

	// db leads through a pooler in transaction mode, such as PgBouncer; db_listen must not
	DBPooled bool `key:"db_pooled" default:"false"`

	// bring the schema of db up to date at the start; false: it must be, by pawl migrate
	DBMigrate bool `key:"db_migrate" default:"true"`

	// what this process does: serve the API at an address, claim jobs and run them, look after
	// time, blocked jobs and dead processes, watch the programs of its machine
	Roles []string `key:"roles" default:"api,worker,recovery,watcher" oneof:"api,worker,recovery,watcher"`

	// the only queues whose jobs this process runs; by default all there are
	Queues []string `key:"queues"`

	// the only kinds of job that this process runs; by default all that it knows
	Kinds []string `key:"kinds"`

	// the only tenants whose jobs this process runs; by default all; to part work, queues cost less
	Tenants []string `key:"tenants"`
	Slots   struct {
		// jobs whose results are archived at once
		Finish int `key:"finish" default:"64" min:"1" max:"10000"`

		// jobs that are launched at once
		Launch int `key:"launch" default:"512" min:"1" max:"10000"`

		// jobs whose inputs are staged at once
		Prepare int `key:"prepare" default:"64" min:"1" max:"10000"`

		// tasks that run at once; pawl serve and pawl worker run programs only, so it is of no use
		// there
		Task int `key:"task" default:"50" min:"1" max:"10000"`
	} `key:"slots"`
	// how long the jobs of this process stay its own when it is not heard of
	Lease time.Duration `key:"lease" default:"15s" min:"1s" max:"10m"`

	// how long running steps and requests may go on after SIGTERM
	Grace time.Duration `key:"grace" default:"10s" min:"0s" max:"1h"`

	// programs that find out whether what blocks jobs has cleared, by name: what starts each, and
	// its arguments; a job that is blocked with tester command names one
	Testers Programs `key:"testers"`

	// how long a test of what blocks jobs may take
	TestTimeout time.Duration `key:"test_timeout" default:"30s" min:"1s" max:"10m"`

	// how long the machine remembers of which jobs it ran the program, after their folders are
	// gone; longer than the oldest backup of the database is old that may be restored
	Remember time.Duration `key:"remember" default:"720h" min:"1h" max:"87600h"`

	// from where jobs may have inputs fetched by http and https: public is any server but those at
	// addresses of this machine and of private networks; all is these too, and a proxy that
	// HTTPS_PROXY names; none refuses such jobs
	HTTPInputs string `key:"http_inputs" default:"public" oneof:"none,public,all"`

	// largest file that an input may have that is fetched by http or https
	HTTPSize Size `key:"http_size" default:"100GiB" min:"1KiB"`

	Limits struct {
		// largest body of a request
		Body Size `key:"body" default:"64MiB" min:"1KiB" max:"1GiB" reload:"true"`

		// jobs of one submission
		Jobs int `key:"jobs" default:"10000" min:"1" max:"100000" reload:"true"`

		// depth of JSON in a body
		Depth int `key:"depth" default:"64" min:"8" max:"1000" reload:"true"`

		// requests per second of one principal; 0: no bound
		Rate float64 `key:"rate" default:"0" min:"0" max:"1e6" reload:"true"`

		// requests of one principal that may come at once; 0: as many as rate
		Burst int `key:"burst" default:"0" min:"0" max:"1000000" reload:"true"`

		// streams of events and logs that are open at the same time
		Streams int `key:"streams" default:"1000" min:"1" max:"100000" reload:"true"`

		// longest wait of one request
		Wait time.Duration `key:"wait" default:"5m" min:"1s" max:"1h" reload:"true"`
	} `key:"limits"`

	Disk struct {
		// free space of the data folder below which readyz says degraded
		Low Size `key:"low" default:"2GiB" reload:"true"`

		// free space below which the service is not ready
		Least Size `key:"least" default:"256MiB" reload:"true"`
	} `key:"disk"`

	Log struct {
		// least level of what is logged: debug, info, warn or error
		Level slog.Level `key:"level" default:"info" reload:"true"`

		// form of the log
		Format string `key:"format" default:"text" oneof:"text,json"`

		// calls of the store and requests that take longer are logged; streams and waits are not
		Slow time.Duration `key:"slow" default:"1s" min:"1ms" max:"1h" reload:"true"`
	} `key:"log"`

	Trace struct {
		// base URL of an OTLP/HTTP collector; by default OTEL_EXPORTER_OTLP_ENDPOINT or
		// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT; without any nothing is traced
		Endpoint string `key:"endpoint"`

		// headers for the collector, as name=value,…; by default OTEL_EXPORTER_OTLP_HEADERS
		Headers Secret `key:"headers"`

		// part of the requests that is traced, of those that no trace came with
		Sample float64 `key:"sample" default:"1" min:"0" max:"1"`
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
			fault("%s: others can reach %s, and tokens would go in clear: name the files of a certificate "+
				"(--tls-cert, --tls-key), "+
				"say that a proxy speaks TLS (--tls-elsewhere), or listen on 127.0.0.1", key, text)
		}
	}
	address("listen", c.Listen, c.Plays("api"))
	if c.Peer.Listen != "" {
		address("peer.listen", c.Peer.Listen, true)
	}
	if c.Peer.Listen != "" && c.DB == "" {
		fault("peer.listen without db: the jobs in a folder have no other machine; name the database that many " +
			"processes share")
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
	for _, u := range []struct{ key, value string }{
		{"url", c.URL},
		{"peer.url", c.Peer.URL},
		{"trace.endpoint", c.Trace.Endpoint},
	} {
		if u.value == "" {
			continue
		}
		p, err := url.Parse(u.value)
		if strings.Contains(u.value, "@") { // what stands before it may be a password, and both are shown
			fault("%s: a URL with a name or a password is not taken: give it without; trace.headers takes what a "+
				"collector wants to know", u.key)
		} else if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" || p.RawQuery != "" {
			fault("%s: %q is no URL such as https://jobs.example.org", u.key, u.value)
		}
	}
	if c.Disk.Least > c.Disk.Low {
		fault("disk.least (%v) is more than disk.low (%v): the service would be out before it is degraded",
			c.Disk.Least, c.Disk.Low)
	}
	if c.Limits.Burst > 0 && c.Limits.Rate == 0 {
		fault("limits.burst without limits.rate bounds nothing: set the rate")
	}
	if c.DBPooled && c.DBListen == "" {
		fault("db_pooled without db_listen: nobody can listen for wake-ups through a pooler in transaction mode; " +
			"name the database without it")
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
