package config

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Setting is one field of [Config], as its tags and its comment describe it.
type Setting struct {
	Key     string // in the file: limits.body
	Default string
	Doc     string
	OneOf   []string // the values there are; empty: any
	Min     string   // the least value; empty: any
	Max     string
	Reload  bool // SIGHUP takes a new value over

	index []int
	kind  reflect.Type
}

// Settings are all settings, in the order of the struct.
var Settings = settings(reflect.TypeFor[Config](), "", nil, words())

// wordsText is what the comments on the fields of [Config] say, by the key of the setting: go test
// ./internal/config -update.
//
//go:embed words.json
var wordsText []byte

func words() (words map[string]string) {
	if err := json.Unmarshal(wordsText, &words); err != nil {
		panic("internal/config/words.json: " + err.Error())
	}
	return words
}

func settings(t reflect.Type, section string, index []int, words map[string]string) []Setting {
	var all []Setting
	for f := range t.Fields() {
		key, at := section+f.Tag.Get("key"), append(slices.Clone(index), f.Index...)
		if f.Type.Kind() == reflect.Struct {
			all = append(all, settings(f.Type, key+".", at, words)...)
			continue
		}
		s := Setting{
			Key: key, Default: f.Tag.Get("default"), Doc: words[key], Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
			Reload: f.Tag.Get("reload") != "", index: at, kind: f.Type,
		}
		s.OneOf = list(f.Tag.Get("oneof"))
		all = append(all, s)
	}
	return all
}

// Flag is the name of the setting's flag.
func (s *Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

// Variable is the name of its variable in the environment.
func (s *Setting) Variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Secret reports whether its value is not shown.
func (s *Setting) Secret() bool { return s.kind == reflect.TypeFor[Secret]() }

// Switch reports whether its flag needs no value.
func (s *Setting) Switch() bool { return s.kind.Kind() == reflect.Bool }

// list reports whether its value is a list of words.
func (s *Setting) list() bool { return s.kind == reflect.TypeFor[[]string]() }

// programs reports whether its value is programs by name, which is a map in the file.
func (s *Setting) programs() bool { return s.kind == reflect.TypeFor[Programs]() }

// Unit says how values are written; empty where the meaning says it.
func (s *Setting) Unit() string {
	switch {
	case len(s.OneOf) > 0 && s.list():
		return "list of " + strings.Join(s.OneOf, ", ")
	case len(s.OneOf) > 0:
		return strings.Join(s.OneOf, " or ")
	case s.kind == reflect.TypeFor[Size]():
		return "size"
	case s.kind == reflect.TypeFor[Prefixes](), s.list():
		return "list"
	case s.programs():
		return "lists by name, as JSON"
	case s.kind.String() == "time.Duration":
		return "duration"
	case s.kind.String() == "slog.Level":
		return "level"
	case s.kind.Kind() == reflect.Float64:
		return "number"
	case s.kind.Kind() == reflect.Int:
		return "whole number"
	case s.Switch():
		return "true or false"
	}
	return "text"
}

// read sets the field of c from text, and refuses what is out of its range.
func (s *Setting) read(c *Config, text string) error {
	v := reflect.ValueOf(c).Elem().FieldByIndex(s.index)
	if err := set(v, text); err != nil {
		return err
	}
	words, want := []string{text}, s.Unit()
	if s.list() {
		words, want = list(text), "some of "+strings.Join(s.OneOf, ", ")
	}
	for _, w := range words {
		if len(s.OneOf) > 0 && !slices.Contains(s.OneOf, w) {
			return fmt.Errorf("write %s", want)
		}
	}
	for _, bound := range []struct {
		text string
		sign int
		what string
	}{{s.Min, -1, "at least"}, {s.Max, 1, "at most"}} {
		if bound.text == "" {
			continue
		}
		limit := reflect.New(s.kind).Elem()
		if err := set(limit, bound.text); err != nil {
			panic(err) // a tag is wrong
		}
		if compare(v, limit) == bound.sign {
			return fmt.Errorf("it must be %s %s", bound.what, bound.text)
		}
	}
	return nil
}

// shown is the setting's value in c, as people write it.
func (s *Setting) shown(c *Config) string {
	return shown(reflect.ValueOf(c).Elem().FieldByIndex(s.index))
}

// same reports whether two configurations agree in it.
func (s *Setting) same(a, b *Config) bool {
	return reflect.DeepEqual(reflect.ValueOf(a).Elem().FieldByIndex(s.index).Interface(),
		reflect.ValueOf(b).Elem().FieldByIndex(s.index).Interface())
}

// byName finds a setting by one of its names.
func byName(name func(*Setting) string, wanted string) *Setting {
	for i := range Settings {
		if name(&Settings[i]) == wanted {
			return &Settings[i]
		}
	}
	return nil
}

func keyOf(s *Setting) string { return s.Key }

// names lists one name of all settings.
func names(name func(*Setting) string) []string {
	all := make([]string, len(Settings))
	for i := range Settings {
		all[i] = name(&Settings[i])
	}
	return all
}

// copy gives its value in from to to.
func (s *Setting) copy(to, from *Config) {
	reflect.ValueOf(to).Elem().FieldByIndex(s.index).Set(reflect.ValueOf(from).Elem().FieldByIndex(s.index))
}
