package ssh

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a process has in its files is never taken for a file that was read before it.
func TestHeads(t *testing.T) {
	names := []string{"1/stat", "2/stat", "2/environ", "3/stat"}
	for what, tt := range map[string]struct {
		out  string
		want map[string]string
	}{
		"nothing":      {"", map[string]string{}},
		"all but some": {"==> 1/stat <==\na\n\n==> 3/stat <==\nb\n", map[string]string{"1/stat": "a\n", "3/stat": "b\n"}},
		"one that looks like what was before": {
			"==> 2/environ <==\nA=\n==> 1/stat <==\nB\x00\n==> 3/stat <==\nb\n",
			map[string]string{"2/environ": "A=\n==> 1/stat <==\nB\x00", "3/stat": "b\n"},
		},
		"one that looks like none": {
			"==> 1/stat <==\n==> ==> 2/stat <==\n==> 9/stat <==\n==> ",
			map[string]string{"1/stat": "==> ==> 2/stat <==\n==> 9/stat <==\n==> "},
		},
	} {
		got := map[string]string{}
		for name, text := range heads([]byte(tt.out), names) {
			got[name] = string(text)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 131 0 0 0 0 0 0 0 20 0 1 0 6610012 2777088 200 18446744073709551615 9 8 7 0"
	want := stat{name: "a) S (b\n", pid: 42, parent: 1, session: 42, state: 'S', threads: 1, start: 6610012, image: 7}
	got, err := parseStat([]byte("42 (a) S (b\n)" + rest + "\n"))
	if err != nil || got != want || !got.alive() {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "42", "42 (a)", "42 (a) S 1", "x (a)" + rest, ")42 ("} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}
