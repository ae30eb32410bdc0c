// Package sshconfig reads what a person has told OpenSSH, and asks hosts for their keys: it makes
// the host of a system from ~/.ssh/config, and looks in known_hosts. It sends nothing but logins at
// hosts on the way to another one.
package sshconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A Config is a file as ssh_config(5) describes it.
type Config struct {
	File string // empty: ~/.ssh/config, which may be missing
	Home string // the home folder of the person, for ~
	User string // the name of the person, who has the same name on hosts of which the file says none
}

// Bounds of a configuration.
const (
	maxHops    = 8
	maxInclude = 16 // how deep files include others
)

// Host returns how ssh reaches a host: the name of a Host of the file, with or without user@, or
// ssh://[user@]host[:port]. Its error is of kind Invalid if the file says what Pawl cannot do.
func (c Config) Host(name string) (job.Host, error) {
	h := job.Host{Kind: job.HostSSH, Via: job.ViaNative}
	port := ""
	if uri, ok := strings.CutPrefix(name, "ssh://"); ok {
		name, port = splitPort(strings.TrimSuffix(uri, "/"))
	}
	hops, err := c.resolve(name, port, 0)
	if err != nil {
		return h, err
	}
	last := len(hops) - 1
	h.Address, h.Port, h.User, h.Identities = hops[last].Address, hops[last].Port, hops[last].User,
		hops[last].Identities
	h.Jump = append(h.Jump, hops[:last]...)
	return h, nil
}

// resolve returns the hops to a host, itself the last. port is one that was given with its name.
func (c Config) resolve(given, port string, depth int) ([]job.Hop, error) {
	if depth > maxHops {
		return nil, c.refuse("ProxyJump of %s leads through more than %d hosts", given, maxHops)
	}
	user, name, named := cutLast(given, "@")
	if !named {
		name = given
	}
	s := settings{name: name}
	file := cmp.Or(c.File, filepath.Join(c.Home, ".ssh", "config"))
	if err := c.read(&s, file, 0); err != nil && (c.File != "" || depth > 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	if s.command != "" && !strings.EqualFold(s.command, "none") {
		return nil, c.refuse("%s is reached by a ProxyCommand", name)
	}
	hop := job.Hop{User: cmp.Or(user, s.user, c.User), Port: job.DefaultPort, Address: name}
	var err error
	if s.address != "" { // the name itself may have a %, as in fe80::1%eth0
		if hop.Address, err = expand(s.address, map[byte]string{'h': name, 'n': name}); err != nil {
			return nil, c.wrong("HostName of %s: %w", name, err)
		}
	}
	if !strings.Contains(hop.Address, ":") { // a zone of IPv6 keeps its letters
		hop.Address = strings.ToLower(hop.Address)
	}
	if port = cmp.Or(port, s.port); port != "" {
		if hop.Port, err = strconv.Atoi(port); err != nil || hop.Port < 1 || hop.Port > 65535 {
			return nil, c.wrong("Port of %s is %q: write a number from 1 to 65535", name, port)
		}
	}
	for _, file := range s.identities {
		if strings.EqualFold(file, "none") {
			continue
		}
		file, err = expand(file, map[byte]string{
			'd': "~", 'h': hop.Address, 'n': name, 'p': strconv.Itoa(hop.Port), 'r': hop.User, 'u': c.User,
		})
		if err == nil {
			file, err = variables(file)
		}
		if err != nil {
			return nil, c.wrong("IdentityFile of %s: %w", name, err)
		}
		hop.Identities = append(hop.Identities, file)
	}
	hops, err := c.jumps(&s, &hop, depth)
	return append(hops, hop), err
}

// jumps returns the hops on the way to hop.
func (c Config) jumps(s *settings, hop *job.Hop, depth int) (hops []job.Hop, err error) {
	if s.jump == "" || strings.EqualFold(s.jump, "none") {
		return nil, nil
	}
	way, err := expand(s.jump, map[byte]string{
		'h': hop.Address, 'n': s.name, 'p': strconv.Itoa(hop.Port), 'r': hop.User,
	})
	if err != nil {
		return nil, c.wrong("ProxyJump of %s: %w", s.name, err)
	}
	for i, next := range strings.Split(way, ",") {
		next = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(next), "ssh://"), "/")
		name, port := splitPort(next)
		through, err := c.resolve(name, port, depth+1)
		if err != nil {
			return nil, err
		}
		if i > 0 { // what comes before it in the list is the way to it
			through = through[len(through)-1:]
		}
		if hops = append(hops, through...); len(hops) > maxHops {
			return nil, c.refuse("ProxyJump of %s leads through more than %d hosts", s.name, maxHops)
		}
	}
	return hops, nil
}

// splitPort splits host:port and [host]:port. An IPv6 address without brackets has no port.
func splitPort(s string) (host, port string) {
	user, at, named := cutLast(s, "@")
	if !named {
		at = s
	}
	if rest, bracketed := strings.CutPrefix(at, "["); bracketed {
		at, port, _ = strings.Cut(rest, "]")
		port = strings.TrimPrefix(port, ":")
	} else if strings.Count(at, ":") == 1 {
		at, port, _ = strings.Cut(at, ":")
	}
	if named {
		at = user + "@" + at
	}
	return at, port
}

// cutLast is [strings.Cut] at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", "", false
}

// expand replaces the tokens of a value, such as %h.
func expand(value string, tokens map[byte]string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			out.WriteByte(value[i])
			continue
		}
		i++
		switch {
		case i == len(value):
			return "", fmt.Errorf("%s ends with a single %%: write %%%%", value)
		case value[i] == '%':
			out.WriteByte('%')
		default:
			text, known := tokens[value[i]]
			if !known {
				return "", fmt.Errorf("%s has the token %%%c, which Pawl does not know: write what it stands for",
					value, value[i])
			}
			out.WriteString(text)
		}
	}
	return out.String(), nil
}

// settings are what the file says of a host. The first value of each counts.
type settings struct {
	name                               string
	address, user, port, jump, command string
	identities                         []string
}

func (s *settings) set(keyword, value string) {
	first := func(field *string) { *field = cmp.Or(*field, value) }
	switch keyword {
	case "hostname":
		first(&s.address)
	case "user":
		first(&s.user)
	case "port":
		first(&s.port)
	case "identityfile":
		s.identities = append(s.identities, value)
	case "proxyjump": // the first of the two counts; none as a command is one, none as a jump is not
		if s.command == "" {
			first(&s.jump)
		}
	case "proxycommand":
		if s.jump == "" || strings.EqualFold(s.jump, "none") {
			first(&s.command)
		}
	}
}

// read reads what a file says of s.name.
func (c Config) read(s *settings, file string, depth int) error {
	if depth > maxInclude {
		return c.wrong("%s includes itself, or files more than %d deep", file, maxInclude)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return job.Errorf(job.Invalid, "%w", err)
	}
	ours, number := true, 0
	for line := range strings.SplitSeq(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		number++
		keyword, args, err := words(line)
		if err != nil {
			return c.wrong("%s, line %d: %w", file, number, err)
		}
		switch keyword {
		case "": // a comment
			continue
		case "match":
			if ours = len(args) == 1 && strings.EqualFold(args[0], "all"); !ours {
				return c.refuse("%s has Match in line %d", file, number)
			}
			continue
		case "host":
			ours = matches(s.name, args)
			continue
		case "include":
			if ours {
				err = c.include(s, args, depth)
			}
		case "proxycommand", "proxyjump":
			if ours {
				s.set(keyword, strings.Join(args, " "))
			}
		case "hostname", "user", "port", "identityfile":
			if len(args) != 1 || args[0] == "" {
				return c.wrong("%s, line %d: %s wants one word", file, number, keyword)
			}
			if ours {
				s.set(keyword, args[0])
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// include reads the files that patterns fit. A relative one is below ~/.ssh.
func (c Config) include(s *settings, patterns []string, depth int) error {
	for _, pattern := range patterns {
		pattern, err := variables(pattern)
		if err != nil {
			return c.wrong("Include: %w", err)
		}
		if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
			pattern = filepath.Join(c.Home, rest)
		} else if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(c.Home, ".ssh", pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return c.wrong("Include %s: %w", pattern, err)
		}
		for _, file := range files {
			if err := c.read(s, file, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

var variableRE = regexp.MustCompile(`\$\{([^}]*)\}`)

// variables replaces ${NAME} by the variable of the environment.
func variables(value string) (out string, err error) {
	out = variableRE.ReplaceAllStringFunc(value, func(found string) string {
		text, set := os.LookupEnv(found[2 : len(found)-1])
		if !set {
			err = fmt.Errorf("%s has the variable %s, which is not set here: write what it stands for", value, found)
		}
		return text
	})
	return out, err
}

// wrong is the error of a file that cannot be read.
func (c Config) wrong(format string, args ...any) error {
	return job.Errorf(job.Invalid, "ssh config: "+format, args...)
}

// refuse is the error of a file that says what Pawl itself cannot do.
func (c Config) refuse(format string, args ...any) error {
	return job.Errorf(job.Invalid, "ssh config: "+format+", which Pawl does not carry out itself: let the ssh program "+
		"make the connection (--via openssh)", args...)
}
