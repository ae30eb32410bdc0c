package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a spec. They are part of the interface: a spec within them is never refused for its
// size.
const (
	MaxSpec    = 2 << 20     // bytes of a spec as JSON
	MaxArgs    = 1 << 20     // bytes of args as JSON
	MaxNotes   = 64 << 10    // bytes of notes as JSON
	MaxVersion = 1_000_000   // of args
	MaxScript  = 1 << 20     // bytes of a script
	MaxWord    = 128<<10 - 1 // bytes of one argument: the bound of Linux (MAX_ARG_STRLEN)
	MaxLabels  = 64
	MaxDepth   = 64       // how deeply lists and maps of args, notes and data of events may be nested
	MaxMerged  = 64 << 20 // bytes of the specs of one submission, each with the defaults
	MaxInputs  = 10_000
	MaxWords   = 100_000 // of command, arguments and launch together
	MaxEnv     = 10_000
)

var (
	nameRE  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	labelRE = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,63}$`)
	envRE   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

	sha256RE = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)
)

// Bounds of names.
const (
	MaxTenant     = 64  // bytes of the name of a tenant
	MaxName       = 128 // characters of the name of a job
	MaxOwner      = 128 // characters of the name of a user
	MaxExternalID = 128 // characters
	MaxKey        = 255 // characters of a key of idempotency, unique or order, and of a label's value
)

// CheckTenant returns an error of kind [Invalid] unless name can be the name of a tenant. Folders
// are named after tenants.
func CheckTenant(name string) error {
	if !validName(name) || len(name) > MaxTenant {
		return Errorf(Invalid, "%q is not the name of a tenant: use up to %d letters, digits, dots, dashes and "+
			"underscores, and begin with a letter or digit", short(name), MaxTenant)
	}
	return nil
}

// CheckPrincipal returns an error of kind [Invalid] unless name can be that of a user.
func CheckPrincipal(name string) error {
	if name == "" || utf8.RuneCountInString(name) > MaxOwner || !readable(name) {
		return Errorf(Invalid, "%q is not the name of a user: use 1 to %d printable characters", short(name), MaxOwner)
	}
	return nil
}

// CheckKey returns an error of kind [Invalid] unless key can be an idempotency key. Empty is none.
func CheckKey(key string) error {
	if utf8.RuneCountInString(key) > MaxKey || !readable(key) {
		return Errorf(Invalid, "%q is not an idempotency key: use up to %d printable characters", short(key), MaxKey)
	}
	return nil
}

func validName(s string) bool { return nameRE.MatchString(s) }

// Validate reports everything that is wrong with s. Its error is a [SpecError].
func (s *Spec) Validate() error {
	var v validation
	kind := s.kind()
	v.name("kind", kind, 64)
	if kind == "" {
		v.add("kind", "", "is missing", "give a command, or the kind of a task")
	}
	v.text("name", s.Name, MaxName)
	v.text("external_id", s.ExternalID, MaxExternalID)
	v.text("owner", s.Owner, MaxOwner)
	v.name("queue", s.Queue, 64)
	if p := s.Priority; p != nil && (*p < 0 || *p > 9) {
		v.add("priority", strconv.Itoa(*p), "is out of range", "give 0 (first) to 9")
	}
	if s.Delay < 0 {
		v.add("delay", s.Delay.String(), "is negative", "give a positive duration such as 90s")
	}
	if s.Delay > 0 && !s.NotBefore.IsZero() {
		v.add("delay", s.Delay.String(), "cannot be given together with not_before", "give one of them")
	}
	v.instant("not_before", s.NotBefore)
	v.duration("delay", s.Delay)
	v.limits(s)
	v.unique(s)
	v.order(s)
	v.labels(s.Labels)
	v.json("notes", s.Notes, MaxNotes)
	v.retry(s.Retry)
	v.recovery(s.Recovery)
	switch kind {
	case "":
	case KindApp:
		v.app(s)
	default:
		v.task(s)
	}
	return v.err()
}

type validation struct{ found SpecError }

func (v *validation) err() error {
	if v.found.Problems != nil {
		return &v.found
	}
	return nil
}

func (v *validation) add(path, value, what, remedy string) {
	v.found.Add(Problem{path, short(value), what, remedy})
}

func (v *validation) text(path, s string, limit int) {
	switch {
	case utf8.RuneCountInString(s) > limit:
		v.add(path, s, "is too long", fmt.Sprintf("keep it to %d characters", limit))
	case !readable(s):
		v.add(path, s, "has control or invisible characters", "use printable characters")
	}
}

func (v *validation) name(path, s string, limit int) {
	if s != "" && !validName(s) {
		v.add(path, s, "is not a name", "use letters, digits, dot, dash and underscore, and begin with a letter "+
			"or digit")
	}
	v.text(path, s, limit)
}

func (v *validation) json(path string, raw json.RawMessage, limit int) {
	deepest, _ := Measure(raw)
	switch {
	case len(raw) > limit:
		v.add(path, fmt.Sprintf("%d bytes", len(raw)), "is too large",
			fmt.Sprintf("keep it to %d bytes and pass larger data by reference", limit))
	case raw != nil && !json.Valid(raw):
		v.add(path, string(raw), "is not JSON", "correct the syntax")
	case !utf8.Valid(raw):
		v.add(path, "", "is not text in UTF-8", "encode it so")
	case deepest > MaxDepth:
		v.add(path, "", fmt.Sprintf("has lists and maps more than %d deep in each other", MaxDepth), "write it flatter")
	}
}

func (v *validation) labels(m map[string]string) {
	v.many("labels", len(m), MaxLabels)
	for _, k := range sortedKeys(m) {
		if !labelRE.MatchString(k) {
			v.add(member("labels", k), "", "is not a label's key",
				"use 1 to 63 letters, digits, dots, dashes, underscores and slashes")
		}
		v.text(member("labels", k), m[k], MaxKey)
	}
}

func (v *validation) retry(p *RetryPolicy) {
	if p == nil {
		return
	}
	if p.MaxAttempts < 0 || p.MaxAttempts > 1000 {
		v.add("retry.max_attempts", strconv.Itoa(p.MaxAttempts), "is out of range", "give 1 to 1000")
	}
	b := p.Backoff
	switch b.Kind {
	case "", BackoffConstant, BackoffLinear, BackoffExponential:
	default:
		v.add("retry.backoff.kind", string(b.Kind), "is unknown", "give constant, linear or exponential")
	}
	if b.Base < 0 {
		v.add("retry.backoff.base", b.Base.String(), "is negative", "give a positive duration such as 1s")
	}
	v.duration("retry.backoff.base", b.Base)
	v.duration("retry.backoff.max", b.Max)
	if b.Max < 0 || b.Max > 0 && b.Max < b.Base {
		v.add("retry.backoff.max", b.Max.String(), "is less than base", "give a duration of at least "+b.Base.String())
	}
}

func (v *validation) task(s *Spec) {
	v.json("args", s.Args, MaxArgs)
	if n := s.ArgsVersion; n < 0 || n > MaxVersion {
		v.add("args_version", strconv.Itoa(n), "is out of range", fmt.Sprintf("give 1 to %d", MaxVersion))
	}
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"command", len(s.Command) > 0},
		{"script", s.Script != ""},
		{"arguments", len(s.Arguments) > 0},
		{"env", len(s.Env) > 0},
		{"system", s.System != ""},
		{"inputs", len(s.Inputs) > 0},
		{"resources", s.Resources != nil},
		{"launch", len(s.Launch) > 0},
		{"rerun", s.Rerun != ""},
		{"stdout", s.Stdout != ""},
		{"stderr", s.Stderr != ""},
		{"archive", s.Archive != nil},
	} {
		if f.set {
			v.add(f.path, "", "belongs to kind app, not to a task", "remove it, or remove kind")
		}
	}
}

func (v *validation) app(s *Spec) {
	if s.Args != nil {
		v.add("args", "", "belongs to tasks, not to kind app", "use arguments")
	}
	words := v.many("arguments", len(s.Command)+len(s.Arguments)+len(s.Launch), MaxWords)
	variables := v.many("env", len(s.Env), MaxEnv)
	if v.many("inputs", len(s.Inputs), MaxInputs) || words || variables {
		return // each of them would be looked at
	}
	v.program(s)
	for _, k := range sortedKeys(s.Env) {
		v.variable(member("env", k), k, "")
		v.word(member("env", k), s.Env[k], "") // it may be secret
	}
	v.name("system", s.System, 64)
	if s.Resources != nil {
		v.resources(s.Resources)
	}
	if s.Archive != nil {
		v.archive(s.Archive)
	}
	if s.Rerun != "" && s.Rerun != RerunAccept && s.Rerun != RerunFail {
		v.add("rerun", string(s.Rerun), "is unknown", "give accept or fail")
	}
	v.inFolder("stdout", cmp.Or(s.Stdout, "stdout"))
	v.inFolder("stderr", cmp.Or(s.Stderr, "stderr"))
	for i, in := range s.Inputs {
		at := fmt.Sprintf("inputs[%d]", i)
		v.input(at, in, cmp.Or(s.System, SystemLocal))
		if _, twice := s.Env[in.Env]; twice && in.Env != "" {
			v.add(at+".env", in.Env, "is set in env too", "give one of them another name")
		}
	}
	v.found.Add(s.Clashes(func(in Input) bool { return Web(in.From) || in.SHA256 != "" })...)
	v.macros(s)
}

// Clashes returns which names of the job's folder cannot be there together: two that are the same,
// but those of stdout and stderr, and one below another that is a link or no folder. file reports
// whether an input is known to be no folder.
func (s *Spec) Clashes(file func(Input) bool) []Problem {
	var v validation
	out, errs := path.Clean(cmp.Or(s.Stdout, "stdout")), path.Clean(cmp.Or(s.Stderr, "stderr"))
	fields := map[string]string{out: "stdout", errs: "stderr"}
	leaves := map[string]string{out: "a file", errs: "a file"} // what those are that can have nothing below
	for i, in := range s.Inputs {
		at, to := fmt.Sprintf("inputs[%d].to", i), cmp.Or(in.To, baseName(in.From))
		name := path.Clean(to)
		if in.From == "" || name == "/" {
			continue // it has no name
		}
		if other, twice := fields[name]; twice {
			v.add(at, to, "is the target of "+strings.TrimSuffix(other, ".to")+" too", "give another path")
		}
		fields[name] = at
		if in.InPlace {
			leaves[name] = "a link to " + short(in.From)
		} else if file(in) {
			leaves[name] = "a file"
		}
	}
	places := sortedKeys(fields)
	for _, leaf := range sortedKeys(leaves) {
		below, _ := slices.BinarySearch(places, leaf+"/")
		for _, to := range places[below:] {
			if !strings.HasPrefix(to, leaf+"/") {
				break
			}
			v.add(fields[to], to, "lies in "+strings.TrimSuffix(fields[leaf], ".to")+", which is "+leaves[leaf],
				"give one of them another path")
		}
	}
	return v.found.Problems
}

// program checks what is run.
func (v *validation) program(s *Spec) {
	switch {
	case len(s.Command) > 0 && s.Script != "":
		v.add("script", "", "cannot be given together with command", "give one of them")
	case s.Script != "":
		if len(s.Script) > MaxScript {
			v.add("script", fmt.Sprintf("%d bytes", len(s.Script)), "is too large",
				fmt.Sprintf("keep it to %d bytes, or pass it as an input", MaxScript))
		}
		if strings.ContainsRune(s.Script, 0) {
			v.add("script", "", "has a NUL byte", "remove it")
		}
	case len(s.Command) == 0:
		v.add("command", "", "is missing", "give a list such as [wc, -w, in.txt]")
	case s.Command[0] == "":
		v.add("command[0]", "", "is empty", "give the program's name or path")
	}
	v.argv("command", s.Command)
	v.argv("arguments", s.Arguments)
	v.argv("launch", s.Launch)
	if len(s.Launch) > 0 && s.Launch[0] == "" {
		v.add("launch[0]", "", "is empty", "give the name or path of a program such as nice")
	}
}

func (v *validation) archive(a *Archive) {
	if _, _, far := OnSystem(a.To); far {
		v.onSystem("archive.to", a.To, "system://lab/results")
	} else {
		v.location("archive.to", a.To, "give a path, file:///…, or system://NAME/path")
	}
	switch a.On {
	case "", ArchiveAlways, ArchiveSuccess, ArchiveNever:
	default:
		v.add("archive.on", string(a.On), "is unknown", "give always, success or never")
	}
}

// input checks an input of a job on a system.
func (v *validation) input(at string, in Input, system string) {
	if in.From == "" {
		v.add(at+".from", "", "is missing", "give the path of a file or folder, or the URL of a file")
		return
	}
	_, _, far := OnSystem(in.From)
	switch {
	case Web(in.From):
		v.web(at, in)
	case far:
		v.onSystem(at+".from", in.From, "system://lab/data/in.txt")
		if of, _, _ := OnSystem(in.From); in.InPlace && of != system && !strings.Contains(in.From, "${") {
			v.add(at+".in_place", "", "is for what is on the system of the job, which is "+system,
				"remove it, and the input is copied; or give system: "+of)
		}
	default:
		v.location(at+".from", in.From, "give a path, file:///…, system://NAME/path, or the URL of a file ("+
			strings.Join(WebSchemes(), ", ")+")")
	}
	to := in.To
	if to == "" {
		to = baseName(in.From)
	}
	if to == "/" && (far || Web(in.From)) {
		v.add(at+".to", "", "is missing", "give the name that it gets in the job's folder")
		return
	}
	v.inFolder(at+".to", to)
	if in.SHA256 != "" && !sha256RE.MatchString(in.SHA256) {
		v.add(at+".sha256", in.SHA256, "is no SHA-256 sum", "give 64 hexadecimal digits, as sha256sum prints them")
	}
	if in.SHA256 != "" && in.InPlace {
		v.add(at+".sha256", in.SHA256, "cannot be given together with in_place, which reads nothing", "remove one of them")
	}
	if in.Env != "" {
		v.variable(at+".env", in.Env, in.Env)
	}
}

// variable checks the name of a variable that the user sets. value is the text at the path at if
// that text is the name.
func (v *validation) variable(at, name, value string) {
	switch {
	case !envRE.MatchString(name):
		v.add(at, value, "is not a variable's name",
			"use letters, digits and underscores, and do not begin with a digit")
	case strings.HasPrefix(name, "PAWL_"):
		v.add(at, value, "is reserved", "use a name that does not begin with PAWL_")
	}
}

// WebSchemes returns the schemes of URLs that an input can have, in lower case: those of the
// sources in internal/node/backends.go.
func WebSchemes() []string { return []string{"http", "https"} }

// Web reports whether an input comes from a web server: from begins with one of [WebSchemes] and
// "://".
func Web(from string) bool {
	scheme, _, ok := strings.Cut(from, "://")
	return ok && slices.Contains(WebSchemes(), strings.ToLower(scheme))
}

// web checks an input that comes from a web server. A URL with macros is checked again when they
// are replaced.
func (v *validation) web(at string, in Input) {
	u, err := url.Parse(in.From)
	switch {
	case strings.ContainsFunc(in.From, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		v.add(at+".from", in.From, "has spaces or control characters", "write a space as %20")
	case strings.Contains(in.From, "${"):
	case err != nil || u.Hostname() == "": // an error of url.Parse repeats the URL
		v.add(at+".from", in.From, "is no URL", "give one such as https://data.example.org/poem.txt")
	case u.User != nil: // everybody who sees the job would see it
		v.add(at+".from", u.Redacted(), "has a name or a password in it",
			"give the URL without, such as one that the server has signed")
	}
	if in.InPlace {
		v.add(at+".in_place", "", "is for what is on the system already", "remove it, or give a path")
	}
}

// onSystem checks a place on a system. A place with macros is checked again when they are replaced.
func (v *validation) onSystem(at, p, such string) {
	system, name, _ := OnSystem(p)
	switch {
	case strings.ContainsRune(p, 0):
		v.add(at, p, "has a NUL byte", "remove it")
	case strings.Contains(p, "${"):
	case !validName(system) || len(system) > 64:
		v.add(at, p, "names no system", "give one such as "+such)
	case name == "/":
		v.add(at, p, "names no path on the system", "give one such as "+such)
	}
}

// location checks a files URL.
func (v *validation) location(at, from, remedy string) {
	scheme, rest, ok := strings.Cut(from, "://")
	switch {
	case strings.ContainsRune(from, 0):
		v.add(at, from, "has a NUL byte", "remove it")
	case ok && !strings.Contains(scheme, "/") && (scheme != "file" || !strings.HasPrefix(rest, "/")):
		v.add(at, from, "is of an unknown kind", remedy)
	}
}

func (v *validation) argv(path string, list []string) {
	for i, a := range list {
		v.word(fmt.Sprintf("%s[%d]", path, i), a, a)
	}
}

// word checks one argument or variable of a program. Messages show it as value.
func (v *validation) word(at, text, value string) {
	if !utf8.ValidString(text) {
		v.add(at, value, "is not text in UTF-8", "write it to a file and pass that as an input")
	}
	if strings.ContainsRune(text, 0) {
		v.add(at, value, "has a NUL byte", "remove it")
	}
	if len(text) > MaxWord {
		v.add(at, fmt.Sprintf("%d bytes", len(text)), "is longer than Linux passes to a program",
			fmt.Sprintf("keep it to %d bytes, or write it to a file and pass that as an input", MaxWord))
	}
}

// inFolder checks a path that must stay inside the job's folder and outside Pawl's own part of it.
func (v *validation) inFolder(at, p string) {
	clean := path.Clean(p)
	switch {
	case path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../"):
		v.add(at, p, "leaves the job's folder", "give a relative path without ..")
	case clean == ".":
		v.add(at, p, "is the job's folder itself", "give the name of a file in it")
	case clean == ".pawl" || strings.HasPrefix(clean, ".pawl/"):
		v.add(at, p, "lies in .pawl, which is Pawl's own", "give another path")
	case !readable(p):
		v.add(at, p, "has control or invisible characters", "use printable characters")
	}
}

// Fingerprint identifies a request as it was given. The same JSON in another order or spacing has
// the same fingerprint.
func Fingerprint(request []byte) ([32]byte, error) {
	v, err := decode(request)
	if err != nil {
		return [32]byte{}, Errorf(Invalid, "request is not JSON: %w", err)
	}
	canonical, err := json.Marshal(v) // sorts the keys of maps
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(canonical), nil
}

func problem(path, value, what, remedy string) error {
	return &SpecError{[]Problem{{path, short(value), what, remedy}}}
}

// member returns the path of field k in the value at the path at, fit for a message.
func member(at, k string) string {
	if k = short(k); k == "" {
		k = `""`
	}
	if at == "" {
		return k
	}
	return at + "." + k
}

// short makes a value fit for a message.
func short(s string) string {
	const limit = 60
	if s == "" {
		return ""
	}
	if utf8.RuneCountInString(s) > limit {
		s = string([]rune(s)[:limit]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !Visible(r) || r == utf8.RuneError }) {
		return strconv.Quote(s)
	}
	return s
}

// baseName returns the last element of a path or URL.
func baseName(p string) string {
	if Web(p) { // what follows the path is for the server
		p, _, _ = strings.Cut(p, "#")
		p, _, _ = strings.Cut(p, "?")
		_, host, _ := strings.Cut(p, "://")
		_, name, _ := strings.Cut(host, "/")
		if plain, err := url.PathUnescape(path.Base("/" + strings.TrimRight(name, "/"))); err == nil {
			return plain
		}
	}
	if _, name, ok := OnSystem(p); ok {
		return path.Base(name)
	}
	return path.Base(strings.TrimRight(p, "/"))
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
