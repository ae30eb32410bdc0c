package job

import (
	"strings"
	"testing"
)

func TestCheckTenant(t *testing.T) {
	for _, good := range []string{"default", "a", "A1", "team-7.lab_x", "x..y", strings.Repeat("x", MaxTenant)} {
		if err := CheckTenant(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", ".", "..", "*", "../../x", "a/b", "/a", "a/", ".staging", ".archiving", "-x", "a b", "a\n", "a\x00", "\x1b[0m", "ü", "a\xff", "a\\b", "~", "%", "?",
		strings.Repeat("x", MaxTenant+1),
	} {
		if err := CheckTenant(bad); KindOf(err) != Invalid || !strings.Contains(err.Error(), "is not the name of a tenant") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMayShare(t *testing.T) {
	spec := func(change func(*Spec)) *Spec {
		s := &Spec{Name: "x", Command: []string{"true"}, Archive: &Archive{To: "/to"}}
		change(s)
		return s
	}
	plain := spec(func(*Spec) {})
	over := spec(func(s *Spec) { s.Archive.Overwrite = true })
	named := func(id string) *Spec { return spec(func(s *Spec) { s.ExternalID = id }) }
	unique := func(until UniqueMode, key string) *Spec {
		return spec(func(s *Spec) { s.Unique = &Unique{Key: key, Until: until} })
	}
	for name, test := range map[string]struct {
		a, b *Spec
		want bool
	}{
		"plain":                     {plain, plain, false},
		"one replaces":              {plain, over, false},
		"both replace":              {over, over, true},
		"one external id":           {named("a"), named("a"), true},
		"two external ids":          {named("a"), named("b"), false},
		"unique until done":         {unique(UntilDone, "k"), unique(UntilDone, "k"), true},
		"unique by another key":     {unique(UntilDone, "k"), unique(UntilDone, "l"), false},
		"unique while running":      {unique(WhileRunning, "k"), unique(WhileRunning, "k"), false},
		"unique, each in its way":   {unique(UntilDone, "k"), unique(UntilStart, "k"), false},
		"only one of them is so":    {unique(UntilDone, "k"), plain, false},
		"unique by an omitted mode": {unique("", "k"), unique("", "k"), true},
	} {
		if got := MayShare(test.a, test.b); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
