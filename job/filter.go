package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Filter chooses the jobs for which all its terms hold. The zero Filter chooses all jobs that are
// not hidden.
//
// It is written as terms with spaces between them, such as
//
//	state=RUNNING,PENDING owner=ada label.project=x created>24h
//
// A term is a field, an operator and values with commas between them. The fields are those of
// [FilterFields], label.NAME, and args.NAME for tasks. A value that holds a space, a comma or a
// quote stands in double quotes, in which \" stands for a quote and \\ for a backslash.
// [Filter.Window] says how far back a filter looks: mostly a week.
//
//	=        the field has one of the values      !=  it has none of them
//	~        it fits one of the patterns, in which * stands for any characters and ? for one
//	< <= > >= for times and numbers; a time is RFC 3339, a date, or a duration: so long ago
type Filter []Term

// A Term is one condition of a [Filter].
type Term struct {
	// Field is one of [FilterFields], or [LabelField] and a label's key, or [ArgsField] and an
	// argument.
	Field  string
	Op     Op
	Values []string // a time is RFC 3339 in UTC

	// From is for a field of args: from then on the kind of the filter's jobs has an index of it. The
	// zero time: there is none. See [store.New.Index].
	From time.Time
}

// An Op is the operator of a [Term].
type Op string

// The operators.
const (
	Is      Op = "="
	IsNot   Op = "!="
	Like    Op = "~"
	Less    Op = "<"
	AtMost  Op = "<="
	More    Op = ">"
	AtLeast Op = ">="
)

// FilterWindow is how far back a filter looks if some of its terms are not indexed and it has no
// created> of its own.
const FilterWindow = 7 * 24 * time.Hour

// Bounds of a filter as text.
const (
	MaxFilter = 4096 // bytes
	maxTerms  = 32
	maxValues = 100 // of one term
)

// LabelField begins the field of a label: the label project is the field label.project.
const LabelField = "label."

// ArgsField begins the field of an argument of tasks: the argument image is the field args.image,
// and a dot leads into it. See [Term.ArgsKeys].
const ArgsField = "args."

// A FilterField documents a field of filters.
type FilterField struct {
	Name    string
	Type    FieldType
	Indexed bool // a term with = finds its jobs without looking at others
	Doc     string
}

// A FieldType says which values and operators a field takes.
type FieldType string

// The types. Words and ids take = != ~, times and numbers < <= > >= and numbers = != too, the
// others = and !=.
const (
	FieldWord    FieldType = "word"
	FieldState   FieldType = "state"
	FieldCustody FieldType = "custody"
	FieldID      FieldType = "id"
	FieldGroup   FieldType = "group"
	FieldNumber  FieldType = "number"
	FieldTime    FieldType = "time"
	FieldFlag    FieldType = "flag" // true or false
	FieldJSON    FieldType = "json" // a JSON value, or a text
)

// FilterFields lists the fields in the order of the documentation. Each label is a field, too, and
// of tasks each argument.
var FilterFields = []FilterField{
	{"state", FieldState, true, "where it stands, such as RUNNING"},
	{"custody", FieldCustody, true, "who holds it; custody!=none: it has not ended"},
	{"kind", FieldWord, true, "app for programs, or the kind of task"},
	{"app", FieldWord, true, "the registered app that it runs"},
	{"owner", FieldWord, true, "whose it is"},
	{"queue", FieldWord, true, "where it waits, or waited"},
	{"name", FieldWord, true, "its name"},
	{"id", FieldID, true, "its id"},
	{"external_id", FieldWord, true, "the submitter's own name for it"},
	{"created", FieldTime, true, "when it was submitted"},
	{"ended", FieldTime, false, "when it ended; jobs that have not are not chosen"},
	{"since", FieldTime, false, "since when it has been in its custody; of one that waits in a line: since when " +
		"it has waited for its turns"},
	{"code", FieldWord, false, "why it ended, or what blocks it"},
	{"group", FieldGroup, true, "the key of the group in which it is blocked now, as pawl recovery list prints it"},
	{"message", FieldWord, false, "the same in words"},
	{"machine", FieldWord, false, "the machine to which it belongs"},
	{"priority", FieldNumber, false, "0 (first) to 9"},
	{"attempt", FieldNumber, false, "the number of its attempt, from 1"},
	{"wish", FieldWord, false, "cancel or pause, while that is asked for"},
	{"hidden", FieldFlag, false, "whether it is hidden; jobs that are hidden are chosen by hidden=true only"},
}

// Where returns a filter of one term, such as Where("kind", Is, "mail", "sms"). It panics if there
// is no such field, or if a value does not have its type: that is a defect of the caller.
func Where(field string, op Op, values ...string) Filter {
	return Filter(nil).And(field, op, values...)
}

// WhereState returns the filter for jobs in one of the states. Without states it chooses all jobs.
func WhereState(states ...State) Filter {
	if len(states) == 0 {
		return nil
	}
	return Where("state", Is, texts(states)...)
}

// Unended returns the filter for jobs that have not ended.
func Unended() Filter { return Where("custody", IsNot, string(None)) }

// And returns f with one more term. It panics as [Where] does.
func (f Filter) And(field string, op Op, values ...string) Filter {
	t := Term{Field: field, Op: op, Values: values}
	if err := t.check(time.Time{}); err != nil {
		panic(err)
	}
	return append(slices.Clip(f), t)
}

// ParseFilter reads a filter. Durations count back from now. Errors are of kind [Invalid] and name
// the term.
func ParseFilter(text string, now time.Time) (Filter, error) {
	if len(text) > MaxFilter {
		return nil, problem("filter", fmt.Sprintf("%d bytes", len(text)), "is too long",
			fmt.Sprintf("keep it to %d bytes", MaxFilter))
	}
	var f Filter
	rest := strings.TrimLeft(text, " ")
	for rest != "" {
		if len(f) == maxTerms {
			return nil, problem("filter", "", "has too many terms", fmt.Sprintf("keep to %d", maxTerms))
		}
		t, left, err := parseTerm(rest)
		if err != nil {
			return nil, err
		}
		if err := t.check(now); err != nil {
			return nil, err
		}
		f, rest = append(f, t), strings.TrimLeft(left, " ")
	}
	return f, nil
}

// parseTerm reads the term with which text begins.
func parseTerm(text string) (t Term, rest string, err error) {
	end := strings.IndexAny(text, "=!~<> ")
	if end <= 0 || text[end] == ' ' {
		word, _, _ := strings.Cut(text, " ")
		return t, "", problem("filter", word, "is not a term", "write field=value, such as state=RUNNING")
	}
	t.Field, rest = text[:end], text[end:]
	for _, op := range []Op{IsNot, AtMost, AtLeast, Is, Like, Less, More} { // the longer ones first
		if strings.HasPrefix(rest, string(op)) {
			t.Op = op
			break
		}
	}
	if t.Op == "" {
		return t, "", problem("filter", t.Field+rest[:1], "has no operator", "use one of = != ~ < <= > >=")
	}
	rest = rest[len(t.Op):]
	for {
		var v string
		if v, rest, err = parseValue(t.Field, rest); err != nil {
			return t, "", err
		}
		if t.Values = append(t.Values, v); len(t.Values) > maxValues {
			return t, "", problem("filter", t.Field, "has too many values", fmt.Sprintf("keep to %d", maxValues))
		}
		if !strings.HasPrefix(rest, ",") {
			break
		}
		rest = rest[1:]
	}
	if rest != "" && rest[0] != ' ' {
		return t, "", problem("filter", t.Field, "has something behind a closing quote", "put a space or a comma there")
	}
	return t, rest, nil
}

// parseValue reads the value with which text begins.
func parseValue(field, text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, " ,\"")
		if end < 0 {
			end = len(text)
		}
		if end < len(text) && text[end] == '"' {
			return "", "", problem("filter", field, "has a quote inside a value",
				`put the whole value in quotes, and write \" for the quote`)
		}
		return text[:end], text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], nil
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", problem("filter", field, "has a quote that is not closed", `add " at the end of the value`)
}

// check reports what is wrong with t. It also writes the values of t in the form in which they are
// compared.
func (t *Term) check(now time.Time) error {
	typ, err := t.fieldType()
	if err != nil {
		return err
	}
	var ops []Op
	switch typ {
	case FieldWord, FieldID:
		ops = []Op{Is, IsNot, Like}
	case FieldNumber:
		ops = []Op{Is, IsNot, Less, AtMost, More, AtLeast}
	case FieldTime:
		ops = []Op{Less, AtMost, More, AtLeast}
	default:
		ops = []Op{Is, IsNot}
	}
	if !slices.Contains(ops, t.Op) {
		return problem("filter", t.Field+string(t.Op), "is not an operator of this field", "use one of "+join(ops))
	}
	if len(t.Values) == 0 || t.ordered() && len(t.Values) > 1 {
		return problem("filter", t.Field+string(t.Op), "has not one value", "give one value")
	}
	t.Values = slices.Clone(t.Values)
	for i, v := range t.Values {
		if t.Values[i], err = t.value(typ, v, now); err != nil {
			return err
		}
	}
	return nil
}

func (t *Term) ordered() bool {
	return t.Op == Less || t.Op == AtMost || t.Op == More || t.Op == AtLeast
}

func (t *Term) fieldType() (FieldType, error) {
	if key, ok := strings.CutPrefix(t.Field, LabelField); ok {
		if !labelRE.MatchString(key) {
			return "", problem("filter", t.Field, "is not a label's key",
				"use 1 to 63 letters, digits, dots, dashes, underscores and slashes")
		}
		return FieldWord, nil
	}
	if field, ok := t.Arg(); ok {
		return FieldJSON, CheckArg("filter", field)
	}
	names := make([]string, len(FilterFields))
	for i, f := range FilterFields {
		if f.Name == t.Field {
			return f.Type, nil
		}
		names[i] = f.Name
	}
	remedy := "use one of " + strings.Join(names, ", ") + ", label.KEY or args.NAME"
	if near := Nearest(t.Field, names...); near != "" {
		remedy = "did you mean " + near + "?"
	}
	return "", problem("filter", t.Field, "is not a field", remedy)
}

// value returns v as it is compared, for a field of type typ.
func (t *Term) value(typ FieldType, v string, now time.Time) (string, error) {
	wrong := func(remedy string) (string, error) {
		return "", problem("filter", t.Field+string(t.Op)+v, "is not a value of this field", remedy)
	}
	if !utf8.ValidString(v) || strings.Contains(v, "\x00") {
		return wrong("give text in UTF-8")
	}
	switch typ {
	case FieldState:
		if s := State(strings.ToUpper(v)); slices.Contains(States, s) {
			return string(s), nil
		}
		return wrong("give one of " + join(States))
	case FieldCustody:
		if c := Custody(strings.ToLower(v)); slices.Contains(Custodies, c) {
			return string(c), nil
		}
		return wrong("give one of " + join(Custodies))
	case FieldID:
		if t.Op == Like {
			return strings.ToLower(v), nil
		}
		id, err := ParseID(v)
		if err != nil {
			return wrong("give an id of 36 characters, as pawl list prints them")
		}
		return id.String(), nil
	case FieldGroup:
		if v = strings.ToLower(v); !IsGroup(v) {
			return wrong("give the key of a group, 24 hexadecimal digits, as pawl recovery list prints them")
		}
	case FieldNumber:
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return wrong("give a whole number")
		}
		return strconv.FormatInt(n, 10), nil
	case FieldFlag:
		if v != "true" && v != "false" {
			return wrong("give true or false")
		}
	case FieldTime:
		at, ok := parseInstant(v, now)
		if at = at.UTC(); !ok || at.Year() < 0 || at.Year() > 9999 { // RFC 3339 has no others
			return wrong("give a time such as 2026-01-31T08:00:00Z, a date, or how long ago, such as 90m or 7d")
		}
		return at.Format(time.RFC3339Nano), nil
	}
	return v, nil
}

// parseInstant reads a time, a date, or how long before now.
func parseInstant(s string, now time.Time) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, true
		}
	}
	d, err := ParseDuration(s)
	return now.Add(-d), err == nil && d >= 0
}

// Time returns the value of a term whose field is of type [FieldTime].
func (t *Term) Time() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, t.Values[0]) // check wrote it so
	return at
}

// Label returns the key of the label that t is about. ok is false if t is about another field.
func (t *Term) Label() (key string, ok bool) { return strings.CutPrefix(t.Field, LabelField) }

// Indexed reports whether an index finds the jobs of t, without a look at others.
func (t *Term) Indexed() bool {
	switch t.Field {
	case "created":
		return true
	case "state", "custody": // each has few values, so != is a list of the others
		return true
	}
	if _, label := t.Label(); label {
		return t.Op == Is
	}
	if _, arg := t.Arg(); arg {
		return false
	}
	i := slices.IndexFunc(FilterFields, func(f FilterField) bool { return f.Name == t.Field })
	return t.Op == Is && FilterFields[i].Indexed
}

// Window returns the time of creation from which on f looks at jobs. The zero time stands for all
// jobs: f looks at all if every term is indexed, or if it names jobs by id or external id.
// Otherwise f looks back to its own created>, or for [FilterWindow].
func (f Filter) Window(now time.Time) (since time.Time) {
	indexed, bounded := true, false
	for i := range f {
		t := &f[i]
		switch {
		case t.Op == Is && (t.Field == "id" || t.Field == "external_id"):
			return time.Time{}
		case t.Field == "created" && (t.Op == More || t.Op == AtLeast):
			bounded = true
			if at := t.Time(); at.After(since) {
				since = at
			}
		case t.Field == "hidden":
		default:
			indexed = indexed && t.Indexed()
		}
	}
	if !indexed && !bounded {
		return now.Add(-FilterWindow)
	}
	return since
}

// Hidden reports whether f has a term about hidden jobs. A filter without one chooses none of them.
func (f Filter) Hidden() bool {
	return slices.ContainsFunc(f, func(t Term) bool { return t.Field == "hidden" })
}

// Match reports whether f chooses j.
func (f Filter) Match(j *Job) bool {
	if j.Hidden && !f.Hidden() {
		return false
	}
	return !slices.ContainsFunc(f, func(t Term) bool { return !t.match(j) })
}

func (t *Term) match(j *Job) bool {
	if key, ok := t.Label(); ok {
		v, there := j.Labels[key]
		if !there {
			return t.Op == IsNot
		}
		return t.word(v)
	}
	if read := inWords[t.Field]; read != nil {
		return t.word(read(j))
	}
	switch t.Field {
	case "created":
		return t.instant(j.Created)
	case "ended":
		return t.instant(j.Ended)
	case "since":
		return t.instant(j.Since)
	case "priority":
		return t.number(j.Priority)
	case "attempt":
		return t.number(j.Attempt)
	}
	return t.args(j)
}

// inWords reads the fields of jobs that are compared as text.
var inWords = map[string]func(j *Job) string{
	"state":       func(j *Job) string { return string(j.State) },
	"custody":     func(j *Job) string { return string(j.Custody) },
	"kind":        func(j *Job) string { return j.Kind },
	"app":         func(j *Job) string { return j.App },
	"owner":       func(j *Job) string { return j.Owner },
	"queue":       func(j *Job) string { return j.Queue },
	"name":        func(j *Job) string { return j.Name },
	"id":          func(j *Job) string { return j.ID.String() },
	"external_id": func(j *Job) string { return j.ExternalID },
	"code":        func(j *Job) string { return string(j.Code) },
	"group":       func(j *Job) string { return j.Group },
	"message":     func(j *Job) string { return j.Message },
	"machine":     func(j *Job) string { return j.Machine },
	"wish":        func(j *Job) string { return string(j.Wish) },
	"hidden":      func(j *Job) string { return strconv.FormatBool(j.Hidden) },
}

func (t *Term) word(v string) bool {
	switch t.Op {
	case Is:
		return slices.Contains(t.Values, v)
	case IsNot:
		return !slices.Contains(t.Values, v)
	}
	return slices.ContainsFunc(t.Values, func(pattern string) bool { return like(pattern, v) })
}

func (t *Term) number(v int) bool {
	if t.Op == Is || t.Op == IsNot {
		return t.word(strconv.Itoa(v))
	}
	n, _ := strconv.Atoi(t.Values[0]) // check has read it
	return t.holds(cmp.Compare(v, n))
}

func (t *Term) instant(v time.Time) bool { return !v.IsZero() && t.holds(v.Compare(t.Time())) }

// holds reports whether the order of a value to that of t is the one asked for.
func (t *Term) holds(order int) bool {
	switch t.Op {
	case Less:
		return order < 0
	case AtMost:
		return order <= 0
	case More:
		return order > 0
	}
	return order >= 0
}

// like reports whether all of text fits a pattern with * and ?.
func like(pattern, text string) bool {
	star, behind := "", "" // what follows the newest *, and where that was tried last
	open := false          // there was one
	for text != "" {
		sign, width := utf8.DecodeRuneInString(pattern)
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case sign == '*' && width > 0:
			pattern = pattern[width:]
			star, behind, open = pattern, text, true
		case width > 0 && (sign == '?' || sign == r && pattern[:width] == text[:n]):
			pattern, text = pattern[width:], text[n:]
		case open:
			_, n = utf8.DecodeRuneInString(behind)
			behind = behind[n:]
			pattern, text = star, behind
		default:
			return false
		}
	}
	return strings.Trim(pattern, "*") == ""
}

// String writes f in the form that [ParseFilter] reads.
func (f Filter) String() string {
	terms := make([]string, len(f))
	for i, t := range f {
		values := make([]string, len(t.Values))
		for k, v := range t.Values {
			if v == "" || strings.ContainsAny(v, " ,\"\\") {
				v = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
			}
			values[k] = v
		}
		terms[i] = t.Field + string(t.Op) + strings.Join(values, ",")
	}
	return strings.Join(terms, " ")
}

func join[S ~string](list []S) string {
	return strings.Join(texts(list), ", ")
}

func texts[S ~string](list []S) []string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return words
}
