package jobfile

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// Topics of pawl explain beside the kinds of document.
const (
	topicFilter = "filter"
	topicCodes  = "codes"
)

func explainCommand() *cobra.Command {
	topics := append(api.Kinds(), topicFilter, topicCodes)
	return &cobra.Command{
		Use:   "explain TOPIC[.FIELD...] | FIELD | CODE",
		Short: "Explain fields of job files and documents, filters and codes",
		Long: `Explain prints what there is to know of a job, a queue, a system, a kind of task, a schedule, a policy (how
blocked jobs wait) or a retention (for how long jobs are kept): its fields, or one of them, with what it takes; of filters:
their fields and operators; or of codes: why a job ended, or what blocks it, and what to do. A field
of a job goes without its topic, as messages name it; so does one code, and an exit code of pawl. It
asks nobody. The topics are ` + strings.Join(topics, ", ") + ".",
		Example: `  pawl explain job
  pawl explain job.inputs.from
  pawl explain archive.include
  pawl explain INPUT_MISSING
  pawl explain 4
  pawl explain filter
  pawl explain codes`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, _ []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeTopic(topics, part), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := indexRE.ReplaceAllString(args[0], "")
			topic, path, _ := strings.Cut(name, ".")
			out := cmd.OutOrStdout()
			switch {
			case topic == topicFilter && path == "":
				return explainFilter(out)
			case topic == topicCodes && path == "":
				explainCodes(out)
				return nil
			case !slices.Contains(api.Kinds(), topic):
				if explainCode(out, args[0]) {
					return nil
				}
				kind := ofKind(topic)
				if kind == "" {
					return unexplained(args[0], topics)
				}
				topic, path = kind, name
			}
			s, err := schemaAt(topic, path)
			if err != nil {
				return err
			}
			return s.explain(out, name)
		},
	}
}

// indexRE matches the place of an item in a list, as in inputs[2].from.
var indexRE = regexp.MustCompile(`\[[0-9]*\]`)

// ofKind returns the kind of document that has a field, a job first; "": none has it.
func ofKind(field string) string {
	for _, kind := range append([]string{"job"}, api.Kinds()...) {
		if s, err := schemaAt(kind, ""); err == nil && s.Properties[field] != nil {
			return kind
		}
	}
	return ""
}

// explainCode prints what a code of a job means, or an exit code of this program. It reports
// whether there is one of that name.
func explainCode(out io.Writer, name string) bool {
	for i := range job.Codes {
		if c := &job.Codes[i]; string(c.Code) == strings.ToUpper(name) {
			explainOne(out, c)
			return true
		}
	}
	for _, c := range term.ExitCodes {
		if strconv.Itoa(c.Code) == name {
			fmt.Fprintf(out, "exit code %d: %s\n", c.Code, c.Meaning)
			return true
		}
	}
	return false
}

// unexplained says that there is nothing of a name, and what may have been meant.
func unexplained(name string, topics []string) error {
	known := slices.Concat(topics, specFields())
	for i := range job.Codes {
		known = append(known, string(job.Codes[i].Code))
	}
	first, _, _ := strings.Cut(name, ".")
	remedy := "give one of " + strings.Join(topics, ", ") + ", a field of a job, or a code"
	if near := job.Nearest(first, known...); near != "" {
		remedy = "did you mean " + near + strings.TrimPrefix(name, first) + "?"
	}
	return term.Usagef("there is nothing to explain about %q: %s", name, remedy)
}

// A schema is what a JSON Schema says, as far as people want to know.
type schema struct {
	Ref         string             `json:"$ref"`
	Defs        map[string]*schema `json:"$defs"`
	Type        any                `json:"type"` // a name, or a list of them
	Title       string             `json:"title"`
	Description string             `json:"description"`
	Enum        []any              `json:"enum"`
	Default     any                `json:"default"`
	Examples    []any              `json:"examples"`
	Pattern     string             `json:"pattern"`
	Minimum     *json.Number       `json:"minimum"`
	Maximum     *json.Number       `json:"maximum"`
	MinLength   *int               `json:"minLength"`
	MaxLength   *int               `json:"maxLength"`
	MaxItems    *int               `json:"maxItems"`
	MaxProps    *int               `json:"maxProperties"`
	Items       *schema            `json:"items"`
	Properties  map[string]*schema `json:"properties"`
	Additional  json.RawMessage    `json:"additionalProperties"` // false, or the schema of what a map holds
	Names       *schema            `json:"propertyNames"`        // what the keys of a map are; nil: anything
	Required    []string           `json:"required"`

	defs map[string]*schema // of the whole document
}

// schemaAt returns the schema of a kind of document, or of a field in it. In lists and maps the
// path goes on with what they hold.
func schemaAt(kind, path string) (*schema, error) {
	text, err := api.Schema(kind)
	if err != nil {
		return nil, err
	}
	top := &schema{}
	if err := json.Unmarshal(text, top); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", kind, err)
	}
	top.defs = top.Defs
	s, at := top, kind
	if path == "" {
		return s, nil
	}
	for name := range strings.SplitSeq(path, ".") {
		name = strings.TrimSuffix(name, "[]")
		inside := s.held()
		next := inside.Properties[name]
		if next == nil && len(inside.Properties) == 0 && inside.Names.takes(name) {
			next = inside.values() // of any key
		}
		if next == nil {
			return nil, noField(at, name, inside)
		}
		s, at = inside.of(next), at+"."+name
	}
	return s, nil
}

func noField(at, name string, s *schema) error {
	fields := s.fields()
	remedy := "it has no fields"
	switch {
	case len(fields) > 0:
		remedy = "give one of " + strings.Join(fields, ", ")
	case s.Names != nil:
		remedy = "its keys have the pattern " + s.Names.Pattern
	}
	if near := job.Nearest(name, fields...); near != "" {
		remedy = "did you mean " + near + "?"
	}
	return term.Usagef("%s has no field %q: %s", at, name, remedy)
}

// of returns a schema that stands within s, with what it refers to.
func (s *schema) of(in *schema) *schema {
	out := *in
	if target := s.defs[strings.TrimPrefix(in.Ref, "#/$defs/")]; in.Ref != "" && target != nil {
		out = *target
		if in.Description != "" {
			out.Description = in.Description // what it is for here says more
		}
		if in.Default != nil {
			out.Default = in.Default
		}
		if in.Examples != nil {
			out.Examples = in.Examples
		}
	}
	out.defs = s.defs
	return &out
}

// held is what fields are looked for in: of a list that is what it holds.
func (s *schema) held() *schema {
	for s.Items != nil {
		s = s.of(s.Items)
	}
	return s
}

// fields are the names of what stands within s, where they are known.
func (s *schema) fields() []string {
	if s.Names != nil && s.Names.Enum != nil {
		return written(s.Names.Enum)
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// takes reports whether a value is one of s; nil takes all.
func (s *schema) takes(value string) bool {
	if s == nil {
		return true
	}
	if s.Enum != nil {
		return slices.Contains(written(s.Enum), value)
	}
	fits, err := regexp.MatchString(s.Pattern, value)
	return err != nil || fits // a pattern that is not one of Go's is for others to check
}

// values is the schema of the values of a map; nil: it is none.
func (s *schema) values() *schema {
	var v *schema
	if len(s.Additional) == 0 || json.Unmarshal(s.Additional, &v) != nil {
		return nil
	}
	return v
}

// kind says what a value is, in a word or two.
func (s *schema) kind() string {
	switch v := s.values(); {
	case s.Items != nil:
		return "list of " + s.of(s.Items).kind()
	case v != nil && len(s.Properties) == 0:
		return "map of " + s.of(v).kind()
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		for _, name := range t {
			if name != "null" {
				return fmt.Sprint(name)
			}
		}
	}
	return "any"
}

// about is the column of what there is to say.
var about = term.Column{Least: 24, Fold: true}

// explain prints a schema under the name that was asked for.
func (s *schema) explain(out io.Writer, name string) error {
	fmt.Fprintf(out, "%s: %s\n", name, s.kind())
	for _, text := range []string{s.Description, s.limits()} {
		if text != "" {
			fmt.Fprintln(out)
			term.Text(out, text, 0)
		}
	}
	fields := s.held()
	if len(fields.Properties) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\nfields:")
	t := term.NewTable(out, false, term.Column{}, term.Column{}, about)
	for _, f := range slices.Sorted(maps.Keys(fields.Properties)) {
		p := fields.of(fields.Properties[f])
		says := strings.TrimSpace(p.Description)
		if slices.Contains(fields.Required, f) {
			says = "required. " + says
		}
		t.Row("  "+f, p.kind(), says)
	}
	return t.Flush()
}

// limits says what values are taken.
func (s *schema) limits() string {
	var lines []string
	line := func(name, format string, args ...any) { lines = append(lines, name+": "+fmt.Sprintf(format, args...)) }
	if s.Enum != nil {
		line("one of", "%s", words(s.Enum))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		line("range", "%s to %s", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		line("at least", "%s", *s.Minimum)
	case s.Maximum != nil:
		line("at most", "%s", *s.Maximum)
	}
	for _, most := range []struct {
		n    *int
		what string
	}{{s.MaxLength, "characters"}, {s.MaxItems, "items"}, {s.MaxProps, "keys"}} {
		if most.n != nil {
			line("at most", "%d %s", *most.n, most.what)
		}
	}
	if s.Pattern != "" && s.Enum == nil {
		line("pattern", "%s", s.Pattern)
	}
	if s.Default != nil {
		line("default", "%s", words([]any{s.Default}))
	}
	if s.Examples != nil {
		line("example", "%s", words(s.Examples))
	}
	return strings.Join(lines, "\n")
}

// words lists values as they stand in a job file.
func words(values []any) string { return strings.Join(written(values), ", ") }

func written(values []any) []string {
	list := make([]string, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok {
			list[i] = text
		} else if b, err := job.Encode(v); err == nil {
			list[i] = string(b)
		}
	}
	return list
}

func explainFilter(out io.Writer) error {
	fmt.Fprint(out, `filter: terms with spaces between them; all must hold, such as

  state=RUNNING,PENDING owner=ada label.project=x created>24h

A term is a field, an operator, and values separated by commas; one of the values must fit. A value
with a space, a comma or a quote stands in double quotes.

operators:
  =  !=        it is one of the values; it is none of them
  ~            it fits one of the patterns, in which * stands for any characters and ? for one
  < <= > >=    for times and numbers; a time is 2026-01-31T08:00:00Z, a date, or how long ago, such as 90m or 7d

fields:
`)
	t := term.NewTable(out, false, term.Column{}, term.Column{}, term.Column{}, about)
	for _, f := range job.FilterFields {
		indexed := ""
		if f.Indexed {
			indexed = "indexed"
		}
		t.Row("  "+f.Name, string(f.Type), indexed, f.Doc)
	}
	t.Row("  label.KEY", string(job.FieldWord), "indexed", "a label; with = it is looked up over all jobs")
	t.Row("  args.NAME", string(job.FieldJSON), "", "an argument of a task, such as args.image or args.user.id; 1, 1.0 "+
		"and \"1\" are found alike; indexed where the document of the kind says so and the filter names the kind")
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `
A filter with only indexed terms looks at all jobs. A filter with another term looks at the jobs
submitted in the last %d days, unless created> says how far back.
`, int(job.FilterWindow.Hours()/24))
	return err
}

func explainCodes(out io.Writer) {
	fmt.Fprintln(out, "codes: why a job ended, or what blocks it")
	for i := range job.Codes {
		fmt.Fprintln(out)
		explainOne(out, &job.Codes[i])
	}
}

// explainOne prints what there is to say of a code.
func explainOne(out io.Writer, c *job.CodeInfo) {
	may := ""
	if c.Recoverable {
		may = "\n  it may clear by itself"
	}
	term.Text(out, fmt.Sprintf("%s\n  %s%s\n  what to do: %s", c.Code, c.Raised, may, c.Remedy), 2)
}

// completeTopic completes a topic, and behind a dot the fields of what stands before it.
func completeTopic(topics []string, part string) (found []cobra.Completion) {
	dot := strings.LastIndexByte(part, '.')
	if dot < 0 {
		return topics
	}
	kind, path, _ := strings.Cut(part[:dot], ".")
	s, err := schemaAt(kind, path)
	if err != nil {
		return nil
	}
	for _, f := range s.held().fields() {
		found = append(found, part[:dot+1]+f)
	}
	return found
}
