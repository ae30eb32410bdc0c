package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// ParseObject reads a JSON object. Numbers stay as they are written, as [json.Number].
func ParseObject(text []byte) (fields map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("it is null")
	}
	return fields, nil
}

// CheckMerge refuses specs that would be larger than [MaxMerged] once the defaults are merged into
// each of them. The error is a [SpecError].
func CheckMerge(defaults json.RawMessage, specs []json.RawMessage) error {
	size := len(defaults) * len(specs)
	for _, s := range specs {
		size += len(s)
	}
	if size > MaxMerged {
		return problem("defaults", fmt.Sprintf("%d bytes under each of %d jobs", len(defaults), len(specs)),
			"are too large together",
			fmt.Sprintf("keep all jobs with their defaults to %d bytes: share less, or submit fewer jobs at once",
				MaxMerged))
	}
	return nil
}

// Merge returns under with the fields of over on top, as a spec is merged with its defaults.
// Objects are merged field by field. A null in over removes the field.
func Merge(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		below, both := out[k]
		belowMap, isMap := below.(map[string]any)
		fields, areFields := v.(map[string]any)
		switch {
		case both && v == nil:
			delete(out, k)
		case isMap && areFields:
			out[k] = Merge(belowMap, fields)
		default:
			out[k] = v
		}
	}
	return out
}

// Encode writes v as JSON without the escapes that are for HTML.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Measure returns how deeply lists and maps are nested in a JSON text (0: there are none), and how
// many values they have at most.
func Measure(text []byte) (deepest, values int) {
	now, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',':
			values++
		case c == '{', c == '[':
			now, values = now+1, values+1
			deepest = max(deepest, now)
		case c == '}', c == ']':
			now--
		}
	}
	return deepest, values
}
