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

// End is the end of a program. Times of the host's boot clock
// are not affected by sleep or by changes of the date.
type End struct {
	Key Key `json:"key"`
	// Run is 0. It counts up each time the scheduler itself runs the launch again.
	Run   int    `json:"run"`
	Token string `json:"token"`
	Boot  string `json:"boot"` // the id of the host's boot
	// Code is 0 to 255. It is 128+n after signal n. If the program could not be started it is 126
	// or 127: see NotStarted.
	Code int `json:"code"`
	// Ended is the time of the end, to 10 ms and never early. It is the launcher's clock at the
	// launch, plus the time that passed on the host's boot clock.
	Ended time.Time `json:"ended"`
	// Since is when the program began, by the host's boot clock, to 10 ms.
	Since time.Duration `json:"since"`
	// Waited is how long the launch was under way before that; 0 if unknown.
	Waited time.Duration `json:"waited,omitempty"`
	// Ran is how long the program ran, by the host's boot clock, to 10 ms.
	Ran time.Duration `json:"ran"`
	// User is the processor time of the program and of all that it waited for; 0 if unknown. System
	// is the same for the kernel's work on their behalf.
	User   time.Duration `json:"user"`
	System time.Duration `json:"system"`

	// Signal is the signal that ended the program, or 0 if it ended by itself. Shells do not report
	// SIGINT and SIGPIPE: after these it is 0, and Code is 130 or 141.
	Signal int `json:"signal,omitempty"`

	// Asked says that the messenger itself was asked to end, together with the program. A scheduler
	// does so before it kills.
	Asked bool `json:"asked,omitempty"`

	// OutOfMemory says that the kernel ended a process of the program, because all of them together
	// had used the memory that a scheduler gave them.
	OutOfMemory bool `json:"out_of_memory,omitempty"`

	// NotStarted says why the program could not be started, in one line of up to 300 bytes, such as
	// "nosuch: not found". It is set only with codes 126 and 127, and empty if the program started
	// and chose that code itself. It is set, too, if the launcher gave up before it took the
	// launch. In two cases it is empty although nothing was started: if stderr is not a plain file,
	// or if the plan sets a variable that shells keep to themselves (such as UID), so that the
	// program was to be started by env(1).
	NotStarted string `json:"not_started,omitempty"`
}

// GaveUp begins NotStarted of a launch whose launcher gave up before it took it.
const GaveUp = "its launcher gave up: "

// CannotFork is NotStarted where the machine had no process for the program: the account may have
// no more (ulimit -u), or there is no memory.
const CannotFork = GaveUp + "cannot fork"

// NoRoom is NotStarted where a file system had no room for what a launch leaves, or could only be
// read. [NoRoomIn] and a folder follow, if that is not on the file system of the jobs' folders.
const NoRoom = GaveUp + "no room"

// NoRoomIn stands between [NoRoom] and a folder.
const NoRoomIn = " in "

// OverQuota is NotStarted where the user may use no more of a file system.
const OverQuota = GaveUp + "disk quota exceeded"

// RanAgain is NotStarted where a scheduler ran a launch again by itself that is to run once.
const RanAgain = "the scheduler ran it again"

// Exit says for people how the program ended.
func (e End) Exit() string {
	s := fmt.Sprintf("exit code %d", e.Code)
	if e.Run > 0 {
		s += fmt.Sprintf(" in run %d: the scheduler had run it again by itself", e.Run+1)
	}
	return s
}

// Began returns when the program began, by the clock of Ended.
func (e End) Began() time.Time { return e.Ended.Add(-e.Ran) }

// MaxEnd is the most bytes that a message of an end may have. A longer file is damaged or no
// message.
const MaxEnd = 16 << 10

// EndName returns the name of the message for the end of a launch: <job>.<attempt>.<launch>.<run>.
func EndName(k Key, run int) string {
	return fmt.Sprintf("%s.%d.%d.%d", k.Job, k.Attempt, k.Launch, run)
}

// ParseEndName splits a name that [EndName] made. The error for any other name is of kind
// [job.Invalid].
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

// ParseEnd reads a message. A name that EndName did not make is of kind [job.Invalid]. Content that
// is not whole is of kind [job.Corrupt]; it proves nothing.
//
// A shell writes the content line by line:
//
//	taken <token> <boot id> ...     the rest is for the runner that launched it
//	code <exit code>
//	began <seconds since boot>
//	ended <seconds since boot>
//	booted <seconds since 1970>
//	<user> <system>                 the shell's processor times, such as 0m0.01s 0m0.00s
//	<user> <system>                 processor times of its children
//	why<what the shell said>        only if the program could not be started
//	signal                          only if the shell reported a signal that ended the program
//	asked                           only if the shell itself was asked to end
//	memory                          only if it saw that the kernel ended something for lack of memory
//	end
//
// Spaces may follow: the file was made with more room than the message needs.
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

// KilledEnd returns the message of a launch whose messenger was killed with its program, after it
// had been asked to end it. taken are the words of its first line. A zero time is not known: the
// end is now then, and the beginning at the end.
func KilledEnd(taken []string, began, ended time.Time) string {
	if ended.IsZero() {
		ended = time.Now()
	}
	if began.IsZero() || began.After(ended) {
		began = ended
	}
	none := "0m0.00s 0m0.00s\n"
	return fmt.Sprintf("%s\ncode 137\nbegan 0\nended %d\nbooted %d\n%s%ssignal\nasked\nend\n", strings.Join(taken, " "),
		ended.Unix()-began.Unix(), began.Unix(), none, none)
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
		} else if lines[7] == "asked" && !e.Asked {
			e.Asked = true
		} else if lines[7] == "memory" && !e.OutOfMemory {
			e.OutOfMemory = true
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
