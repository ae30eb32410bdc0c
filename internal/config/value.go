package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Size is a number of bytes, written as 64MiB.
type Size int64

var units = []struct {
	name  string
	bytes Size
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), Size(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/int64(unit) {
		return fmt.Errorf("write a number of bytes, such as 64MiB")
	}
	*s = Size(n) * unit
	return nil
}

func (s Size) String() string {
	for _, u := range units {
		if s >= u.bytes && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return "0"
}

// Prefixes are networks, written as 10.0.0.0/8,::1.
type Prefixes []netip.Prefix

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Prefixes) UnmarshalText(text []byte) error {
	*p = nil
	for _, s := range list(string(text)) {
		n, err := netip.ParsePrefix(s)
		if addr, alone := netip.ParseAddr(s); alone == nil {
			n, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is no network: write such as 10.0.0.0/8", s)
		}
		*p = append(*p, n.Masked())
	}
	return nil
}

func (p Prefixes) String() string {
	s := make([]string, len(p))
	for i, n := range p {
		s[i] = n.String()
	}
	return strings.Join(s, ",")
}

// Contains reports whether one of the networks has addr.
func (p Prefixes) Contains(addr netip.Addr) bool {
	for _, n := range p {
		if n.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// Programs are programs by name: what starts each, and its arguments. They are written as JSON, or
// as a map of lists in the file.
type Programs map[string][]string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Programs) UnmarshalText(text []byte) error {
	*p = nil
	if err := json.Unmarshal(text, (*map[string][]string)(p)); err != nil {
		return fmt.Errorf(`write programs by name, such as {"mail": ["/usr/local/bin/check-mail", "--quick"]}`)
	}
	for _, name := range slices.Sorted(maps.Keys(*p)) {
		if name == "" {
			return fmt.Errorf("a name is empty")
		}
		if argv := (*p)[name]; len(argv) == 0 || !filepath.IsAbs(argv[0]) {
			return fmt.Errorf("%s: name the program by its whole path, such as /usr/local/bin/check-%s", name, name)
		}
	}
	return nil
}

func (p Programs) String() string {
	if len(p) == 0 {
		return ""
	}
	text, err := json.Marshal(map[string][]string(p))
	if err != nil {
		return err.Error() // plain data
	}
	return string(text)
}

// A Secret is a text that is not shown.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// set reads text into v, and says what would be right when it cannot.
func set(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := job.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("write a duration, such as 90s or 1d")
		}
		*p = d
	case *slog.Level:
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("write debug, info, warn or error")
		}
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *Secret:
		*p = Secret(text)
	case *string:
		*p = text
	case *[]string:
		*p = list(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("write true or false")
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("write a whole number")
		}
		*p = n
	case *float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f {
			return fmt.Errorf("write a number")
		}
		*p = f
	default:
		panic(fmt.Sprintf("config: no way to read a %T", p))
	}
	return nil
}

// shown is a value as people write it.
func shown(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case slog.Level:
		return strings.ToLower(x.String())
	case []string:
		return strings.Join(x, ",")
	case time.Duration:
		return brief(x)
	case fmt.Stringer:
		return x.String()
	}
	return fmt.Sprint(v.Interface())
}

// brief leaves out the parts of a duration that are nothing: 5m for 5m0s.
func brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// compare orders two values that have an order.
func compare(a, b reflect.Value) int {
	if a.CanInt() {
		return int(min(1, max(-1, a.Int()-b.Int())))
	}
	switch d := a.Float() - b.Float(); {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}

// list splits at commas.
func list(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
