package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
)

// ParseObject reads a JSON object, with its numbers as they are written.
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

// Merge returns over with the fields of under below it, as a spec is read that has defaults: objects are merged field by
// field, and what is null in over is left out.
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

// Encode writes JSON as its author would: without the escapes that are for HTML.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
