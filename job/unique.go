package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"math/big"
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
	if u.Alone && u.Until != UntilStart {
		v.add("unique.alone", "true", "belongs to until: start",
			"leave it out: with until: done or running, equal jobs never run at once anyway")
	}
	v.text("unique.key", u.Key, MaxKey)
	if u.Key != "" && u.Args != nil {
		v.add("unique.args", "", "cannot be given together with key", "give one of them")
	}
	if s.kind() == KindApp && u.Key == "" {
		v.add("unique.key", "", "is missing",
			"give a key: a program has no args by which it could be equal to another one")
	}
	v.fields("unique.args", u.Args)
}

// fields checks a list of fields of args.
func (v *validation) fields(path string, fields []string) {
	v.many(path, len(fields), 16)
	for i, field := range fields {
		if field == "" {
			v.add(fmt.Sprintf("%s[%d]", path, i), "", "is empty", "name a field of args")
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
	return s.chosen(u.Args)
}

// chosen returns a digest of fields of args; nil: of all of args. It is the same for equal JSON
// values.
func (s *Spec) chosen(fields []string) (string, error) {
	chosen := map[string]any{}
	all, err := decode(s.Args)
	if err != nil && len(s.Args) > 0 {
		return "", Errorf(Invalid, "args: %w", err)
	}
	for _, field := range fields {
		chosen[field] = plainNumbers(within(all, strings.Split(field, ".")))
	}
	if fields == nil {
		chosen[""] = plainNumbers(all)
	}
	return digestOf(chosen)
}

// digestOf returns a digest of a JSON value whose numbers are plain.
func digestOf(v any) (string, error) {
	text, err := json.Marshal(v) // the keys of maps come in order
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

// plainNumbers returns a JSON value in which equal numbers are written alike: 1, 1.0 and 1e0. It
// changes v.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, of := range v {
			v[k] = plainNumbers(of)
		}
	case []any:
		for i, of := range v {
			v[i] = plainNumbers(of)
		}
	case json.Number:
		return plainNumber(v.String())
	}
	return v
}

// plainNumber writes a JSON number as its digits, without zeros at either end, and the power of ten
// that they count.
func plainNumber(number string) json.Number {
	text, negative := strings.CutPrefix(strings.ToLower(number), "-")
	digits, power, _ := strings.Cut(text, "e")
	whole, fraction, _ := strings.Cut(digits, ".")
	exponent, ok := new(big.Int).SetString(cmp.Or(strings.TrimPrefix(power, "+"), "0"), 10)
	if !ok {
		return json.Number(number)
	}
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	short := strings.TrimRight(digits, "0")
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
	sign := ""
	if negative {
		sign = "-"
	}
	return json.Number(sign + short + "e" + exponent.String())
}
