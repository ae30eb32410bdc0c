package jobs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestAnnotation(t *testing.T) {
	x, none := "x=1", ""
	for _, tt := range []struct {
		args    []string
		notes   string
		replace bool
		want    job.Annotation
		wrong   string
	}{
		{
			args: []string{"a=x=1", "b=", "c-", "d-e-"},
			want: job.Annotation{Labels: map[string]*string{"a": &x, "b": &none, "c": nil, "d-e": nil}},
		},
		{notes: `{"a":1}`, want: job.Annotation{Notes: []byte(`{"a":1}`)}},
		{notes: `{`, wrong: "--notes is not JSON"},
		{wrong: "there is nothing to change"},
		{args: []string{"a"}, wrong: "a is not a label: give key=value"},
		{args: []string{"=1"}, wrong: "is not a label"},
		{args: []string{"-"}, wrong: "is not a label"},
		{args: []string{"a-"}, replace: true, wrong: "--replace removes all that are not given"},
	} {
		got, err := annotation(tt.args, tt.notes, tt.replace)
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%q: %v", tt.args, err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", tt.args, err, diff)
		}
	}
}
