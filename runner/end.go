package runner

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// End is the end of a program, as the message in the spool tells it.
type End struct {
	Key   Key    `json:"key"`
	Run   int    `json:"run"` // 0, and 1 more for each time that a scheduler itself ran the launch again
	Token string `json:"token"`
	Boot  string `json:"boot"` // the host's boot
	// 0 to 255; 128+n after signal n; 126 or 127 if it could not be started, see NotStarted
	Code int `json:"code"`
	// to 10 ms, never early, by the clock of who launched it and the time since the host's boot
	Ended  time.Time     `json:"ended"`
	Since  time.Duration `json:"since"` // when it began, by the host's boot clock, to 10 ms
	Ran    time.Duration `json:"ran"`   // by the host's boot clock, to 10 ms: sleep and clock changes do not matter
	User   time.Duration `json:"user"`  // processor time of the program and all it waited for; 0 if unknown
	System time.Duration `json:"system"`

	// Signal is the signal that ended the program; 0 if it ended by itself. That is known but of
	// SIGINT and SIGPIPE, of which shells do not speak: then it is 0, and the code is 130 or 141.
	Signal int `json:"signal,omitempty"`

	// NotStarted says why the program could not be started, in one line of up to 300 bytes, such as
	// "nosuch: not found"; it is empty if the program did start and itself chose its code. Told of
	// codes 126 and 127. A program is taken for started if its stderr is no plain file, and if a
	// variable that shells keep to themselves (such as UID) had it started through env(1).
	NotStarted string `json:"not_started,omitempty"`
}

// Began returns when the program began, by the clock of Ended.
func (e End) Began() time.Time { return e.Ended.Add(-e.Ran) }

// MaxEnd is how long a message is at most, in bytes. What is longer is damaged, or somebody else's.
const MaxEnd = 16 << 10

// EndName returns the name of the message that tells the end of a launch:
// <job>.<attempt>.<launch>.<run>.
func EndName(k Key, run int) string {
	return fmt.Sprintf("%s.%d.%d.%d", k.Job, k.Attempt, k.Launch, run)
}

// ParseEndName reads a name that [EndName] made.
func ParseEndName(name string) (k Key, run int, err error) {
	f := strings.Split(name, ".")
	if len(f) != 4 {
		return Key{}, 0, job.Errorf(job.Invalid, "%q does not name an end", name)
	}
	k.Job, err = job.ParseID(f[0])
	for i, n := range []*int{&k.Attempt, &k.Launch, &run} {
		if err == nil {
			*n, err = strconv.Atoi(f[i+1])
		}
	}
	// One end has one name: 01 or +1 is none.
	if err != nil || k.Check() != nil || run < 0 || EndName(k, run) != name {
		return Key{}, 0, job.Errorf(job.Invalid, "%q does not name an end", name)
	}
	return k, run, nil
}

// ParseEnd reads a message. A name that is none of a message is of kind [job.Invalid]. A content
// that is not whole is of kind [job.Corrupt], and no evidence of anything.
//
// The content is made by a shell, line by line:
//
//	taken <token> <boot id> ...     what follows is for the runner that launched it
//	code <exit code>
//	began <seconds since boot>
//	ended <seconds since boot>
//	booted <seconds since 1970>
//	<user> <system>                 the shell's own processor times, as "times" prints them: 0m0.01s 0m0.00s
//	<user> <system>                 those of its children
//	why<what the shell said>        only if the program could not be started: the rest of a line after the script's name
//	signal                          only if the shell spoke of a signal that ended the program
//	end
//
// Spaces may follow: they are what is left of the room that was made for it.
func ParseEnd(name string, content []byte) (End, error) {
	k, run, err := ParseEndName(name)
	if err != nil {
		return End{}, err
	}
	e := End{Key: k, Run: run}
	if err := e.parse(strings.TrimRight(string(content), " ")); err != nil {
		return End{}, job.Errorf(job.Corrupt, "end %s: %w", name, err)
	}
	return e, nil
}

// tick is how exactly /proc/uptime tells the time: it is cut, and an end is not to be before what
// led to it.
const tick = 10 * time.Millisecond

func (e *End) parse(content string) error {
	lines := strings.Split(content, "\n")
	killed := false
	for len(lines) > 9 {
		if why, ok := strings.CutPrefix(lines[7], "why"); ok && e.NotStarted == "" {
			e.NotStarted = reason(why)
		} else if lines[7] == "signal" && !killed {
			killed = true
		} else {
			break
		}
		lines = slices.Delete(lines, 7, 8)
	}
	taken := strings.Fields(lines[0])
	if len(lines) != 9 || len(taken) < 3 || taken[0] != "taken" || lines[7] != "end" || lines[8] != "" {
		return fmt.Errorf("not a whole message of %d bytes", len(content))
	}
	e.Token, e.Boot = taken[1], taken[2]
	value := map[string]string{}
	for i, name := range []string{"code", "began", "ended", "booted"} {
		v, ok := strings.CutPrefix(lines[i+1], name+" ")
		if !ok || v == "" {
			return fmt.Errorf("line %d is not %q", i+2, name)
		}
		value[name] = v
	}
	code, err := strconv.ParseUint(value["code"], 10, 8)
	if err != nil {
		return err
	}
	e.Code = int(code)
	began, err := time.ParseDuration(value["began"] + "s")
	if err != nil {
		return err
	}
	ended, err := time.ParseDuration(value["ended"] + "s")
	if err != nil {
		return err
	}
	e.Since, e.Ran = began, max(0, ended-began)
	booted, err := time.ParseDuration(value["booted"] + "s")
	if err != nil {
		return err
	}
	e.Ended = time.Unix(0, int64(booted+ended+tick)).UTC()
	if killed && e.Code > 128 {
		e.Signal = e.Code - 128
	}
	e.User, e.System = processorTimes(lines[6])
	return nil
}

// place matches what shells put between a script's name and what they have to say: ": 12: exec: "
// (dash), ": line 12: " (bash), ": exec: line 12: " (busybox), "[12]: " (mksh), ":12: " (zsh).
var place = regexp.MustCompile(`^(\[\d+\])?: ?(exec: )?((line )?\d+: )?(exec: )?`)

// reason cleans what a shell said: a program's name in it may hold anything.
func reason(said string) string {
	said = place.ReplaceAllString(said, "")
	said = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, said)
	for len(said) > 300 {
		_, n := utf8.DecodeLastRuneInString(said)
		said = said[:len(said)-n]
	}
	return cmp.Or(strings.TrimSpace(said), "the shell did not say why")
}

// processorTimes reads a line of the shell's times. Shells differ, and the times decide nothing: 0
// for what cannot be read.
func processorTimes(line string) (user, system time.Duration) {
	u, s, _ := strings.Cut(strings.ReplaceAll(line, ",", "."), " ") // some locales have a decimal comma
	user, _ = time.ParseDuration(u)
	system, _ = time.ParseDuration(s)
	return max(0, user), max(0, system)
}
