package script

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
		for name, text := range Heads([]byte(tt.out), names) {
			got[name] = string(text)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}
