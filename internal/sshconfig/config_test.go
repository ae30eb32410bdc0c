package sshconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// home is a home folder with files in .ssh.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, ".ssh", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "$HOME", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestHost(t *testing.T) {
	t.Setenv("PAWL_TEST_SSHCONFIG", "sub")
	host := func(address string, port int, user string, change ...func(*job.Host)) job.Host {
		h := job.Host{Kind: job.HostSSH, Via: job.ViaNative, Address: address, Port: port, User: user}
		for _, c := range change {
			c(&h)
		}
		return h
	}
	keys := func(files ...string) func(*job.Host) { return func(h *job.Host) { h.Identities = files } }
	jump := func(hops ...job.Hop) func(*job.Host) { return func(h *job.Host) { h.Jump = hops } }
	gate := job.Hop{Address: "gate.example.org", Port: 2200, User: "gina", Identities: []string{"/keys/gate"}}
	const gates = "Host gate\n Hostname gate.example.org\n Port 2200\n User gina\n IdentityFile /keys/gate\n"
	for name, tt := range map[string]struct {
		files map[string]string
		ask   string
		want  job.Host
	}{
		"without a file": {nil, "lab", host("lab", 22, "me")},
		"not in the file": {
			map[string]string{"config": gates},
			"lab.example.org", host("lab.example.org", 22, "me"),
		},
		"an account in the name": {map[string]string{"config": "Host lab\n User ada\n"}, "eve@lab", host("lab", 22, "eve")},
		"the first value counts": {
			map[string]string{"config": "User first\nHost lab\n User ada\n Port 7\n Port 8\n" +
				"Host *\n Port 9\n HostName=%h.example.org\n"},
			"lab", host("lab.example.org", 7, "first"),
		},
		"a host that is left out": {
			map[string]string{"config": "Host l* !lab\n User ada\nHost lab\n User eve\n"},
			"lab", host("lab", 22, "eve"),
		},
		"key files": {
			map[string]string{"config": "Host lab\n IdentityFile ~/.ssh/a\n IdentityFile \"%d/b c\"\n" +
				"Host *\n IdentityFile /k/%r@%h\n IdentityFile none\n User u%%\n"},
			"lab", host("lab", 22, "u%%", keys("~/.ssh/a", "~/b c", "/k/u%%@lab")),
		},
		"included files count where they stand": {
			map[string]string{
				"config":   "Host x\n Include only_x\nHost *\n Include conf.d/* ~/.ssh/late\n User late\n",
				"only_x":   "User wrong\nHost lab\n Port 1\n",
				"conf.d/1": "Host lab\n HostName one.example.org\nHost other\n User other\n",
				"conf.d/2": "include=$HOME/.ssh/deep\nHost *\n HostName two.example.org\n",
				"deep":     "Port 77\n",
				"late":     "Port 78\n",
			}, "lab", host("one.example.org", 77, "late"),
		},
		"one jump": {
			map[string]string{"config": gates + "Host lab\n ProxyJump gate\n"},
			"lab", host("lab", 22, "me", jump(gate)),
		},
		"several jumps": {
			map[string]string{"config": gates + "Host lab\n ProxyJump gate,ada@inner:23, ssh://[fe80::1]:24\n"},
			"lab",
			host("lab", 22, "me", jump(
				gate, job.Hop{Address: "inner", Port: 23, User: "ada"},
				job.Hop{Address: "fe80::1", Port: 24, User: "me"},
			)),
		},
		"a jump before the jump": {
			map[string]string{"config": gates + "Host inner\n ProxyJump gate\nHost lab\n ProxyJump inner\n"},
			"lab",
			host("lab", 22, "me", jump(gate, job.Hop{Address: "inner", Port: 22, User: "me"})),
		},
		"the way to a second jump is the first": {
			map[string]string{"config": "Host inner\n ProxyJump elsewhere\nHost lab\n ProxyJump first,inner\n"},
			"lab",
			host("lab", 22, "me", jump(
				job.Hop{Address: "first", Port: 22, User: "me"},
				job.Hop{Address: "inner", Port: 22, User: "me"},
			)),
		},
		"a jump that is named after the host": {
			map[string]string{"config": "Host lab\n HostName lab.site\n ProxyJump gate-%h\n"},
			"lab",
			host("lab.site", 22, "me", jump(job.Hop{Address: "gate-lab.site", Port: 22, User: "me"})),
		},
		"no jump": {
			map[string]string{"config": "Host lab\n ProxyJump none\n ProxyJump x\n ProxyCommand none\n ProxyCommand x\n"},
			"lab", host("lab", 22, "me"),
		},
		"no command is one, and the jump after it does not count": {
			map[string]string{"config": gates + "Host gate\n ProxyCommand none\nHost *\n ProxyJump gate\n"},
			"gate", host("gate.example.org", 2200, "gina", keys("/keys/gate")),
		},
		"comments": {
			map[string]string{
				"config": "Host lab # Port 1\n Port 2 # User eve\n User ada#1\n # User eve\n ProxyJump gate # x\n",
			},
			"lab", host("lab", 2, "ada#1", jump(job.Hop{Address: "gate", Port: 22, User: "me"})),
		},
		"quotes and blanks": {
			map[string]string{"config": "\"Host\" \"lab\"\n User 'ada'\n Port=\"7\"\r\n" +
				"\tIdentityFile '~/a #b'\n IdentityFile ~/c\\ d\n IdentityFile \"~/\\\"e\\\"\"  \n"},
			"lab", host("lab", 7, "ada", keys("~/a #b", "~/c d", `~/"e"`)),
		},
		"quotes in patterns and included files": {
			map[string]string{
				"config":       "Include \"conf d/*\" 'other'\nHost \"a lab\"\n User wrong\n",
				"conf d/1":     "Host 'x' \"l?b\"\n User ada\n",
				"other":        "Host lab? ?ab? la[b]\n Port 1\nHost ??b *x*\n Port 2\n",
				"unrelated/is": "User wrong\n",
			},
			"lab", host("lab", 2, "ada"),
		},
		"variables of the environment": {
			map[string]string{
				"config": "Include ${PAWL_TEST_SSHCONFIG}/more\n", "sub/more": "IdentityFile /k/${PAWL_TEST_SSHCONFIG}/$OTHER\n",
			},
			"lab", host("lab", 22, "me", keys("/k/sub/$OTHER")),
		},
		"all tokens of key files": {
			map[string]string{
				"config": "Host lab\n HostName LAB.site\n Port 7\n User ada\n IdentityFile %d/%h-%n-%p-%r-%u-%%\n",
			},
			"lab", host("lab.site", 7, "ada", keys("~/lab.site-lab-7-ada-me-%")),
		},
		"an address with a zone": {nil, "fe80::1%eth0", host("fe80::1%eth0", 22, "me")},
		"an address with a zone, too": {
			map[string]string{"config": "HostName fe80::1%%Eth0\n"}, "lab", host("fe80::1%Eth0", 22, "me"),
		},
		"a URI": {
			map[string]string{"config": "Host lab\n User ada\n HostName lab.site\n Port 7\n"},
			"ssh://eve@lab:2222", host("lab.site", 2222, "eve"),
		},
		"a URI without more": {map[string]string{"config": "Host lab\n Port 7\n"}, "ssh://lab/", host("lab", 7, "me")},
		"a mark of the order of bytes": {
			map[string]string{"config": "\ufeffHost other\n User wrong\n"}, "lab", host("lab", 22, "me"),
		},
		"a command that counts for nothing": {
			map[string]string{"config": gates + "Host lab\n ProxyJump gate\n ProxyCommand nc %h %p\n"},
			"lab",
			host("lab", 22, "me", jump(gate)),
		},
		"Match in words": {
			map[string]string{"config": "# Match all\nHost Match\n User ada\nHost lab\n Port 2\n"},
			"lab", host("lab", 2, "me"),
		},
		"Match all": {
			map[string]string{"config": "Host other\n Port 3\nMatch all\n User ada\nHost lab\n Port 2\nmatch=ALL\n Port 4\n"},
			"lab", host("lab", 2, "ada"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Config{Home: home(t, tt.files), User: "me"}.Host(tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostIsRefused(t *testing.T) {
	t.Parallel()
	for want, files := range map[string]map[string]string{
		"lab is reached by a ProxyCommand, which Pawl does not carry out itself": {
			"config": "Host *\n ProxyCommand nc %h %p\n",
		},
		"config has Match in line 2, which": {
			"config": "Host a\nMATCH exec true\n User x\n",
		},
		"more has Match in line 1, which": {
			"config": "Include more\n", "more": "match=all final\n",
		},
		"leads through more than 8 hosts": {
			"config": "Host *\n ProxyJump a\n",
		},
		"leads through more than 8 hosts, which": {
			"config": "Host lab\n ProxyJump a,b,c,d,e,f,g,h,i\n",
		},
		"includes itself, or files more than 16 deep": {"config": "Include config\n"},
		"lab is reached by a ProxyCommand, which": {
			"config": "Host lab\n ProxyJump none\n ProxyCommand x\n ProxyCommand none\n",
		},
		"Port of lab is \"ssh\": write a number from 1 to 65535": {
			"config": "Host lab\n Port ssh\n",
		},
		"Port of lab is \"0\": write a number from 1 to 65535": {
			"config": "Host lab\n Port 0\n",
		},
		"Port of lab is \"65536\": write a number from 1 to 65535": {
			"config": "Host lab\n Port 65536\n",
		},
		"config, line 2: port wants one word": {"config": "Host other\n Port 22 23\n"},
		"config, line 1: user wants one word": {"config": "User # nobody\n"},
		"config, line 3: a quote is not closed": {
			"config": "Host a\n\n User 'ada\n",
		},
		"has the variable ${PAWL_TEST_UNSET}, which is not set here": {
			"config": "IdentityFile ${PAWL_TEST_UNSET}/k\n",
		},
		"HostName of lab: x%p has the token %p, which": {
			"config": "Host lab\n HostName x%p\n",
		},
		"IdentityFile of lab: ~/k% ends with a single %: write %%": {
			"config": "Host lab\n IdentityFile ~/k%\n",
		},
		"ProxyJump of lab: %C has the token %C, which": {
			"config": "Host lab\n ProxyJump %C\n",
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			h, err := Config{Home: home(t, files), User: "me"}.Host("lab")
			if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
	if _, err := (Config{File: "/nonexistent", Home: t.TempDir()}).Host("lab"); job.KindOf(err) != job.Invalid {
		t.Errorf("a file that is named and missing: %v", err)
	}
}
