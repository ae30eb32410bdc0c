package job

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Limit says how many jobs of a tenant may have a turn of a key at once. A job has its turn while
// it runs: a task in the hands of a worker, a program from its launch until its end is known.
//
// A limit with Per is a rate. It says how often something may happen, not how many jobs do it at
// once.
//
// The key "system/lab" has one limit. "system/lab/user/*" stands for a family of keys: each key
// with another last part is under a limit of its own, unless one is set for exactly that key.
type Limit struct {
	// The key of the turns. With * as its last part it stands for a family of keys.
	Key string `json:"key" example:"system/local"`

	// How many jobs may have a turn at once; 0 lets none go. For a rate: how many go within per.
	Most int `json:"most" minimum:"0" maximum:"1000000" example:"50"`

	// How many programs may be made ready before their turn comes; twice most by default.
	Ahead int `json:"ahead,omitempty" minimum:"0" maximum:"1000000"`

	// The shares of owners whose jobs wait side by side: an owner with 2 gets twice as many turns
	// as one with 1. 1 by default, 1000 at most.
	Weights map[string]int `json:"weights,omitempty" example:"{\"ada\":2}"`

	// Makes the limit a rate: within any time of this length no more than most go. Only for keys
	// that begin with starts, launches, dials or releases.
	Per Duration `json:"per,omitempty" example:"2s"`
}

// Bounds of limits.
const (
	MaxTurns     = 1_000_000 // the largest Most and Ahead
	MaxWeight    = 1000      // the largest weight
	MaxWeights   = 1000      // owners with a weight
	MaxLimitKey  = 400       // bytes of a key
	MaxJobLimits = 16        // keys that a spec names
)

// The first parts of the keys that every job has by itself; see [Job.Keys].
const (
	limitTenant = "tenant"
	limitUser   = "user"
	limitKind   = "kind"
	limitSystem = "system"
)

// The first parts of the keys that Pawl makes.
const (
	aheadOf      = "ahead/"  // places of programs that are made ready before their turn
	whileRunning = "unique/" // equal jobs never run at once
	inOrder      = "order/"  // one job goes after the other
)

// ownKeys are the first parts of keys that no limit and no spec may name.
var ownKeys = []string{aheadOf, whileRunning, inOrder}

// Keys returns the keys that j has by itself. Limits that are set for them hold for j. They are
// those of its tenant, its owner and its kind. A program also has those of its system and its
// partition there, for all and for its owner: "system/lab", "system/lab/user/ada". partition may be
// empty.
func (j *Job) Keys(system, partition string) []string {
	owner := "/" + limitUser + "/" + part(j.Owner)
	keys := []string{limitTenant, owner[1:], limitKind + "/" + j.Kind}
	if !j.Program() {
		return keys
	}
	on := SystemKey(system)
	keys = append(keys, on, on+owner)
	if partition != "" {
		in := PartitionKey(system, partition)
		keys = append(keys, in, in+owner)
	}
	return keys
}

// PartitionKey returns the key of the turns in a partition of a system.
func PartitionKey(system, name string) string { return SystemKey(system) + "/partition/" + part(name) }

// SystemKey returns the key of the turns on a system.
func SystemKey(system string) string { return limitSystem + "/" + system }

var (
	parts = strings.NewReplacer("%", "%25", "/", "%2F", "*", "%2A")
	names = strings.NewReplacer("%25", "%", "%2F", "/", "%2A", "*")
)

// part returns a name as a part of a key.
func part(name string) string { return parts.Replace(name) }

// Family returns the key of the family of key: "system/lab/user/*" for "system/lab/user/ada". It is
// empty for a key of one part.
func Family(key string) string {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return ""
	}
	return key[:i] + "/*"
}

// LimitOf returns the key whose limit decides on the turns of key. It differs from key for the keys
// of [AheadOf].
func LimitOf(key string) string { return strings.TrimPrefix(key, aheadOf) }

// AheadOf returns the key of the places in which programs are made ready before they have a turn of
// key.
func AheadOf(key string) string { return aheadOf + key }

// Ordered reports whether key is that of an order: the jobs in its line go by rank, for all owners
// together.
func Ordered(key string) bool { return strings.HasPrefix(key, inOrder) }

// Sole reports whether key always has exactly one turn.
func Sole(key string) bool { return strings.HasPrefix(key, whileRunning) || Ordered(key) }

// Implied returns the limit of a key that always has one turn. It returns nil for any other key.
func Implied(key string) *Limit {
	if key = LimitOf(key); Sole(key) {
		return &Limit{Key: key, Most: 1}
	}
	return nil
}

// Places returns how many jobs may have turns of key, which is under l. For a key of [AheadOf] they
// are Ahead, twice Most by default.
func (l *Limit) Places(key string) int {
	switch {
	case !strings.HasPrefix(key, aheadOf):
		return l.Most
	case l.Ahead > 0:
		return l.Ahead
	}
	return 2 * l.Most
}

// Shut returns l as it holds for key while the line of key is closed and has only so many places. l
// may be nil: no limit.
func (l *Limit) Shut(key string, places int) *Limit {
	if l == nil {
		return &Limit{Key: LimitOf(key), Most: places}
	}
	shut := *l
	shut.Most, shut.Ahead = min(l.Most, places), min(l.Places(aheadOf+LimitOf(key)), 2*places)
	return &shut
}

// Weight returns the share of an owner, 1 or more.
func (l *Limit) Weight(owner string) int { return max(1, l.Weights[owner]) }

// Regular expressions for the keys of limits, for Go and for SQL: what they look like, and those
// that no spec may name.
const (
	LimitKeyPattern = `^[A-Za-z0-9][A-Za-z0-9._:@%+-]*(/[A-Za-z0-9._:@%+-][A-Za-z0-9._:@%+ -]*)*$`
	OwnKeyPattern   = "^(" + limitTenant + "|" + limitUser + "|" + limitKind + "|" + limitSystem + "|ahead|unique|order|" +
		RateStarts + "|" + RateLaunches + "|" + RateDials + "|" + RateReleases + ")(/|$)"
)

var limitKeyRE = regexp.MustCompile(LimitKeyPattern)

// Validate reports everything that is wrong with l. Its error is a [SpecError].
func (l *Limit) Validate() error {
	var v validation
	key := l.Key
	if f := strings.TrimSuffix(key, "/*"); f != key && f != "" {
		key = f
	}
	if BuiltIn(key) {
		v.builtIn(l.Key)
	} else {
		v.limitKey("key", key)
	}
	if first, _, _ := strings.Cut(key, "/"); slices.Contains(ownKeys, first+"/") {
		v.add("key", l.Key, "begins with "+first, "set a limit for another key: those of this kind are Pawl's own")
	}
	v.rate(l, key)
	for field, n := range map[string]int{"most": l.Most, "ahead": l.Ahead} {
		if n < 0 || n > MaxTurns {
			v.add(field, fmt.Sprint(n), "is out of range", fmt.Sprintf("give 0 to %d", MaxTurns))
		}
	}
	if len(l.Weights) > MaxWeights {
		v.add("weights", fmt.Sprintf("%d weights", len(l.Weights)), "are too many",
			fmt.Sprintf("keep to %d", MaxWeights))
	}
	for _, owner := range sortedKeys(l.Weights) {
		if w := l.Weights[owner]; w < 1 || w > MaxWeight {
			v.add(member("weights", owner), fmt.Sprint(w), "is out of range", fmt.Sprintf("give 1 to %d", MaxWeight))
		}
	}
	return v.err()
}

// builtInForms are the forms of the keys of [Job.Keys]. NAME is a name as Pawl takes it; TEXT is
// any text, as [part] writes it.
var builtInForms = []string{
	"tenant", "user/TEXT", "kind/NAME", "system/NAME", "system/NAME/user/TEXT", "system/NAME/partition/TEXT",
	"system/NAME/partition/TEXT/user/TEXT",
}

// builtIn checks a key that begins as those of [Job.Keys] do: a limit for any other such key would
// hold for no job.
func (v *validation) builtIn(key string) {
	given := strings.Split(key, "/")
	var like []string
	for _, f := range builtInForms {
		form := strings.Split(f, "/")
		if form[0] == given[0] {
			like = append(like, strings.ReplaceAll(f, "TEXT", "NAME"))
		}
		if len(form) == len(given) && fits(form, given) {
			return
		}
	}
	remedy := "give " + strings.Join(like, " or ")
	if given[0] != limitTenant {
		remedy += "; the last NAME may be *, and % / * in a name are written %25 %2F %2A"
	}
	v.add("key", key, "is not a key that jobs can have", remedy)
}

// fits reports whether the parts of a key are as a form says.
func fits(form, given []string) bool {
	for i, p := range given {
		var of validation
		switch form[i] {
		default:
			if p != form[i] {
				return false
			}
			continue
		case "NAME":
			of.name("", p, 128)
		case "TEXT":
			name := names.Replace(p)
			if of.text("", name, 128); part(name) != p {
				of.add("", p, "is not written as a part", "")
			}
		}
		family := p == "*" && i == len(given)-1
		if !family && (p == "" || of.err() != nil) {
			return false
		}
	}
	return true
}

func (v *validation) limitKey(path, key string) {
	switch {
	case key == "":
		v.add(path, "", "is missing", "give a key")
	case len(key) > MaxLimitKey:
		v.add(path, key, "is too long", fmt.Sprintf("keep it to %d bytes", MaxLimitKey))
	case !limitKeyRE.MatchString(key):
		v.add(path, key, "is not a key",
			"use letters, digits and . _ : @ % + -, in parts that are separated by slashes")
	}
}

// limits checks the keys that a spec names.
func (v *validation) limits(s *Spec) {
	keys := s.Limits
	v.many("limits", len(keys), MaxJobLimits)
	for i, key := range keys[:min(len(keys), MaxJobLimits)] {
		path := fmt.Sprintf("limits[%d]", i)
		v.limitKey(path, fieldRE.ReplaceAllString(key, "x"))
		first, _, _ := strings.Cut(key, "/")
		switch {
		case fieldRE.MatchString(first):
			v.add(path, key, "begins with a field of args", "put a part before it, as in account/{account}")
		case fieldRE.MatchString(key) && s.kind() == KindApp:
			v.add(path, key, "reads args, which a program does not have", "give a key without braces")
		case BuiltIn(key):
			v.add(path, key, "begins with "+first,
				"name another key: each job already has the keys of its tenant, user, kind and system")
		case slices.Contains(ownKeys, first+"/"):
			v.add(path, key, "begins with "+first, "name another key: those of this kind are Pawl's own")
		case Rated(key):
			v.add(path, key, "begins with "+first,
				"name another key: each program already has the rates of its system")
		}
		if slices.Contains(keys[:i], key) {
			v.add(path, key, "is given twice", "name it once")
		}
	}
	if len(s.Args) > 0 {
		v.limitKeys(s)
	}
}

// fieldRE matches a field of args in a key of a limit: {account}, or {user.id}.
var fieldRE = regexp.MustCompile(`\{([^{}/]+)\}`)

// LimitFields returns the fields of args in a key of a limit: account in "account/{account}".
func LimitFields(key string) (fields []string) {
	for _, m := range fieldRE.FindAllStringSubmatch(key, -1) {
		fields = append(fields, m[1])
	}
	return fields
}

// LimitKeys returns the keys of limits that the spec names, with the values of its args in place of
// fields: "account/4711" for "account/{account}". Its error is a [SpecError].
func (s *Spec) LimitKeys() ([]string, error) {
	var v validation
	return v.limitKeys(s), v.err()
}

func (v *validation) limitKeys(s *Spec) (keys []string) {
	if !slices.ContainsFunc(s.Limits, fieldRE.MatchString) {
		return slices.Clone(s.Limits)
	}
	args, _ := decode(s.Args) // what is wrong with args is said elsewhere
	for i, key := range s.Limits {
		path, named := fmt.Sprintf("limits[%d]", i), key
		for _, field := range LimitFields(named) {
			word := limitWord(within(args, strings.Split(field, ".")))
			if word == "" {
				v.add(path, named, "finds no word in the field "+field+" of args",
					"give a text, a whole number, true or false there")
			}
			key = strings.ReplaceAll(key, "{"+field+"}", word)
		}
		if len(key) > MaxLimitKey {
			v.add(path, named, "is too long with the values of args", fmt.Sprintf("keep it to %d bytes", MaxLimitKey))
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// limitWord returns a value of args as a part of a key; "": it cannot be one.
func limitWord(v any) string {
	text := ""
	switch v := v.(type) {
	case string:
		text = v
	case bool:
		text = strconv.FormatBool(v)
	case json.Number:
		digits, power, _ := strings.Cut(plainNumber(v.String()).String(), "e")
		zeros, _ := strconv.Atoi(power)
		if zeros < 0 || zeros > MaxLimitKey { // a fraction, or too long
			return ""
		}
		text = digits + strings.Repeat("0", zeros)
	}
	return keyPart.Replace(url.QueryEscape(text))
}

// keyPart makes of a part of a URL what keys of limits have: the space is not a plus, and an
// address can be read.
var keyPart = strings.NewReplacer("+", "%20", "~", "%7E", "%40", "@", "%3A", ":")
