package job

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A System is a place where programs run. The system "local" is the machine on which the service
// runs. It is there without a document.
type System struct {
	// The name of the system.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"lab"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// Nothing is launched on it: its jobs wait until it is enabled. Programs that run go on.
	Disabled bool `json:"disabled,omitempty"`

	// The machine on which its programs run.
	Host Host `json:"host,omitzero"`

	// The folder in which jobs have theirs, on an ssh host or for Slurm. It begins with / or ~/, or
	// with a variable such as $SCRATCH. ~ and variables are those of the account there. By default
	// ~/.pawl on an ssh host, and a folder in the data folder on the machine of the service.
	Work string `json:"work,omitempty" maxLength:"1024" example:"$SCRATCH/pawl"`

	// What starts programs. process starts them at once, as processes of the account. slurm
	// submits them to Slurm, whose commands are on the host. The nodes need to see the work folder.
	Runner string `json:"runner,omitempty" enum:"process,slurm" default:"process"`

	// Variables that each program on an ssh host or in Slurm finds set, unless its job sets them.
	Env map[string]string `json:"env,omitempty" maxProperties:"1000" example:"{\"OMP_NUM_THREADS\":\"4\"}"`

	// The shell on an ssh host or in Slurm that reads profile and starts each program. By default
	// [/bin/sh]. A login shell, such as [bash, -l], knows what the login files define, such as
	// module.
	Shell []string `json:"shell,omitempty" maxItems:"16" example:"[\"bash\",\"-l\"]"`

	// Lines of that shell that come before each program.
	Profile string `json:"profile,omitempty" maxLength:"16384" example:"module load gcc"`

	// Folders on an ssh host that jobs may name as system://NAME/path: absolute paths. None by
	// default.
	Files []string `json:"files,omitempty" maxItems:"64" example:"[\"/data\"]"`

	// The most that one job may ask for. A job that asks for more is refused. A field that is left
	// out has no bound.
	Most *Resources `json:"most,omitempty"`

	// The account of Slurm that pays for jobs that name none. By default Slurm chooses it.
	Account string `json:"account,omitempty" maxLength:"128" example:"physics"`

	// The partition of Slurm for jobs that name none. By default the first of partitions; without
	// partitions Slurm chooses it.
	Partition string `json:"partition,omitempty" maxLength:"128" example:"short"`

	// The partitions of Slurm that jobs may name. By default any.
	Partitions []Partition `json:"partitions,omitempty" maxItems:"256"`

	// The options of sbatch that jobs may give in resources.options, as --NAME. By default none.
	Options []string `json:"options,omitempty" maxItems:"64" example:"[\"--licenses\"]"`
}

// A Host says how the machine of a [System] is reached.
type Host struct {
	// How it is reached. local: it is the machine on which the service runs. ssh: another machine.
	Kind string `json:"kind,omitempty" enum:"local,ssh" default:"local"`

	// The name or the IP address of an ssh host. With via openssh a Host of ssh_config.
	Address string `json:"address,omitempty" maxLength:"255" pattern:"^[A-Za-z0-9:_][A-Za-z0-9._:%-]*$" example:"lab.site"`

	// The port of its SSH server; 22 by default.
	Port int `json:"port,omitempty" zero:"refused" minimum:"1" maximum:"65535"`

	// The account there.
	User string `json:"user,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_.][A-Za-z0-9_.@+$\\\\-]*$" example:"ada"`

	// What makes the connection. native: Pawl does. openssh: the ssh program of a machine of the
	// service, over a connection that a person has opened. Then ssh_config says all but the
	// address.
	Via string `json:"via,omitempty" enum:"native,openssh" default:"native"`

	// The hosts that the connection goes through, the nearest first.
	Jump []Hop `json:"jump,omitempty" maxItems:"8"`

	// Private key files on each machine that makes the connection: paths that begin with / or ~/.
	// By default the keys of the agent, and ~/.ssh/id_ed25519, id_ecdsa and id_rsa.
	Identities []string `json:"identities,omitempty" maxItems:"16" example:"[\"~/.ssh/id_lab\"]"`

	// Which machines of the service hold those keys. everywhere: each of them may make the
	// connection. Else give from.
	Keys string `json:"keys,omitempty" enum:"everywhere"`

	// The id of the one machine of the service that holds the keys, the agent or the connection of
	// openssh. Its processes alone run the jobs of the system. pawl apply and pawl systems add give
	// that of the folder that they use.
	From string `json:"from,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"3f9c27a41b7d"`

	// The public keys of the host that are trusted, each as in known_hosts, without the name.
	// Nobody connects while there is none. pawl systems add and pawl systems trust write them.
	HostKeys []string `json:"host_keys,omitempty" maxItems:"16" example:"[\"ssh-ed25519 AAAAC3Nz…\"]"`
}

// A Hop is a host that a connection goes through.
type Hop struct {
	// Its name or IP address.
	Address string `json:"address" maxLength:"255" pattern:"^[A-Za-z0-9:_][A-Za-z0-9._:%-]*$" example:"gate.example.org"`

	// The port of its SSH server; 22 by default.
	Port int `json:"port,omitempty" zero:"refused" minimum:"1" maximum:"65535"`

	// The account there. By default that of the system.
	User string `json:"user,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_.][A-Za-z0-9_.@+$\\\\-]*$" example:"ada"`

	// Private key files, as for the host of the system. By default those.
	Identities []string `json:"identities,omitempty" maxItems:"16" example:"[\"~/.ssh/id_gate\"]"`

	// Its public keys that are trusted, as for the host of the system.
	HostKeys []string `json:"host_keys,omitempty" maxItems:"16" example:"[\"ssh-ed25519 AAAAC3Nz…\"]"`
}

// Apart reports whether the programs of a system are watched apart from those that the service
// starts itself: they are on another machine, or a scheduler has them.
func (s *System) Apart() bool { return s.Host.Kind == HostSSH || s.Scheduled() }

// Scheduled reports whether a scheduler starts the programs of a system.
func (s *System) Scheduled() bool { return s.Runner == RunnerSlurm }

// Starts returns the runner that starts the programs of a system.
func (s *System) Starts() string { return cmp.Or(s.Runner, RunnerProcess) }

// Watch returns the name of the watch over the programs of a system that is apart: SYSTEM/USER, or
// SYSTEM/MACHINE for the scheduler of a machine of the service.
func (s *System) Watch(machine string) string {
	if s.Host.Kind != HostSSH {
		return s.Name + "/" + machine
	}
	return s.Name + "/" + cmp.Or(s.Host.User, s.Host.Address)
}

// The words of a [System] and its [Host].
const (
	HostLocal      = "local"
	HostSSH        = "ssh"
	ViaNative      = "native"
	ViaOpenSSH     = "openssh"
	KeysEverywhere = "everywhere"
	RunnerProcess  = "process"
	RunnerSlurm    = "slurm"
)

// Defaults and bounds of a [System].
const (
	DefaultPort = 22
	DefaultWork = "~/.pawl"

	maxHops       = 8
	maxKeys       = 16 // key files, and keys of one host
	maxVariables  = 1000
	maxShell      = 16
	maxRoots      = 64
	maxPathLength = 1024
	maxProfile    = 16 << 10
)

// ParseSystem reads the document of a system; see [ParseSpec] for its errors. It fills in the
// defaults.
func ParseSystem(doc []byte) (System, error) {
	var s System
	if err := parseResource(doc, &s, KindSystem); err != nil {
		return s, err
	}
	var v validation
	v.resource(s.Name, s.Description)
	s.fill()
	switch s.Host.Kind {
	case HostLocal:
		v.local(&s)
	case HostSSH:
		v.remote(&s)
	default:
		v.add("host.kind", s.Host.Kind, "is unknown", "give local or ssh")
	}
	if s.Most != nil {
		v.amounts("most.", s.Most)
	}
	v.scheduler(&s)
	return s, v.err()
}

// fill fills in the defaults.
func (s *System) fill() {
	h := &s.Host
	if h.Kind == "" {
		h.Kind = HostLocal
	}
	if s.Partition == "" && len(s.Partitions) > 0 {
		s.Partition = s.Partitions[0].Name
	}
	if h.Kind != HostSSH {
		return
	}
	if h.Via == "" {
		h.Via = ViaNative
	}
	if h.Port == 0 && h.Via == ViaNative {
		h.Port = DefaultPort
	}
	for i := range h.Jump {
		if h.Jump[i].Port == 0 {
			h.Jump[i].Port = DefaultPort
		}
		if h.Jump[i].User == "" {
			h.Jump[i].User = h.User
		}
	}
	if s.Work == "" {
		s.Work = DefaultWork
	}
	if s.Runner == "" {
		s.Runner = RunnerProcess
	}
}

// local checks a system on the machine of the service: it has nothing that is for ssh.
func (v *validation) local(s *System) {
	h := &s.Host
	type field struct {
		path string
		set  bool
	}
	fields := []field{
		{"host.address", h.Address != ""},
		{"host.port", h.Port != 0},
		{"host.user", h.User != ""},
		{"host.via", h.Via != ""},
		{"host.jump", len(h.Jump) > 0},
		{"host.identities", len(h.Identities) > 0},
		{"host.keys", h.Keys != ""},
		{"host.from", h.From != ""},
		{"host.host_keys", len(h.HostKeys) > 0},
	}
	if !s.Scheduled() {
		fields = append(fields, []field{
			{"work", s.Work != ""},
			{"env", len(s.Env) > 0},
			{"shell", len(s.Shell) > 0},
			{"profile", s.Profile != ""},
		}...)
	}
	for _, f := range append(fields, field{"files", len(s.Files) > 0}) {
		if f.set {
			v.add(f.path, "", "belongs to a host of kind ssh, not local", "remove it, or give host.kind: ssh")
		}
	}
	if s.Scheduled() && s.Name == SystemLocal {
		v.add("runner", s.Runner, "is not for system local, which starts programs at once", "give the system another "+
			"name, such as cluster")
	}
	v.programs(s)
}

// programs checks how the programs of a system run.
func (v *validation) programs(s *System) {
	if s.Work != "" {
		v.work(s.Work)
	}
	if !slices.Contains([]string{"", RunnerProcess, RunnerSlurm}, s.Runner) {
		v.add("runner", s.Runner, "is unknown", "give "+RunnerProcess+" or "+RunnerSlurm)
	}
	v.many("env", len(s.Env), maxVariables)
	for _, k := range sortedKeys(s.Env) {
		v.variable(member("env", k), k, "")
		v.word(member("env", k), s.Env[k], "") // it may be secret
	}
	v.shell(s.Shell)
	v.profile(s.Profile)
}

// remote checks a system that ssh reaches.
func (v *validation) remote(s *System) {
	h := &s.Host
	v.address("host.address", h.Address)
	switch h.Via {
	case ViaNative:
		v.native(h)
	case ViaOpenSSH:
		v.openSSH(h)
	default:
		v.add("host.via", h.Via, "is unknown", "give native or openssh")
	}
	switch {
	case h.Keys != "" && h.Keys != KeysEverywhere:
		v.add("host.keys", h.Keys, "is unknown", "give "+KeysEverywhere+", or the id of one machine in from")
	case h.Keys != "" && h.From != "":
		v.add("host.keys", h.Keys, "cannot be given together with from", "give one of them")
	case h.Keys == "" && h.From == "":
		v.add("host.from", "", "is missing",
			"give the id of the machine that reaches the host, as pawl workers -o wide "+
				"shows it, or keys: everywhere")
	}
	v.name("host.from", h.From, 64)
	v.programs(s)
	v.many("files", len(s.Files), maxRoots)
	for i, root := range s.Files {
		at := fmt.Sprintf("files[%d]", i)
		switch {
		case !path.IsAbs(root):
			v.add(at, root, "is not absolute", "give a path that begins with /")
		case path.Clean(root) != root:
			v.add(at, root, "is not in its shortest form", "give "+short(path.Clean(root)))
		}
		v.path(at, root)
	}
}

// native checks how Pawl itself reaches a host.
func (v *validation) native(h *Host) {
	v.port("host.port", h.Port)
	if h.User == "" {
		v.add("host.user", "", "is missing", "give the name of the account on the host")
	}
	v.user("host.user", h.User)
	v.identities("host.identities", h.Identities)
	v.hostKeys("host.host_keys", h.HostKeys)
	v.many("host.jump", len(h.Jump), maxHops)
	for i, hop := range h.Jump {
		at := fmt.Sprintf("host.jump[%d].", i)
		v.address(at+"address", hop.Address)
		v.port(at+"port", hop.Port)
		v.user(at+"user", hop.User)
		v.identities(at+"identities", hop.Identities)
		v.hostKeys(at+"host_keys", hop.HostKeys)
	}
}

// openSSH checks how the ssh program reaches a host: all but the address stands in ssh_config.
func (v *validation) openSSH(h *Host) {
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"host.port", h.Port != 0},
		{"host.user", h.User != ""},
		{"host.jump", len(h.Jump) > 0},
		{"host.identities", len(h.Identities) > 0},
		{"host.host_keys", len(h.HostKeys) > 0},
	} {
		if f.set {
			v.add(f.path, "", "stands in ssh_config, with via openssh", "write it there, or give via: native")
		}
	}
}

var (
	addressRE = regexp.MustCompile(`^[A-Za-z0-9:_][A-Za-z0-9._:%-]*$`)
	userRE    = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.@+$\\-]*$`)
	// workRE matches a path that a shell resolves to one word. It has no character that a shell
	// takes for anything but ~ and variables.
	workRE = regexp.MustCompile(`^(/|~/|\$[A-Za-z_]|\$\{[A-Za-z_])`)
	// variableRE matches a variable in such a path.
	variableRE = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})`)
	shellRE    = regexp.MustCompile(`^(/|[A-Za-z0-9_])[A-Za-z0-9_./+-]*$`)
)

func (v *validation) address(at, address string) {
	switch {
	case address == "":
		v.add(at, "", "is missing", "give the name or the IP address of the host")
	case len(address) > 255:
		v.add(at, address, "is too long", "keep it to 255 characters")
	case strings.Contains(address, "@"):
		v.add(at, address, "has an account in it", "give that in user")
	case !addressRE.MatchString(address):
		v.add(at, address, "is no name or IP address", "give one such as lab.example.org, without brackets or a port")
	}
}

func (v *validation) port(at string, port int) {
	if port < 1 || port > 65535 {
		v.add(at, strconv.Itoa(port), "is out of range", "give 1 to 65535")
	}
}

func (v *validation) user(at, user string) {
	if user != "" && (len(user) > 128 || !userRE.MatchString(user)) {
		v.add(at, user, "is no name of an account", "give one as id -un prints it there")
	}
}

func (v *validation) many(at string, n, most int) bool {
	if n > most {
		v.add(at, strconv.Itoa(n), "are too many", fmt.Sprintf("keep to %d", most))
	}
	return n > most
}

func (v *validation) identities(at string, names []string) {
	v.many(at, len(names), maxKeys)
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", at, i)
		if !path.IsAbs(name) && !strings.HasPrefix(name, "~/") {
			v.add(at, name, "is no path of a key file", "give one that begins with / or ~/")
		}
		v.path(at, name)
	}
}

// path checks what every path has to keep.
func (v *validation) path(at, name string) {
	switch {
	case len(name) > maxPathLength:
		v.add(at, name, "is too long", fmt.Sprintf("keep it to %d bytes", maxPathLength))
	case !readable(name):
		v.add(at, name, "has control or invisible characters", "use printable characters")
	}
}

// hostKeyTypes are the kinds of host key that are trusted.
var hostKeyTypes = []string{
	"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa",
}

func (v *validation) hostKeys(at string, lines []string) {
	v.many(at, len(lines), maxKeys)
	for i, line := range lines {
		if what := hostKeyFault(line); what != "" {
			v.add(fmt.Sprintf("%s[%d]", at, i), line, what,
				"give a line such as ssh-ed25519 AAAA…, as ssh-keyscan prints it after the name")
		}
	}
}

// hostKeyFault says why a line is no public host key; empty: it is one. It looks at the form of the
// line alone, for the key itself is checked where it is used.
func hostKeyFault(line string) string {
	words := strings.Split(line, " ")
	if len(line) > 4096 || !readable(line) || len(words) < 2 {
		return "is no public key in one line"
	}
	if !slices.Contains(hostKeyTypes, words[0]) {
		return "is of an unknown kind"
	}
	blob, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(blob) < 4 {
		return "has no key in base64 after its kind"
	}
	n := uint64(binary.BigEndian.Uint32(blob))
	if rest := blob[4:]; n >= uint64(len(rest)) || string(rest[:n]) != words[0] {
		return "holds a key of another kind than it says"
	}
	return ""
}

// work checks the folder of jobs. A shell resolves it on the host, so it must have nothing that a
// shell would carry out.
func (v *validation) work(work string) {
	const such = "give a path such as /scratch/ada, ~/pawl or $SCRATCH/pawl"
	rest := variableRE.ReplaceAllString(work, "x")
	switch clean := path.Clean(work); {
	case !workRE.MatchString(work):
		v.add("work", work, "does not begin with /, ~/ or a variable", such)
	case strings.ContainsAny(rest, "$`\"'\\"):
		v.add("work", work, "has characters that a shell takes for more than a path", such)
	case clean == "/" || clean == "~":
		v.add("work", work, "is not for jobs alone", "give a folder in it")
	case slices.Contains(strings.Split(work, "/"), ".."):
		v.add("work", work, "has .. in it", such)
	}
	v.path("work", work)
}

// foreign are shells that do not know "$@", the program and its arguments.
var foreign = []string{"csh", "tcsh", "fish", "elvish", "nu", "pwsh", "rc", "xonsh"}

func (v *validation) shell(shell []string) {
	v.many("shell", len(shell), maxShell)
	for i, word := range shell {
		at := fmt.Sprintf("shell[%d]", i)
		switch {
		case i == 0 && !shellRE.MatchString(word), i == 0 && word[0] != '/' && strings.Contains(word, "/"):
			v.add(at, word, "is no shell", "give a name such as bash, or an absolute path")
		case i == 0 && slices.Contains(foreign, path.Base(word)):
			v.add(at, word, "is a shell that cannot read what sh does", "give sh, bash, dash, ksh or zsh; the login "+
				"shell of the account may be any")
		case !readable(word):
			v.add(at, word, "has control or invisible characters", "use printable characters")
		case len(word) > maxPathLength:
			v.add(at, word, "is too long", fmt.Sprintf("keep it to %d bytes", maxPathLength))
		}
	}
}

func (v *validation) profile(lines string) {
	size := fmt.Sprintf("%d bytes", len(lines))
	switch {
	case len(lines) > maxProfile:
		v.add("profile", size, "is too large", fmt.Sprintf("keep it to %d bytes, or source a file there", maxProfile))
	case !utf8.ValidString(lines) || strings.ContainsRune(lines, 0):
		v.add("profile", size, "is not text in UTF-8", "remove what is not text")
	case strings.ContainsRune(lines, '\r'):
		v.add("profile", size, "has carriage returns, which a shell takes for a part of the words",
			"end lines with a newline alone")
	}
}
