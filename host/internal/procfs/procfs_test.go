package procfs

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 20 30 0 -1 4194560 95 0 0 0 0 0 0 0 20 0 1 0 4242 2576384 200 18446744073709551615\n"
	want := Stat{PID: 7, State: 'S', Parent: 1, Session: 30, Threads: 1, Start: 4242}
	for _, name := range []string{"sh", "a b", ") Z 1 2 3", "(", "((()))", "", "new\nline"} {
		want.Name = name
		got, err := ParseStat([]byte("7 (" + name + ")" + rest))
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	zombie := strings.Replace(rest, "S", "Z", 1)
	for text, alive := range map[string]bool{
		rest: true, zombie: false, strings.Replace(rest, "S", "X", 1): false, strings.Replace(rest, "S", "T", 1): true,
		strings.Replace(zombie, "20 0 1 0", "20 0 2 0", 1): true, // its other thread runs
	} {
		if s, err := ParseStat([]byte("7 (sh)" + text)); err != nil || s.Alive() != alive {
			t.Errorf("%q: alive %t, %v", text, s.Alive(), err)
		}
	}
}

// Linux tells more since its version 3.5.
func TestParseStatWithAnImage(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 131 0 0 0 0 0 0 0 20 0 1 0 6610012 2777088 200 18446744073709551615 9 8 7 0"
	want := Stat{Name: "a) S (b\n", PID: 42, Parent: 1, Session: 42, State: 'S', Threads: 1, Start: 6610012, Image: 7}
	got, err := ParseStat([]byte("42 (a) S (b\n)" + rest + "\n"))
	if err != nil || got != want || !got.Alive() {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "42", "42 (a)", "42 (a) S 1", "x (a)" + rest, ")42 ("} {
		if s, err := ParseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 20 30 0 -1 4194560 95 0 0 0 0 0 0 0 20 0 1 0 4242 2576384 200 18446744073709551615\n"))
	f.Add([]byte("7 (sh"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) { ParseStat(b) })
}

func TestLockLimit(t *testing.T) {
	head := "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]uint64{
		"": 0, head: 0, "Max file locks": 0,
		head + "Max file locks            unlimited            unlimited            locks     \n":      0,
		head + "Max file locks            5                    77777777777          locks     \nMax x": 77777777777,
	} {
		if got := LockLimit([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestMarks(t *testing.T) {
	for text, want := range map[string]struct {
		launch string
		keep   bool
	}{
		"":                                      {},
		"PAWL_LAUNCH=a=b\x00PAWL_KEEP=1\x00":    {"a=b", true},
		"A=b\x00PAWL_LAUNCH\x00PAWL_KEEP=0\x00": {},
	} {
		if launch, keep := Marks([]byte(text)); launch != want.launch || keep != want.keep {
			t.Errorf("%q: %q, %t", text, launch, keep)
		}
	}
}
