package config

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

var update = flag.Bool("update", false, "write the table of settings and their words anew")

// load loads a configuration from a file's content, the environment and flags.
func load(t *testing.T, file string, env []string, flags map[string]string) (*Loaded, error) {
	t.Helper()
	src := Sources{Env: env, Flags: flags, File: filepath.Join(t.TempDir(), FileName)}
	if file != "" {
		if err := os.WriteFile(src.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(src)
}

func must(t *testing.T, file string, env []string, flags map[string]string) *Loaded {
	t.Helper()
	l, err := load(t, file, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestPrecedence(t *testing.T) {
	file := "limits:\n  jobs: 5\n  depth: 9\nlog: {level: warn}\ngrace: 5s\n"
	l := must(t, file, []string{"PAWL_LIMITS_JOBS=6", "PAWL_LIMITS_DEPTH=10", "HOME=/root", "PAWL_TOKEN=x", "PAWL_JOB_ID=y"},
		map[string]string{"limits-jobs": "7"})
	for _, tt := range []struct {
		key, from string
		got, want any
	}{
		{"limits.jobs", "--limits-jobs", l.Limits.Jobs, 7},
		{"limits.depth", "PAWL_LIMITS_DEPTH", l.Limits.Depth, 10},
		{"grace", l.File + ":5", l.Grace, 5 * time.Second},
		{"log.level", l.File + ":4", l.Log.Level.String(), "WARN"},
		{"lease", "default", l.Lease, 15 * time.Second},
		{"limits.body", "default", l.Limits.Body, Size(64 << 20)},
	} {
		if tt.got != tt.want || l.From(tt.key) != tt.from {
			t.Errorf("%s is %v, from %s; want %v from %s", tt.key, tt.got, l.From(tt.key), tt.want, tt.from)
		}
	}
}

func TestNothingOverridesSomething(t *testing.T) {
	l := must(t, "url: http://a.example\nqueues: [a, b]\n", []string{"PAWL_URL=", "PAWL_QUEUES="}, nil)
	if l.URL != "" || l.Queues != nil {
		t.Errorf("url %q, queues %q", l.URL, l.Queues)
	}
}

func TestLists(t *testing.T) {
	l := must(t, "queues: [a, b]\ntrusted_proxies:\n  - 10.0.0.0/8\n  - ::1\n", nil, nil)
	if diff := cmp.Diff([]string{"a", "b"}, l.Queues); diff != "" {
		t.Error(diff)
	}
	if got := l.TrustedProxies.String(); got != "10.0.0.0/8,::1/128" {
		t.Error(got)
	}
	if got := must(t, "", []string{"PAWL_QUEUES=c, d"}, nil).Queues; !reflect.DeepEqual(got, []string{"c", "d"}) {
		t.Error(got)
	}
}

func TestPrograms(t *testing.T) {
	const flow, block = "testers: {mail: [/bin/mail, -q], disk: /bin/df}\n", "testers:\n  mail:\n    - /bin/mail\n    - -q\n  disk: [/bin/df]\n"
	want := Programs{"mail": {"/bin/mail", "-q"}, "disk": {"/bin/df"}}
	for _, file := range []string{flow, block} {
		l := must(t, file, nil, nil)
		if diff := cmp.Diff(want, l.Testers); diff != "" {
			t.Errorf("%s%s", file, diff)
		}
		if got := l.Testers.String(); got != `{"disk":["/bin/df"],"mail":["/bin/mail","-q"]}` {
			t.Errorf("they are shown as %s", got)
		}
	}
	l := must(t, flow, []string{`PAWL_TESTERS={"mail": ["/bin/true", "a, b"]}`}, nil)
	if diff := cmp.Diff(Programs{"mail": {"/bin/true", "a, b"}}, l.Testers); diff != "" {
		t.Error(diff)
	}
	for _, l := range []*Loaded{must(t, "testers:\n", nil, nil), must(t, flow, []string{"PAWL_TESTERS="}, nil), must(t, "", nil, nil)} {
		if len(l.Testers) > 0 || l.Testers.String() != "" {
			t.Errorf("programs %v", l.Testers)
		}
	}
}

func TestRoles(t *testing.T) {
	if l := must(t, "", nil, nil); !l.Plays("api") || !l.Plays("watcher") {
		t.Errorf("roles %q by default", l.Roles)
	}
	// Who opens no address needs no certificate for it.
	l := must(t, "roles: [worker, recovery]\nlisten: 0.0.0.0:80\n", nil, nil)
	if l.Plays("api") || !l.Plays("recovery") {
		t.Errorf("roles %q", l.Roles)
	}
}

// Each row is a source with a fault, and what the error must say.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, file, env string
		flags           map[string]string
		want            []string
	}{
		{name: "an unknown key", file: "listen: 127.0.0.1:0\nlimits:\n  bodi: 3\n", want: []string{"pawl.yaml:3: limits.bodi is no setting: did you mean limits.body?"}},
		{name: "an unknown section", file: "limit:\n  body: 3\n", want: []string{"pawl.yaml:1: limit is no setting"}},
		{name: "an unknown variable", env: "PAWL_LISTN=127.0.0.1:0", want: []string{"PAWL_LISTN in the environment is no setting: did you mean PAWL_LISTEN?"}},
		{name: "a slip in a client's variable", env: "PAWL_SERVR=http://x", want: []string{"did you mean PAWL_SERVER?"}},
		{name: "an unknown flag", flags: map[string]string{"lissen": "x"}, want: []string{"--lissen is no flag"}},
		{name: "a value of another type", file: "limits: {jobs: many}\n", want: []string{`pawl.yaml:1: limits.jobs is "many": write a whole number`}},
		{name: "a duration without a unit", env: "PAWL_GRACE=10", want: []string{`PAWL_GRACE: grace is "10": write a duration, such as 90s or 1d`}},
		{name: "a value out of its range", flags: map[string]string{"lease": "1ms"}, want: []string{`--lease: lease is "1ms": it must be at least 1s`}},
		{name: "a word that is none of them", env: "PAWL_LOG_FORMAT=xml", want: []string{"PAWL_LOG_FORMAT", "write text or json"}},
		{name: "a level", env: "PAWL_LOG_LEVEL=loud", want: []string{"write debug, info, warn or error"}},
		{name: "a size", env: "PAWL_DISK_LOW=much", want: []string{"write a number of bytes, such as 64MiB"}},
		{name: "a network", env: "PAWL_TRUSTED_PROXIES=10.0.0.0/8,proxy", want: []string{`"proxy" is no network`}},
		{name: "no programs", file: "testers: [a]\n", want: []string{"pawl.yaml:1: write programs here"}},
		{name: "a program without its path", file: "testers: {mail: [mail]}\n", want: []string{"name the program by its whole path"}},
		{name: "a program that is none", env: `PAWL_TESTERS={"mail": []}`, want: []string{"name the program by its whole path"}},
		{name: "programs without a name", env: `PAWL_TESTERS={"": ["/bin/true"]}`, want: []string{"a name is empty"}},
		{name: "programs twice", file: "testers:\n  mail: [/a]\n  \"mail\": [/b]\n", want: []string{"twice"}},
		{name: "programs that are no JSON", env: "PAWL_TESTERS=mail", want: []string{"write programs by name"}},
		{name: "a map where a value belongs", file: "listen:\n  port: 3\n", want: []string{"pawl.yaml:2: write a plain value here"}},
		{name: "a value where a section belongs", file: "limits: 3\n", want: []string{"pawl.yaml:1: write settings here"}},
		{name: "a key twice", file: "grace: 1s\ngrace: 2s\n", want: []string{"pawl.yaml"}},
		{name: "no YAML", file: "a: [\n", want: []string{"pawl.yaml"}},
		{name: "all faults at once", file: "grce: 1s\n", env: "PAWL_LEESE=3s", flags: map[string]string{"limits-jobs": "x"}, want: []string{"grce", "PAWL_LEESE", "--limits-jobs"}},
		{name: "a secret is not repeated", env: "PAWL_TRACE_SAMPLE=hush", file: "trace: {headers: {a: hush2}}", want: []string{"write a number"}},

		{name: "an address that others can reach, without TLS", env: "PAWL_LISTEN=0.0.0.0:80", want: []string{"tokens would go in clear", "--tls-elsewhere"}},
		{name: "every address, without TLS", env: "PAWL_LISTEN=:80", want: []string{"tokens would go in clear"}},
		{name: "an address for processes that others can reach, without TLS", env: "PAWL_PEER_LISTEN=:7296", file: "db: postgres://db/pawl", want: []string{"peer.listen: others can reach", "--tls-elsewhere"}},
		{name: "an address for processes that is none", env: "PAWL_PEER_LISTEN=7296", file: "db: postgres://db/pawl", want: []string{"peer.listen: \"7296\" is no address"}},
		{name: "an address for processes of other machines, where there are none", env: "PAWL_PEER_LISTEN=127.0.0.1:7296", want: []string{"peer.listen without db"}},
		{name: "a URL for processes that is none", env: "PAWL_PEER_URL=node7:7296", want: []string{"peer.url"}},
		{name: "half a pair", env: "PAWL_TLS_CERT=x", want: []string{"belong together"}},
		{name: "TLS here and elsewhere", file: "tls: {cert: a, key: b, elsewhere: true}", want: []string{"choose one"}},
		{name: "no address", env: "PAWL_LISTEN=7295", want: []string{"write HOST:PORT"}},
		{name: "a prefix with a slash at its end", env: "PAWL_PREFIX=/pawl/", want: []string{"no path such as /pawl"}},
		{name: "a password in a URL", env: "PAWL_TRACE_ENDPOINT=http://ada:hush2@collector", want: []string{"trace.endpoint: a URL with a name or a password", "trace.headers"}},
		{name: "a password in a URL that is none", env: "PAWL_URL=http://ada:hush2@x:y:z", want: []string{"url: a URL with a name or a password"}},
		{name: "a URL without a host", env: "PAWL_URL=/pawl", want: []string{"url"}},
		{name: "thresholds the wrong way round", env: "PAWL_DISK_LEAST=3GiB", want: []string{"disk.least (3GiB) is more than disk.low (2GiB)"}},
		{name: "a role that is none", env: "PAWL_ROLES=api,cook", want: []string{"PAWL_ROLES", "write some of api, worker, recovery, watcher"}},
		{name: "no role", env: "PAWL_ROLES=", want: []string{"roles: a process without any does nothing"}},
		{name: "a password of the database", env: "PAWL_DB=postgres://ada:hush2@db/pawl", flags: map[string]string{"grace": "x"}, want: []string{"--grace"}},
		{name: "a burst without a rate", env: "PAWL_LIMITS_BURST=3", want: []string{"limits.burst without limits.rate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var env []string
			if tt.env != "" {
				env = []string{tt.env}
			}
			_, err := load(t, tt.file, env, tt.flags)
			if job.KindOf(err) != job.Invalid {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("it does not say %q: %v", w, err)
				}
			}
			if strings.Contains(err.Error(), "hush2") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
}

func TestAllowedAddresses(t *testing.T) {
	for _, env := range [][]string{
		{"PAWL_LISTEN=[::1]:0"},
		{"PAWL_LISTEN=localhost:80"},
		{"PAWL_LISTEN=:80", "PAWL_TLS_ELSEWHERE=true"},
		{"PAWL_LISTEN=:443", "PAWL_TLS_CERT=a", "PAWL_TLS_KEY=b"},
	} {
		if _, err := load(t, "", env, nil); err != nil {
			t.Errorf("%q: %v", env, err)
		}
	}
}

func TestMissingFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "nothing.yaml")
	if l, err := Load(Sources{File: name}); err != nil || l.File != "" {
		t.Errorf("a file that nobody asked for: %v", err)
	}
	if _, err := Load(Sources{File: name, Needed: true}); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), name) {
		t.Errorf("a file that was asked for: %v", err)
	}
}

func TestPrint(t *testing.T) {
	l := must(t, "", []string{"PAWL_TRACE_HEADERS=authorization=hush"}, nil)
	var b strings.Builder
	if err := l.Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hush") || !strings.Contains(b.String(), "(hidden)") {
		t.Errorf("a secret is shown:\n%s", &b)
	}
	for _, s := range Settings {
		if !strings.Contains(b.String(), s.Key+" ") {
			t.Errorf("%s is missing", s.Key)
		}
	}
}

func TestReload(t *testing.T) {
	old := must(t, "limits: {rate: 5}\nlease: 20s\n", nil, nil)
	next := must(t, "limits: {rate: 7}\nlease: 30s\n", []string{"PAWL_TRACE_HEADERS=a=hush"}, nil)
	now, later := old.Changes(next)
	if diff := cmp.Diff([]string{"limits.rate: 5 → 7"}, now); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"lease: 20s → 30s", "trace.headers:  → (hidden)"}, later); diff != "" {
		t.Error(diff)
	}
	got := old.Reloaded(next)
	if got.Limits.Rate != 7 || got.Lease != 20*time.Second || got.From("limits.rate") != next.File+":1" {
		t.Errorf("rate %v from %s, lease %v", got.Limits.Rate, got.From("limits.rate"), got.Lease)
	}
	if old.Limits.Rate != 5 {
		t.Error("the old one has changed")
	}
}

// TestSettings holds the tags to what the code expects of them.
func TestSettings(t *testing.T) {
	seen := map[string]bool{}
	for i := range Settings {
		s := &Settings[i]
		if s.Doc == "" || strings.HasSuffix(s.Doc, ".") || strings.Contains(s.Doc, "|") {
			t.Errorf("%s: its doc is %q", s.Key, s.Doc)
		}
		if seen[s.Flag()] {
			t.Errorf("%s is there twice", s.Flag())
		}
		seen[s.Flag()] = true
		var c Config
		for _, text := range []string{s.Default, s.Min, s.Max} {
			if text == "" {
				continue
			}
			if err := s.read(&c, text); err != nil {
				t.Errorf("%s: its own %q is refused: %v", s.Key, text, err)
			}
			if got := s.shown(&c); text == s.Default && got != text {
				t.Errorf("%s: the default %q is shown as %q", s.Key, text, got)
			}
		}
	}
	if len(Settings) < 25 {
		t.Errorf("only %d settings", len(Settings))
	}
}

func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Size(rapid.Int64Range(0, 1<<62).Draw(t, "bytes"))
		var got Size
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Fatalf("%v is read as %v, %v", want, got, err)
		}
	})
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "9999999999TiB", "1 MB"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"limits:\n  jobs: 5\n", "a: &x 1\nb: *x\n", "- 1", "listen: |\n  a\n  b\n", "? a\n: b", "<<: {a: 1}", "---\n...\n---\na: !!binary b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		l, err := parse("pawl.yaml", []byte(content))
		if err != nil {
			return
		}
		for key := range l {
			if byName(keyOf, key) == nil {
				t.Errorf("%q is taken for a setting", key)
			}
		}
	})
}

// TestTable holds the documentation to the struct.
// TestWords holds what is said of settings to the comments on their fields.
func TestWords(t *testing.T) {
	testenv.HoldWords(t, "words.json", testenv.FieldWords(t, ".", "key")["Config"], *update)
}

func TestTable(t *testing.T) {
	const name, begin, end = "../../docs/configuration.md", "<!-- settings -->\n", "<!-- /settings -->"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", name)
	}
	want := before + begin + Table() + end + after
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("go test ./internal/config -update writes it anew (-struct +document)\n%s", diff)
	}
}
