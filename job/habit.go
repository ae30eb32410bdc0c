package job

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// habits are fields that other systems have, by what to write for them here. VALUE stands for the
// value that was given.
var habits = byName(map[string]string{
	"command":                    "cmd run exec argv program entrypoint",
	"script":                     "shell bash sh",
	"env":                        "environment environ vars variables",
	"arguments":                  "params parameters",
	"labels":                     "tags metadata",
	"owner":                      "user username",
	"notes":                      "comment description",
	"not_before":                 "start start_at begin eta run_at",
	"delay":                      "wait",
	"inputs":                     "input files stage_in volumes mounts",
	"archive: {include: […]}":    "output outputs artifacts results",
	"resources: {cores: VALUE}":  "cpu cpus ncpus threads ppn cpus_per_task",
	"resources: {memory: VALUE}": "mem ram",
	"resources: {gpus: VALUE}":   "gpu",
	"resources: {tasks: VALUE}":  "ntasks",
	"resources: {gpus: …}":       "gres",
	"resources: {minutes: MINUTES}, or for a task timeout in the document of its kind": "timeout time time_limit " +
		"walltime wall_time max_time runtime duration ttl",
	"retry: {max_attempts: …}, the first attempt included": "retries max_retries restart",
	"retry: {max_attempts: VALUE}":                         "attempts tries",
	"limits: [KEY], and pawl limits set KEY MOST":          "concurrency parallel parallelism max_parallel",
	"order: {key: VALUE}, or labels":                       "group",
	"order: {key: VALUE}":                                  "lock mutex",
})

// absent are fields that other systems have, by the reason why Pawl has nothing of the kind.
var absent = byName(map[string]string{
	ownFolder: "cwd workdir working_dir working_directory workingdir chdir dir directory folder",
	contained: "image container docker podman",
	dependent: "depends_on depends dependencies dependency needs requires after",
	scheduled: "cron schedule every",
})

// byName turns a table of names with spaces between them around.
func byName(table map[string]string) map[string]string {
	of := map[string]string{}
	for what, names := range table {
		for _, name := range strings.Fields(names) {
			of[name] = what
		}
	}
	return of
}

const (
	ownFolder = "each job runs in a folder of its own: name what it reads in inputs, or begin a script with cd " +
		"/the/folder"
	contained = "containers are not there yet: run one with a command, such as [podman, run, --rm, IMAGE, PROGRAM]"
	dependent = "jobs do not wait for the end of others yet: order: {key: NAME} in each of them lets one go " +
		"after the other"
	scheduled = "a schedule submits the jobs of a file on a clock: pawl schedules add NAME --cron TIMES FILE, or --every TIME"
)

// unknown says what to do about a field that the map at a path does not have.
func (c *comparison) unknown(at, k string, value any, t reflect.Type) string {
	if c.of != specName {
		return ""
	}
	plain := strings.NewReplacer("-", "_").Replace(strings.ToLower(k))
	if slices.Contains(fieldNames(t), plain) {
		return "" // it is a slip
	}
	if t == reflect.TypeFor[Spec]() {
		if why := absent[plain]; why != "" {
			return why
		}
		if write := habits[plain]; write != "" {
			return "give " + fill(write, value)
		}
	}
	if write, ok := strings.CutPrefix(habits[plain], "resources: {"); ok && t == reflect.TypeFor[Resources]() {
		return "give " + fill(strings.TrimSuffix(write, "}"), value)
	}
	// Fields that stand in another map: cores beside resources, or command in it.
	top := reflect.TypeFor[Spec]()
	for i := range top.NumField() {
		name, in := fieldName(top.Field(i)), top.Field(i).Type
		if name == plain && t != top && name != topField(at) {
			return "move it out of " + at + ", to stand beside it"
		}
		write := name + ": {" + plain + ": " + written(value) + "}"
		switch in.Kind() {
		case reflect.Pointer:
			in = in.Elem()
		case reflect.Slice:
			in, write = in.Elem(), name+": [{"+plain+": "+written(value)+"}]"
		}
		if in != t && in.Kind() == reflect.Struct && in.PkgPath() == top.PkgPath() &&
			slices.Contains(fieldNames(in), plain) {
			return "give " + write
		}
	}
	return ""
}

// fieldName returns the name of a field on the wire.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fill puts a value into the advice that says what to write.
func fill(write string, value any) string {
	minutes := "…"
	if text, ok := value.(string); ok {
		if d, err := ParseDuration(text); err == nil {
			minutes = minutesOf(d)
		}
	}
	return strings.NewReplacer("VALUE", written(value), "MINUTES", minutes).Replace(write)
}

// minutesOf writes a duration as a number of minutes.
func minutesOf(d time.Duration) string { return strconv.FormatFloat(d.Minutes(), 'g', 6, 64) }

// written returns a value as it stands in a job file, where it is short.
func written(value any) string {
	switch v := value.(type) {
	case string:
		if plainYAML(v) {
			return v
		}
		return strconv.Quote(short(v))
	case json.Number:
		return short(v.String())
	case bool:
		return strconv.FormatBool(v)
	}
	return "…"
}

// plainYAML reports whether a text can stand in a list of YAML without quotes.
func plainYAML(s string) bool {
	switch strings.ToLower(s) {
	case "", "null", "true", "false", "yes", "no", "on", "off", "~":
		return false
	}
	if s[0] >= '0' && s[0] <= '9' || strings.ContainsRune("-.", rune(s[0])) &&
		strings.IndexFunc(s, unicode.IsDigit) == 1 {
		_, err := ParseDuration(s)
		var b Bytes
		return err == nil || b.UnmarshalText([]byte(s)) == nil && strings.ContainsFunc(s, unicode.IsLetter)
	}
	return len(s) <= 60 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(",[]{}:#&*!|>'\"%@`?", r)
	})
}

// mend says what to write in place of a value that has another kind than the field's type t. It is
// empty if there is nothing to add.
func mend(at string, raw any, t reflect.Type) string {
	name := at[strings.LastIndexByte(at, '.')+1:]
	switch v := raw.(type) {
	case string:
		switch {
		case at == "command":
			return "write command: " + list(strings.Fields(v)) + ", or for a shell script: " + quoted(v)
		case strings.HasPrefix(at, "inputs[") && t == reflect.TypeFor[Input]():
			return "write from: " + written(v)
		case t == reflect.TypeFor[[]Input]():
			return "write inputs: [{from: " + written(v) + "}]"
		case t == reflect.TypeFor[Archive]():
			return "write archive: {to: " + written(v) + "}"
		case t == reflect.TypeFor[Order]() || t == reflect.TypeFor[Unique]():
			return "write " + name + ": {key: " + written(v) + "}"
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
			if name == "arguments" || name == "launch" {
				return "write " + name + ": " + list(strings.Fields(v))
			}
			return "write " + name + ": " + list([]string{v})
		case at == "resources.minutes":
			if d, err := ParseDuration(v); err == nil {
				return "write minutes: " + minutesOf(d)
			}
		case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
			if k, val, ok := strings.Cut(v, "="); ok {
				return "write " + name + ": {" + written(k) + ": " + written(val) + "}"
			}
		}
	case json.Number:
		switch {
		case t == reflect.TypeFor[RetryPolicy]():
			return "write retry: {max_attempts: " + v.String() + "}"
		case t == reflect.TypeFor[Resources]():
			return "write resources: {cores: " + v.String() + "}"
		case t == reflect.TypeFor[Duration]():
			return "give a unit, such as " + v.String() + "s"
		case t.Kind() == reflect.String:
			return "put it in quotes: \"" + v.String() + "\""
		}
	case bool:
		if t.Kind() == reflect.String {
			return "put it in quotes: \"" + strconv.FormatBool(v) + "\""
		}
	case []any:
		switch {
		case at == "script":
			return "write a text of several lines: script: | and the lines below it, or command for one program"
		case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String && len(v) > 0:
			first, _ := v[0].(string)
			if k, val, ok := strings.Cut(first, "="); ok {
				return "write " + name + ": {" + written(k) + ": " + written(val) + "}"
			}
		}
	case map[string]any:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			return "put a - before it, or brackets around it: the field is a list"
		}
	}
	return ""
}

// list writes words as a list of YAML.
func list(words []string) string {
	for i, w := range words {
		words[i] = written(w)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// quoted writes a command line as the script that it is.
func quoted(line string) string {
	if strings.Contains(line, "\n") {
		return "script, with a | and the same lines"
	}
	if plainYAML(strings.ReplaceAll(line, " ", "")) {
		return "script: " + short(line)
	}
	return "script: " + strconv.Quote(short(line))
}
