package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseSpec reads a spec from JSON. An unknown field is refused by name, with the nearest known
// one. It fills in no defaults, and leaves the other checks to [Spec.Validate]. Errors are of kind
// [Invalid].
func ParseSpec(data []byte) (Spec, error) {
	var s Spec
	if len(data) > MaxSpec {
		return s, problem("(spec)", fmt.Sprintf("%d bytes", len(data)), "is too large",
			fmt.Sprintf("keep it to %d bytes and pass larger data as an input file", MaxSpec))
	}
	return s, Parse(data, &s, specName, "command: [wc, -w, in.txt]")
}

// specName is what a spec is called in errors.
const specName = "a spec"

// ReadSpec reads a spec from JSON as [ParseSpec] does, and checks it with check, such as
// [Spec.Validate]. Its error is a [SpecError] that names everything that is wrong: if some fields
// cannot be read, the others are checked all the same.
func ReadSpec(data []byte, check func(*Spec) error) (Spec, error) {
	s, err := ParseSpec(data)
	if err == nil {
		return s, check(&s)
	}
	var wrong, more *SpecError
	fields, broken := ParseObject(data)
	if broken != nil || !errors.As(err, &wrong) || strings.HasPrefix(wrong.Problems[0].Path, "(") {
		return s, err
	}
	unread := map[string]bool{}
	nothing := false // it may be that what is to be run cannot be read
	for _, p := range wrong.Problems {
		field := topField(p.Path)
		unread[field] = true
		nothing = nothing || !slices.Contains(fieldNames(reflect.TypeFor[Spec]()), field) ||
			slices.Contains([]string{"kind", "command", "script"}, field)
		delete(fields, field)
	}
	rest, _ := Encode(fields) // it was decoded a moment ago
	if s, broken = ParseSpec(rest); broken != nil {
		return s, err
	}
	if s.kind() == "" && nothing {
		s.Kind = KindApp
	}
	if !errors.As(check(&s), &more) {
		return s, err
	}
	all := &SpecError{}
	all.Add(wrong.Problems...)
	for _, p := range more.Problems {
		field := topField(p.Path)
		if !unread[field] && !(nothing && p.What == "is missing" && (field == "kind" || field == "command")) {
			all.Add(p)
		}
	}
	return s, all
}

// topField returns the field of a spec in which a path begins.
func topField(path string) string {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return path
}

// Parse reads JSON into the struct that v points to. It refuses a field that the struct does not
// have, and names the nearest one. It refuses a value that does not fit its field. Errors are of
// kind [Invalid]: they call the document what, such as "a spec", and give such as an example of a
// field.
func Parse(data []byte, v any, what, such string) error {
	_, name, _ := strings.Cut(what, " ")
	whole := "(" + name + ")"
	raw, err := decode(data)
	if err != nil {
		return problem(whole, "", "is not JSON: "+err.Error(), "correct the syntax")
	}
	if _, ok := raw.(map[string]any); !ok {
		return problem(whole, short(string(bytes.TrimSpace(data))), "is not an object", "write fields such as "+such)
	}
	c := comparison{of: what}
	c.value("", raw, reflect.TypeOf(v).Elem())
	if c.found.Problems != nil {
		return &c.found
	}
	if err := json.Unmarshal(data, v); err != nil {
		return problem(whole, "", err.Error(), "correct the value")
	}
	return nil
}

// decode reads one JSON value, keeping numbers as they are written.
func decode(data []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	return v, nil
}

// reserved are the fields that will get a meaning, by where they stand. Until then nobody may use
// them.
var reserved = map[string][]string{
	"": {
		"after", "items", "recovery", "keep",
		"app", "secrets", "package", "container",
	},
	"inputs": {"extract"},
}

// A comparison finds the places where JSON does not fit the type that it is decoded into.
type comparison struct {
	of    string // what the fields are of
	found SpecError
}

// value reports unknown fields and wrong types in the value at a path.
func (c *comparison) value(at string, raw any, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if raw == nil || t == reflect.TypeFor[json.RawMessage]() || t == reflect.TypeFor[Given]() {
		return
	}
	fields, isMap := raw.(map[string]any)
	list, isList := raw.([]any)
	switch kind := t.Kind(); {
	case isMap && kind == reflect.Map:
		for _, k := range sortedKeys(fields) {
			if fields[k] == nil && t.Elem().Kind() == reflect.String {
				c.nothing(member(at, k), t.Elem())
			}
			c.value(member(at, k), fields[k], t.Elem())
		}
	case isMap && kind == reflect.Struct && t != reflect.TypeFor[time.Time]():
		c.fields(at, fields, t)
	case isList && kind == reflect.Slice:
		for i, e := range list {
			at := at + "[" + strconv.Itoa(i) + "]"
			if e == nil {
				c.nothing(at, t.Elem())
			}
			c.value(at, e, t.Elem())
		}
	default:
		text, _ := Encode(raw) // it was decoded a moment ago
		if json.Unmarshal(text, reflect.New(t).Interface()) != nil {
			c.found.Add(Problem{
				at, short(string(text)), "is not " + typeName(t),
				cmp.Or(mend(at, raw, t), "give "+typeName(t)),
			})
		}
	}
}

// nothing reports that null stands where a value is expected.
func (c *comparison) nothing(at string, t reflect.Type) {
	mend := `put it in quotes: "~", or "" for an empty text`
	if t.Kind() != reflect.String {
		mend = "remove it, or give " + typeName(t)
	}
	c.found.Add(Problem{at, "null", "is nothing, for which YAML takes ~, null and an empty place", mend})
}

func (c *comparison) fields(at string, fields map[string]any, t reflect.Type) {
	known := map[string]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f
	}
	list, _, _ := strings.Cut(at, "[")
	for _, k := range sortedKeys(fields) {
		p := member(at, k)
		switch f, ok := known[k]; {
		case ok && f.Tag.Get("zero") == "refused" && zero(fields[k]):
			c.found.Add(Problem{p, "0", "is out of range", "give more than 0, or remove it for the default"})
		case ok:
			c.value(p, fields[k], f.Type)
		case slices.Contains(reserved[list], k):
			c.found.Add(Problem{
				Path: p, What: "is reserved for a later version",
				Remedy: cmp.Or(c.unknown(at, k, fields[k], t), "remove it"),
			})
		default:
			remedy := c.unknown(at, k, fields[k], t)
			if n := nearest(k, known); n != "" && remedy == "" {
				remedy = "did you mean " + n + "?"
			}
			c.found.Add(Problem{Path: p, What: "is not a field of " + c.of, Remedy: cmp.Or(remedy, "remove it")})
		}
	}
}

// fieldNames returns the names of the fields of a struct on the wire.
func fieldNames(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		names = append(names, fieldName(f))
	}
	return names
}

// zero reports whether raw is the number 0, however it is written.
func zero(raw any) bool {
	n, ok := raw.(json.Number)
	f, err := n.Float64()
	return ok && err == nil && f == 0
}

// Nearest returns the one of known that k is most likely a slip of; empty: there is none.
func Nearest(k string, known ...string) string {
	names := map[string]bool{}
	for _, name := range known {
		names[name] = true
	}
	return nearest(k, names)
}

// maxSlip is the longest text, in bytes, that is taken for a slip of a name.
const maxSlip = 64

// nearest returns the known name with the smallest edit distance to k. It is empty if the distance
// is too large for a slip.
func nearest[V any](k string, known map[string]V) string {
	if len(k) > maxSlip {
		return ""
	}
	best, dist := "", len(k)/2+1
	for name := range known {
		if d := distance(strings.ToLower(k), strings.ToLower(name)); d < dist || d == dist && best != "" &&
			name < best {
			best, dist = name, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d++
			}
			diag = row[j+1]
			row[j+1] = min(d, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// typeName says what to write for a value of type t.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a duration such as 90s, 1h30m or 1d"
	case reflect.TypeFor[time.Time]():
		return "a time such as 2006-01-02T15:04:05Z"
	case reflect.TypeFor[Bytes]():
		return "a size such as 512M or 4GiB"
	case reflect.TypeFor[ID]():
		return "an id such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a map"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	}
	return "text"
}

// Repeated returns the path of a field that stands twice in one map; empty: there is none. Readers
// of JSON differ in which of the two they take. Text that is not JSON is not judged here.
func Repeated(text []byte) string {
	type level struct {
		at    string          // its path
		known map[string]bool // the fields of a map; nil: it is a list
		field string          // the path of the field whose value comes; "": a field comes
		items int             // of a list
	}
	var around []level // the lists and maps around the next token
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		sign, _ := token.(json.Delim)
		if sign == '}' || sign == ']' {
			around = around[:len(around)-1]
			continue
		}
		at := ""
		if n := len(around); n > 0 {
			in := &around[n-1]
			switch {
			case in.known == nil:
				if at = in.at; sign != 0 {
					at += "[" + strconv.Itoa(in.items) + "]"
				}
				in.items++
			case in.field == "":
				name := token.(string)
				in.field = member(in.at, name)
				if in.known[name] {
					return in.field
				}
				in.known[name] = true
				continue
			default:
				at, in.field = in.field, ""
			}
		}
		switch sign {
		case '{':
			around = append(around, level{at: at, known: map[string]bool{}})
		case '[':
			around = append(around, level{at: at})
		}
	}
}
