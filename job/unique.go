package job

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"
)

// unique checks the part of a spec that makes jobs equal.
func (v *validation) unique(s *Spec) {
	u := s.Unique
	if u == nil {
		return
	}
	switch u.Until {
	case "", UntilStart, UntilDone, WhileRunning:
	default:
		v.add("unique.until", string(u.Until), "is unknown", "give start, done or running")
	}
	v.text("unique.key", u.Key, 255)
	if u.Key != "" && u.Args != nil {
		v.add("unique.args", "", "cannot be given together with key", "give one of them")
	}
	if s.kind() == KindApp && u.Key == "" {
		v.add("unique.key", "", "is missing",
			"give a key: a program has no args by which it could be equal to another one")
	}
	if len(u.Args) > 16 {
		v.add("unique.args", fmt.Sprintf("%d fields", len(u.Args)), "are too many", "keep to 16")
	}
	for i, field := range u.Args {
		if field == "" {
			v.add(fmt.Sprintf("unique.args[%d]", i), "", "is empty", "name a field of args")
		}
	}
}

// UniqueKey returns the key that makes the job equal to others of its kind: the key that the spec
// gives, or a digest of its args. Jobs that lack a field are equal in that field.
func (s *Spec) UniqueKey() (string, error) {
	u := s.Unique
	if u.Key != "" {
		return u.Key, nil
	}
	chosen := map[string]any{}
	all, err := decode(s.Args)
	if err != nil && len(s.Args) > 0 {
		return "", Errorf(Invalid, "args: %w", err)
	}
	for _, field := range u.Args {
		chosen[field] = within(all, strings.Split(field, "."))
	}
	if u.Args == nil {
		chosen[""] = all
	}
	text, err := json.Marshal(chosen) // the keys of maps come in order
	if err != nil {
		return "", Errorf(Invalid, "args: %w", err)
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20])), nil
}

// within returns the value at a path in a JSON value; nil: there is none.
func within(v any, path []string) any {
	for _, name := range path {
		fields, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = fields[name]
	}
	return v
}

// RunningKey returns the key of the turn that keeps equal jobs from running at once.
func (s *Spec) RunningKey() (string, error) {
	key, err := s.UniqueKey()
	return whileRunning + s.kind() + "/" + part(key), err
}
