package jobfolder_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/jobfolder"
)

// TestList reads lists that a program may have written: a few bytes for each element may cost
// hundreds in memory.
func TestList(t *testing.T) {
	type element struct {
		Name string `json:"name"`
		Room [10]string
	}
	var read struct {
		Before string                  `json:"before"`
		List   jobfolder.List[element] `json:"list"`
	}
	if err := json.Unmarshal([]byte(`{"list": [{"name": "a"}, {"name": "b"}], "before": "x"}`), &read); err != nil ||
		len(read.List) != 2 || read.List[1].Name != "b" || read.Before != "x" {
		t.Errorf("%+v %v", read, err)
	}
	for _, empty := range []string{`[]`, `null`} {
		if err := json.Unmarshal([]byte(`{"list": `+empty+`}`), &read); err != nil || len(read.List) != 0 {
			t.Errorf("%s: %v %v", empty, read.List, err)
		}
	}
	const many = 400_000
	for name, text := range map[string]string{
		"numbers":       `[` + strings.Repeat("0,", many) + `0]`,
		"empty objects": `[` + strings.Repeat("{},", many) + `{}]`,
		"nulls":         `[` + strings.Repeat("null,", many) + `null]`,
		"no list":       `{"name": "a"}`,
		"a text":        `"a"`,
	} {
		var list jobfolder.List[element]
		if err := json.Unmarshal([]byte(text), &list); err == nil || cap(list) > 2*jobfolder.MostListed {
			t.Errorf("%s: %v, room for %d", name, err, cap(list))
		}
	}
}
