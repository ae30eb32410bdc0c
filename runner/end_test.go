package runner

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

const message = `taken TOKEN 4f6f1c2e-0000-4000-8000-000000000000 and more
code 3
began 1000.25
ended 1010.75
booted 1699998989.253
0m0.001000s 0m0.002000s
1m2.500000s 0m0.040000s
end
`

func testKey(t testing.TB) Key {
	t.Helper()
	id, err := job.ParseID("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	if err != nil {
		t.Fatal(err)
	}
	return Key{Job: id, Attempt: 2, Launch: 13}
}

func TestParseEnd(t *testing.T) {
	name := EndName(testKey(t), 1)
	if want := "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77.2.13.1"; name != want {
		t.Errorf("EndName: %s, want %s", name, want)
	}
	want := End{
		Key: testKey(t), Run: 1, Token: "TOKEN", Boot: "4f6f1c2e-0000-4000-8000-000000000000", Code: 3,
		Ended: time.Unix(1700000000, 13e6).UTC(), Since: 1000250 * time.Millisecond, Ran: 10500 * time.Millisecond, User: 62500 * time.Millisecond, System: 40 * time.Millisecond,
	}
	got, err := ParseEnd(name, []byte(message))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseEnd (-want +got):\n%s", diff)
	}
	if got := got.Began(); !got.Equal(time.Unix(1699999989, 513e6)) {
		t.Errorf("Began: %s", got)
	}
}

func TestParseEndTimes(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"0m1.500000s 0m0.000000s": 1500 * time.Millisecond, // dash
		"0m1.50s 0m0.00s":         1500 * time.Millisecond, // busybox
		"0m1,500s 0m0,000s":       1500 * time.Millisecond, // bash with a decimal comma
		"0m01.50s 0m00.00s":       1500 * time.Millisecond, // mksh
		"":                        0,
		"what 0m0.00s":            0,
	} {
		e, err := ParseEnd(EndName(testKey(t), 0), []byte(strings.Replace(message, "1m2.500000s 0m0.040000s", line, 1)))
		if err != nil || e.User != want {
			t.Errorf("%q: %v, %v", line, e.User, err)
		}
	}
}

func TestParseEndNotStarted(t *testing.T) {
	for why, want := range map[string]string{
		": 12: exec: nosuch: not found":                         "nosuch: not found", // dash
		": line 12: exec: nosuch: not found":                    "nosuch: not found", // bash
		": line 12: /nowhere/absent: No such file or directory": "/nowhere/absent: No such file or directory",
		": exec: line 12: nosuch: not found":                    "nosuch: not found", // busybox
		"[12]: nosuch: inaccessible or not found":               "nosuch: inaccessible or not found",
		":12: no such file or directory: nosuch":                "no such file or directory: nosuch", // zsh
		": 12: exec: 13: exec: x: not found":                    "13: exec: x: not found",            // the program's name
		"what":                                                  "what",
		"":                                                      "the shell did not say why",
		": 12: exec: ":                                          "the shell did not say why",
		": 12: exec: a\x1b[1m\tb\r\x00\xff\u202e\u00a0c: not found": "a\ufffd[1m\ufffdb\ufffd\ufffd\ufffd\ufffd\ufffdc: not found",
		": 12: exec: " + strings.Repeat("ü", 500):                   strings.Repeat("ü", 150),
		": 12: exec: " + strings.Repeat("x", 299) + "ü":             strings.Repeat("x", 299),
	} {
		e, err := ParseEnd(EndName(testKey(t), 0), []byte(strings.TrimSuffix(message, "end\n")+"why"+why+"\nend\n"))
		if err != nil || e.NotStarted != want || e.System != 40*time.Millisecond {
			t.Errorf("%q: %q, want %q; %v", why, e.NotStarted, want, err)
		}
	}
}

// Whatever part of a message is missing, it is no message.
func TestAPartOfAMessageIsNone(t *testing.T) {
	name := EndName(testKey(t), 0)
	for _, message := range []string{message, strings.TrimSuffix(message, "end\n") + "why: 12: exec: end\nend\n"} {
		for i := range len(message) {
			if _, err := ParseEnd(name, []byte(message[:i])); job.KindOf(err) != job.Corrupt {
				t.Errorf("the first %d bytes: %v", i, err)
			}
		}
	}
	for _, more := range []string{"what: x\nend\n", "why: x\nwhy: y\nend\n", "signal\nsignal\nend\n", "signal x\nend\n", "why: x\n\nend\n", "end\nend\n"} {
		if _, err := ParseEnd(name, []byte(strings.TrimSuffix(message, "end\n")+more)); job.KindOf(err) != job.Corrupt {
			t.Errorf("with %q: %v", more, err)
		}
	}
	for _, bad := range []string{"code 256", "code -1", "code x", "code ", "kode 3"} {
		if _, err := ParseEnd(name, []byte(strings.Replace(message, "code 3", bad, 1))); job.KindOf(err) != job.Corrupt {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A signal is one only if the shell spoke of it.
func TestParseEndSignal(t *testing.T) {
	for _, test := range []struct {
		code   string
		signal int
	}{{"code 137\n", 9}, {"code 3\n", 0}, {"code 128\n", 0}} {
		text := strings.Replace(message, "code 3\n", test.code, 1)
		for more, want := range map[string]int{"": 0, "signal\n": test.signal, "why: x\nsignal\n": test.signal} {
			e, err := ParseEnd(EndName(testKey(t), 0), []byte(strings.TrimSuffix(text, "end\n")+more+"end\n"))
			if err != nil || e.Signal != want {
				t.Errorf("%q with %q: %d, want %d; %v", test.code, more, e.Signal, want, err)
			}
		}
	}
}

// Lines that only some messages have come in any order.
func TestParseEndWords(t *testing.T) {
	words := []string{"asked\n", "memory\n", "why: x\n"}
	for range len(words) {
		words = append(words[1:], words[0])
		for n := range len(words) + 1 {
			more := strings.Join(words[:n], "")
			e, err := ParseEnd(EndName(testKey(t), 0), []byte(strings.TrimSuffix(message, "end\n")+more+"end\n"))
			if err != nil || e.Asked != strings.Contains(more, "asked") || e.OutOfMemory != strings.Contains(more, "memory") {
				t.Errorf("%q: %+v, %v", more, e, err)
			}
		}
	}
	twice := strings.TrimSuffix(message, "end\n") + "memory\nmemory\nend\n"
	if _, err := ParseEnd(EndName(testKey(t), 0), []byte(twice)); err == nil {
		t.Error("a line that is there twice is taken")
	}
}

func TestExit(t *testing.T) {
	for want, e := range map[string]End{
		"exit code 3": {Code: 3}, "exit code 0 in run 2: the scheduler had run it again by itself": {Run: 1},
	} {
		if got := e.Exit(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestNamesOfNoEnd(t *testing.T) {
	id := testKey(t).Job.String()
	for _, name := range []string{
		"", id, id + ".1.1", id + ".1.1.1.1", id + ".0.1.0", id + ".1.0.0", id + ".1.1.-1", id + ".01.1.0", id + ".+1.1.0",
		strings.ToUpper(id) + ".1.1.0", "." + id + ".1.1.0", "00000000-0000-0000-0000-000000000000.1.1.0", id + ".1.1.99999999999999999999",
	} {
		if _, err := ParseEnd(name, []byte(message)); job.KindOf(err) != job.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHandleJSON(t *testing.T) {
	for data, stored := range map[string]string{
		// As it has always been stored: processes of two versions may work side by side.
		`{"dir":"/jobs/a b","locks":7,"process":{"pid":4711,"start":1152921504606846976,"boot":"b"}}`: `{"key":KEY,` +
			`"host":"machine","dir":"/jobs/a b","token":"TOKEN",` +
			`"process":{"pid":4711,"start":1152921504606846976,"boot":"b"},"locks":7}`,
		`{}`: `{"key":KEY,"host":"machine","token":"TOKEN"}`,
	} {
		want := Handle{Key: testKey(t), Host: "machine", Token: "TOKEN", Data: data}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		key, err := json.Marshal(want.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(text), strings.Replace(stored, "KEY", string(key), 1)} {
			var got Handle
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", text, diff)
			}
			var flat map[string]any
			if err := json.Unmarshal([]byte(text), &flat); err != nil || flat["host"] != "machine" ||
				(flat["dir"] == "/jobs/a b") != (data != "{}") {
				t.Errorf("%s, %v", text, err)
			}
		}
	}
	for _, bad := range []string{`[]`, `{"host":3}`, `{"key":""}`} {
		var got Handle
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	if text, err := json.Marshal(Handle{Data: "what"}); err == nil {
		t.Errorf("%s", text)
	}
}

func FuzzParseEnd(f *testing.F) {
	f.Add(EndName(testKey(f), 0), []byte(message))
	f.Add(EndName(testKey(f), 1), []byte(strings.ReplaceAll(message, "\n", "\r\n")))
	f.Add(EndName(testKey(f), 0), []byte(strings.TrimSuffix(message, "end\n")+"why: 12: exec: x: not found\nend\n"))
	f.Add("....", []byte("taken a b\nend\n"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		e, err := ParseEnd(name, content)
		if err != nil {
			if k := job.KindOf(err); k != job.Invalid && k != job.Corrupt {
				t.Errorf("kind %s: %v", k, err)
			}
			return
		}
		if EndName(e.Key, e.Run) != name {
			t.Errorf("%q was read as %q", name, EndName(e.Key, e.Run))
		}
		if len(e.NotStarted) > 300 || strings.ContainsFunc(e.NotStarted, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not started: %q", e.NotStarted)
		}
		if e.Code < 0 || e.Code > 255 || e.Ran < 0 || e.User < 0 || e.System < 0 || e.Token == "" || !strings.HasSuffix(string(content), "\nend\n") {
			t.Errorf("%+v from %q", e, content)
		}
	})
}
