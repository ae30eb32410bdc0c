package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// Two public keys as known_hosts has them.
const (
	keyEd25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	keyDSA     = "ssh-dss AAAAB3NzaC1kc3MAAAACAQE="
)

// ssh is the document of a system that ssh reaches, with other fields in it and in its host.
func ssh(t *testing.T, system, host map[string]any) []byte {
	t.Helper()
	h := map[string]any{"kind": "ssh", "address": "lab.example.org", "user": "ada", "keys": "everywhere"}
	maps.Copy(h, host)
	s := map[string]any{"name": "lab", "host": h}
	maps.Copy(s, system)
	doc, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestSystemDefaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		doc  string
		want job.System
	}{
		"local": {`{"name":"desk"}`, job.System{Name: "desk", Host: job.Host{Kind: job.HostLocal}}},
		"slurm": {
			`{"name":"cluster","runner":"slurm","work":"$SCRATCH/pawl","profile":"module load gcc"}`, job.System{
				Name: "cluster", Runner: job.RunnerSlurm, Host: job.Host{Kind: job.HostLocal}, Work: "$SCRATCH/pawl",
				Profile: "module load gcc",
			},
		},
		"ssh": {
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","from":"3f9c27a41b7d","jump":[{"address":"gate"},{"address":"::1","port":2,"user":"eve"}]}}`,
			job.System{Name: "lab", Work: "~/.pawl", Runner: job.RunnerProcess, Host: job.Host{
				Kind: job.HostSSH, Address: "lab", Port: 22, User: "ada", Via: job.ViaNative, From: "3f9c27a41b7d",
				Jump: []job.Hop{{Address: "gate", Port: 22, User: "ada"}, {Address: "::1", Port: 2, User: "eve"}},
			}},
		},
		"openssh": {
			`{"name":"lab","host":{"kind":"ssh","via":"openssh","address":"lab","keys":"everywhere"}}`,
			job.System{Name: "lab", Work: "~/.pawl", Runner: job.RunnerProcess, Host: job.Host{
				Kind: job.HostSSH, Address: "lab", Via: job.ViaOpenSSH, Keys: job.KeysEverywhere,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := job.ParseSystem([]byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := job.Encode(got)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := job.ParseSystem(again); err != nil || !cmp.Equal(got, same) {
				t.Errorf("written and read again: %+v, %v", same, err)
			}
		})
	}
}

func TestSystemIsTaken(t *testing.T) {
	t.Parallel()
	for _, doc := range [][]byte{
		ssh(t, map[string]any{"work": "/scratch/ada", "files": []string{"/", "/data/set 1"}}, nil),
		ssh(t, map[string]any{"work": "${SCRATCH}/$USER", "shell": []string{"/bin/ksh"}}, nil),
		ssh(t, map[string]any{
			"env":     map[string]string{"A": "two\nlines"},
			"profile": "module load gcc\nulimit -c 0\n",
		}, nil),
		ssh(t, map[string]any{"shell": []string{"bash", "-l"}}, map[string]any{"address": "10.0.0.1", "port": 65535}),
		ssh(t, nil, map[string]any{
			"address": "fe80::1%eth0", "user": `LAB\ada`,
			"identities": []string{"/keys/a b", "~/.ssh/id"},
		}),
		ssh(t, nil, map[string]any{"host_keys": []string{keyEd25519, keyEd25519 + " of the lab"}}),
	} {
		if _, err := job.ParseSystem(doc); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestSystemIsRefused(t *testing.T) {
	t.Parallel()
	const absolute, notShell = "give a path that begins with /", "give a name such as bash, or an absolute path"
	const such = "give a path such as /scratch/ada, ~/pawl or $SCRATCH/pawl"
	const line = "give a line such as ssh-ed25519 AAAA…, as ssh-keyscan prints it after the name"
	const printable = "use printable characters"
	const belongs, elsewhere = "belongs to a host of kind ssh, not local", "remove it, or give host.kind: ssh"
	const inConfig, there = "stands in ssh_config, with via openssh", "write it there, or give via: native"
	hop := func(fields map[string]any) map[string]any { return map[string]any{"jump": []any{fields}} }
	for _, tt := range []struct {
		name string
		doc  []byte
		want []job.Problem
	}{
		{"a host of an unknown kind", []byte(`{"name":"lab","host":{"kind":"slurm"}}`), []job.Problem{
			{"host.kind", "slurm", "is unknown", "give local or ssh"},
		}},
		{"an ssh host of which nothing is known", []byte(`{"name":"lab","host":{"kind":"ssh"}}`), []job.Problem{
			{"host.address", "", "is missing", "give the name or the IP address of the host"},
			{"host.user", "", "is missing", "give the name of the account on the host"},
			{
				"host.from", "", "is missing",
				"give the id of the machine that reaches the host, as pawl workers -o wide shows it, or keys: " +
					"everywhere",
			},
		}},
		{
			"a local host with what is for ssh",
			[]byte(`{"name":"lab","host":{"address":"a","port":1,"user":"u","via":"native","jump":[{"address":"g"}],` +
				`"identities":["/k"],"keys":"everywhere","from":"m","host_keys":["x"]},"work":"/w","env":{"A":"1"},"shell":["sh"],"profile":"x","files":["/d"],"runner":"at"}`),
			[]job.Problem{
				{"host.address", "", belongs, elsewhere},
				{"host.port", "", belongs, elsewhere},
				{"host.user", "", belongs, elsewhere},
				{"host.via", "", belongs, elsewhere},
				{"host.jump", "", belongs, elsewhere},
				{"host.identities", "", belongs, elsewhere},
				{"host.keys", "", belongs, elsewhere},
				{"host.from", "", belongs, elsewhere},
				{"host.host_keys", "", belongs, elsewhere},
				{"work", "", belongs, elsewhere},
				{"env", "", belongs, elsewhere},
				{"shell", "", belongs, elsewhere},
				{"profile", "", belongs, elsewhere},
				{"files", "", belongs, elsewhere},
				{"runner", "at", "is unknown", "give process or slurm"},
			},
		},
		{"openssh with what its own file says", ssh(t, nil, map[string]any{
			"via": "openssh", "port": 2, "jump": []any{map[string]any{"address": "g"}},
			"identities": []string{"/k"}, "host_keys": []string{keyEd25519},
		}), []job.Problem{
			{"host.port", "", inConfig, there},
			{"host.user", "", inConfig, there},
			{"host.jump", "", inConfig, there},
			{"host.identities", "", inConfig, there},
			{"host.host_keys", "", inConfig, there},
		}},
		{
			"an unknown way", ssh(t, nil, map[string]any{"via": "telnet"}),
			[]job.Problem{{"host.via", "telnet", "is unknown", "give native or openssh"}},
		},
		{
			"keys on one machine and on all", ssh(t, nil, map[string]any{"from": "m1"}),
			[]job.Problem{{"host.keys", "everywhere", "cannot be given together with from", "give one of them"}},
		},
		{"keys at an unknown place", ssh(t, nil, map[string]any{"keys": "here"}), []job.Problem{
			{"host.keys", "here", "is unknown", "give everywhere, or the id of one machine in from"},
		}},
		{"a machine that is no name", ssh(t, nil, map[string]any{"keys": "", "from": "m 1"}), []job.Problem{
			{
				"host.from", "m 1", "is not a name",
				"use letters, digits, dot, dash and underscore, and begin with a letter or digit",
			},
		}},
		{"an account in the address", ssh(t, nil, map[string]any{"address": "ada@lab"}), []job.Problem{
			{"host.address", "ada@lab", "has an account in it", "give that in user"},
		}},
		{"an address that is an option", ssh(t, nil, map[string]any{"address": "-oProxyCommand=x"}), []job.Problem{
			{
				"host.address", "-oProxyCommand=x", "is no name or IP address",
				"give one such as lab.example.org, without brackets or a port",
			},
		}},
		{
			"a port and an account that cannot be", ssh(t, nil, map[string]any{"port": 65536, "user": "-l"}),
			[]job.Problem{
				{"host.port", "65536", "is out of range", "give 1 to 65535"},
				{"host.user", "-l", "is no name of an account", "give one as id -un prints it there"},
			},
		},
		{"port 0", ssh(t, nil, map[string]any{"port": 0}), []job.Problem{
			{"host.port", "0", "is out of range", "give more than 0, or remove it for the default"},
		}},
		{
			"key files at no place", ssh(t, nil, map[string]any{"identities": []string{"id_lab", "~ada/id", "/a\nb"}}),
			[]job.Problem{
				{"host.identities[0]", "id_lab", "is no path of a key file", "give one that begins with / or ~/"},
				{"host.identities[1]", "~ada/id", "is no path of a key file", "give one that begins with / or ~/"},
				{"host.identities[2]", `"/a\nb"`, "has control or invisible characters", printable},
			},
		},
		{"host keys that are none", ssh(t, nil, map[string]any{"host_keys": []string{
			"AAAA", keyDSA, "ssh-ed25519 AA*A", "ssh-rsa " + strings.Fields(keyEd25519)[1], "lab " + keyEd25519,
			"ssh-ed25519 AAAA",
		}}), []job.Problem{
			{"host.host_keys[0]", "AAAA", "is no public key in one line", line},
			{"host.host_keys[1]", keyDSA, "is of an unknown kind", line},
			{"host.host_keys[2]", "ssh-ed25519 AA*A", "has no key in base64 after its kind", line},
			{
				"host.host_keys[3]", shortened("ssh-rsa " + strings.Fields(keyEd25519)[1]),
				"holds a key of another kind than it says", line,
			},
			{"host.host_keys[4]", shortened("lab " + keyEd25519), "is of an unknown kind", line},
			{"host.host_keys[5]", "ssh-ed25519 AAAA", "has no key in base64 after its kind", line},
		}},
		{"a jump host that is none", ssh(t, nil,
			hop(map[string]any{
				"port": 70000, "user": "a b", "identities": []string{"k"},
				"host_keys": []string{"k"},
			})), []job.Problem{
			{"host.jump[0].address", "", "is missing", "give the name or the IP address of the host"},
			{"host.jump[0].port", "70000", "is out of range", "give 1 to 65535"},
			{"host.jump[0].user", "a b", "is no name of an account", "give one as id -un prints it there"},
			{"host.jump[0].identities[0]", "k", "is no path of a key file", "give one that begins with / or ~/"},
			{"host.jump[0].host_keys[0]", "k", "is no public key in one line", line},
		}},
		{"too many", ssh(t, map[string]any{"files": many(65, "/x"), "shell": many(17, "sh")}, map[string]any{
			"identities": many(17, "/k"), "host_keys": many(17, keyEd25519),
		}), []job.Problem{
			{"host.identities", "17", "are too many", "keep to 16"},
			{"host.host_keys", "17", "are too many", "keep to 16"},
			{"shell", "17", "are too many", "keep to 16"},
			{"files", "65", "are too many", "keep to 64"},
		}},
		{
			"a relative work folder", ssh(t, map[string]any{"work": "jobs"}, nil),
			[]job.Problem{{"work", "jobs", "does not begin with /, ~/ or a variable", such}},
		},
		{
			"a work folder that is everybody's", ssh(t, map[string]any{"work": "/"}, nil),
			[]job.Problem{{"work", "/", "is not for jobs alone", "give a folder in it"}},
		},
		{
			"a work folder that is the home", ssh(t, map[string]any{"work": "~/."}, nil),
			[]job.Problem{{"work", "~/.", "is not for jobs alone", "give a folder in it"}},
		},
		{
			"a work folder that leads up", ssh(t, map[string]any{"work": "~/a/../.."}, nil),
			[]job.Problem{{"work", "~/a/../..", "has .. in it", such}},
		},
		{
			"a work folder that is a command", ssh(t, map[string]any{"work": "$(rm -rf x)"}, nil),
			[]job.Problem{{"work", "$(rm -rf x)", "does not begin with /, ~/ or a variable", such}},
		},
		{"a work folder with a command in it", ssh(t, map[string]any{"work": "~/`id`"}, nil), []job.Problem{
			{"work", "~/`id`", "has characters that a shell takes for more than a path", such},
		}},
		{"a work folder with an expression in it", ssh(t, map[string]any{"work": "$HOME/${X:-y}"}, nil), []job.Problem{
			{"work", "$HOME/${X:-y}", "has characters that a shell takes for more than a path", such},
		}},
		{
			"a work folder of two lines", ssh(t, map[string]any{"work": "/a\nb"}, nil),
			[]job.Problem{{"work", `"/a\nb"`, "has control or invisible characters", printable}},
		},
		{
			"an unknown runner", ssh(t, map[string]any{"runner": "at"}, nil),
			[]job.Problem{{"runner", "at", "is unknown", "give process or slurm"}},
		},
		{
			"system local with a scheduler", json.RawMessage(`{"name":"local","runner":"slurm"}`),
			[]job.Problem{{
				"runner", "slurm", "is not for system local, which starts programs at once",
				"give the system another name, such as cluster",
			}},
		},
		{"variables that are none", ssh(t,
			map[string]any{"env": map[string]string{"1": "x", "PAWL_X": "y", "A": "b\x00c"}}, nil), []job.Problem{
			{
				"env.1", "", "is not a variable's name",
				"use letters, digits and underscores, and do not begin with a digit",
			},
			{"env.A", "", "has a NUL byte", "remove it"},
			{"env.PAWL_X", "", "is reserved", "use a name that does not begin with PAWL_"},
		}},
		{
			"no shell", ssh(t, map[string]any{"shell": []string{""}}, nil),
			[]job.Problem{{"shell[0]", "", "is no shell", notShell}},
		},
		{
			"a shell of another kind", ssh(t, map[string]any{"shell": []string{"/bin/fish"}}, nil),
			[]job.Problem{{
				"shell[0]", "/bin/fish", "is a shell that cannot read what sh does",
				"give sh, bash, dash, ksh or zsh; the login shell of the account may be any",
			}},
		},
		{
			"a shell in some folder", ssh(t, map[string]any{"shell": []string{"bin/sh"}}, nil),
			[]job.Problem{{"shell[0]", "bin/sh", "is no shell", notShell}},
		},
		{"a shell that is a line", ssh(t, map[string]any{"shell": []string{"bash -l", "-c\n"}}, nil), []job.Problem{
			{"shell[0]", "bash -l", "is no shell", notShell},
			{"shell[1]", `"-c\n"`, "has control or invisible characters", printable},
		}},
		{"lines as Windows ends them", ssh(t, map[string]any{"profile": "module load gcc\r\n"}, nil), []job.Problem{
			{
				"profile", "17 bytes", "has carriage returns, which a shell takes for a part of the words",
				"end lines with a newline alone",
			},
		}},
		{
			"lines that are no text", ssh(t, map[string]any{"profile": "a\x00"}, nil),
			[]job.Problem{{"profile", "2 bytes", "is not text in UTF-8", "remove what is not text"}},
		},
		{"too many lines", ssh(t, map[string]any{"profile": strings.Repeat("x", 16385)}, nil), []job.Problem{
			{"profile", "16385 bytes", "is too large", "keep it to 16384 bytes, or source a file there"},
		}},
		{
			"folders that are none", ssh(t, map[string]any{"files": []string{"data", "/data/", "/a/../b", "~"}}, nil),
			[]job.Problem{
				{"files[0]", "data", "is not absolute", absolute},
				{"files[1]", "/data/", "is not in its shortest form", "give /data"},
				{"files[2]", "/a/../b", "is not in its shortest form", "give /b"},
				{"files[3]", "~", "is not absolute", absolute},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := job.ParseSystem(tt.doc)
			var wrong *job.SpecError
			if !errors.As(err, &wrong) {
				t.Fatalf("%s: %v", tt.doc, err)
			}
			if diff := cmp.Diff(tt.want, wrong.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func many(n int, text string) (all []string) {
	for i := range n {
		if text[0] == '/' {
			all = append(all, fmt.Sprintf("%s%d", text, i))
		} else {
			all = append(all, text)
		}
	}
	return all
}

func TestSystemHasOneNode(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]job.System{
		"without bounds": {Name: "lab"}, "with bounds": {Name: "lab", Most: &job.Resources{Nodes: 4}},
	} {
		want := []job.Problem{{
			"resources.nodes", "2", "is too many: system lab has no scheduler, so a job there has one node",
			"give 1, or name a system with runner: slurm",
		}}
		if diff := cmp.Diff(want, s.Refuse(&job.Resources{Nodes: 2})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		s.Runner = job.RunnerSlurm
		if found := s.Refuse(&job.Resources{Nodes: 2}); found != nil {
			t.Errorf("%s: two nodes of a scheduler are refused: %v", name, found)
		}
		s.Runner = ""
		if found := s.Refuse(&job.Resources{Nodes: 1}); found != nil {
			t.Errorf("%s: one node is refused: %v", name, found)
		}
	}
}
