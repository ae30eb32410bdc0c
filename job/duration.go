package job

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// Duration is a [time.Duration] that is written as text, such as "90s" or "1h30m". [ParseDuration]
// reads it.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s, 1h30m or 1d", b)
	}
	*d = Duration(v)
	return nil
}

// DurationPattern is a regular expression for the durations that users write. They are what
// [ParseDuration] reads without a sign. It checks no bounds.
const DurationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+)$`

// partRE matches one number of a duration, with its unit.
var partRE = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)([a-zµμ]+)`)

var errDuration = errors.New("not a duration such as 90s, 1h30m or 1d")

// ParseDuration reads a duration as [time.ParseDuration] does, and knows two more units: d is a day
// of 24 hours, w is seven of these days.
func ParseDuration(text string) (sum time.Duration, err error) {
	if !strings.ContainsAny(text, "dw") {
		return time.ParseDuration(text)
	}
	rest, negative := strings.CutPrefix(text, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	for rest != "" {
		part := partRE.FindStringSubmatch(rest)
		if part == nil {
			return 0, errDuration
		}
		rest = rest[len(part[0]):]
		unit, times := part[2], time.Duration(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		d, err := time.ParseDuration(part[1] + unit)
		if err != nil || d > (math.MaxInt64-sum)/times {
			return 0, errDuration
		}
		sum += d * times
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}
