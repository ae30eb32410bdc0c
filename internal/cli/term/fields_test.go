package term

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestRead(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{
			`{"panic":"nil map","stack":"goroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\n","exit_code":2,"command":["sh","-c","exit 2"],"usage":{"user":"2ms"},"none":null,"empty":{},"no":[]}`,
			"evidence of 3:\n  panic: nil map\n  stack:\n    goroutine 1 [running]:\n    main.main()\n            /src/main.go:7 +0x1d\n  exit_code: 2\n  command: [sh, -c, exit 2]\n" +
				"  usage:\n    user: 2ms\n  none: null\n  empty: {}\n  no: []\n",
		},
		{
			`{"inputs":[{"from":"/a","to":"b"},{"from":"/c"}],"command":["sh","-c","one\ntwo"]}`,
			"evidence of 3:\n  inputs:\n    - from: /a\n      to: b\n    - from: /c\n  command:\n    - sh\n    - -c\n    -\n      one\n      two\n",
		},
		{`{"logs":{"stdout":"\u001b]0;owned\u0007x\u202e\nb\u009b\n"}}`, "evidence of 3:\n  logs:\n    stdout:\n      x\\u202e\n      b\n"},
		{`"text"`, "evidence of 3: text\n"},
		{`7`, "evidence of 3: 7\n"},
		{``, ""},
	} {
		var b bytes.Buffer
		PrintFields(&b, "evidence of 3", json.RawMessage(c.doc), "pawl history x -o yaml")
		if b.String() != c.want {
			t.Errorf("%s is\n%swant\n%s", c.doc, b.String(), c.want)
		}
	}
}
