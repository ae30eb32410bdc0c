package job

import "testing"

func TestMerge(t *testing.T) {
	for _, test := range []struct{ under, over, want string }{
		{`{}`, `{"a":1}`, `{"a":1}`},
		{`{"a":1,"b":2}`, `{"b":3}`, `{"a":1,"b":3}`},
		{`{"a":1,"b":2}`, `{"b":null}`, `{"a":1}`},
		{`{"a":1}`, `{"b":null}`, `{"a":1,"b":null}`}, // there is nothing to leave out, and a spec refuses it
		{`{"a":{"x":1,"y":2}}`, `{"a":{"y":null,"z":3}}`, `{"a":{"x":1,"z":3}}`},
		{`{"a":{"x":1}}`, `{"a":[2]}`, `{"a":[2]}`},
		{`{"a":[1]}`, `{"a":{"x":1}}`, `{"a":{"x":1}}`},
		{`{"a":1.50}`, `{"b":12345678901234567890,"c":"<&>"}`, `{"a":1.50,"b":12345678901234567890,"c":"<&>"}`},
	} {
		under, err := ParseObject([]byte(test.under))
		if err != nil {
			t.Fatal(err)
		}
		over, err := ParseObject([]byte(test.over))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Encode(Merge(under, over)); err != nil || string(got) != test.want {
			t.Errorf("%s over %s: %s, %v; want %s", test.over, test.under, got, err, test.want)
		}
		if again, err := Encode(under); err != nil || string(again) != test.under {
			t.Errorf("%s was changed into %s, %v", test.under, again, err)
		}
	}
	for _, text := range []string{`null`, `[]`, `1`, `{`, ``} {
		if fields, err := ParseObject([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, fields)
		}
	}
}
