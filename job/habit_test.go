package job_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// TestHabits: who writes a spec as other systems have it is told what to write here.
func TestHabits(t *testing.T) {
	for spec, want := range map[string]string{
		`{"command": "echo hi"}`:                               "command (\"echo hi\"): is not a list: write command: [echo, hi], or for a shell script: script: echo hi",
		`{"command": "a | b > c"}`:                             `or for a shell script: script: "a | b > c"`,
		`{"command": "echo hi\necho ho\n"}`:                    `[echo, hi, echo, ho], or for a shell script: script, with a | and the same lines`,
		`{"command": ["ls"], "resources": {"mem": "4G"}}`:      `resources.mem: is not a field of a spec: give memory: 4G`,
		`{"command": ["ls"], "resources": {"time": "1h"}}`:     `give minutes: 60`,
		`{"command": ["ls"], "resources": {"cpus": 4}}`:        `give cores: 4`,
		`{"command": ["ls"], "resources": {"walltime": "1d"}}`: `give minutes: 1440`,
		`{"command": ["sleep", 30]}`:                           `command[1] (30): is not text: put it in quotes: "30"`,
		`{"command": ["grep", null]}`:                          `command[1] (null): is nothing, for which YAML takes ~, null and an empty place: put it in quotes: "~"`,
		`{"command": ["ls"], "env": {"A": null}}`:              `env.A (null): is nothing`,
		`{"command": ["ls"], "labels": {"a": null}}`:           `labels.a (null): is nothing`,
		`{"command": ["ls"], "inputs": [null]}`: `inputs[0] (null): is nothing, for which YAML takes ~, ` +
			`null and an empty place: remove it, or give a map`,
		`{"command": ["ls"], "env": {"A": true}}`:              `env.A (true): is not text: put it in quotes: "true"`,
		`{"command": ["ls"], "env": ["A=b"]}`:                  `write env: {A: b}`,
		`{"command": ["ls"], "timeout": "1h30m"}`:              `timeout: is not a field of a spec: give resources: {minutes: 90}`,
		`{"command": ["ls"], "timeout": 90}`:                   `give resources: {minutes: …}`,
		`{"command": ["ls"], "time": "2d"}`:                    `give resources: {minutes: 2880}`,
		`{"command": ["ls"], "cpus": 4}`:                       `cpus: is not a field of a spec: give resources: {cores: 4}`,
		`{"command": ["ls"], "cores": 4}`:                      `give resources: {cores: 4}`,
		`{"command": ["ls"], "memory": "4GB"}`:                 `give resources: {memory: 4GB}`,
		`{"command": ["ls"], "cpus-per-task": 4}`:              `give resources: {cores: 4}`,
		`{"command": ["ls"], "cwd": "/tmp"}`:                   `each job runs in a folder of its own`,
		`{"command": ["ls"], "workdir": "/tmp"}`:               `each job runs in a folder of its own`,
		`{"command": ["ls"], "image": "alpine"}`:               `containers are not there yet`,
		`{"command": ["ls"], "container": {}}`:                 `is reserved for a later version: containers are not there yet`,
		`{"command": ["ls"], "depends_on": ["a"]}`:             `order: {key: NAME}`,
		`{"command": ["ls"], "from": "a.txt"}`:                 `give inputs: [{from: a.txt}]`,
		`{"command": ["ls"], "include": ["*.csv"]}`:            `give archive: {include: …}`,
		`{"command": ["ls"], "max_attempts": 3}`:               `give retry: {max_attempts: 3}`,
		`{"command": ["ls"], "retries": 3}`:                    `give retry: {max_attempts: …}`,
		`{"command": ["ls"], "retry": 3}`:                      `write retry: {max_attempts: 3}`,
		`{"command": ["ls"], "archive": "out"}`:                `write archive: {to: out}`,
		`{"command": ["ls"], "inputs": "a.txt"}`:               `write inputs: [{from: a.txt}]`,
		`{"command": ["ls"], "limits": "gpu"}`:                 `write limits: [gpu]`,
		`{"command": ["ls"], "arguments": "-n 3"}`:             `write arguments: [-n, "3"]`,
		`{"command": ["ls"], "order": "ledger"}`:               `write order: {key: ledger}`,
		`{"command": ["ls"], "resources": {"env": {}}}`:        `move it out of resources, to stand beside it`,
		`{"command": ["ls"], "resources": {"minutes": "1h"}}`:  `write minutes: 60`,
		`{"script": ["a", "b"]}`:                               `write a text of several lines`,
		`{"command": ["ls"], "archive": {"include": "*.csv"}}`: `write include: ["*.csv"]`,
		`{"command": ["ls"], "cmd": ["x"]}`:                    `cmd: is not a field of a spec: give command`,
		`{"command": ["ls"], "not_before": null, "delay": 90}`: `give a unit, such as 90s`,
		`{"command": ["ls"], "environment": {"A": "b"}}`:       `give env`,
	} {
		_, err := job.ParseSpec([]byte(spec))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", spec, err, want)
		}
	}
}

// TestReadSpec: what can be read is checked beside what cannot.
func TestReadSpec(t *testing.T) {
	for spec, want := range map[string][]string{
		`{"comand": ["ls"], "priority": 10, "delay": "soon"}`:                          {"comand", "delay", "priority"},
		`{"command": "ls", "priority": 10, "inputs": [{"from": ""}], "timeout": 3}`:    {"command", "timeout", "priority", "inputs[0].from"},
		`{"priority": "high", "queue": "a b"}`:                                         {"priority", "kind", "queue"},
		`{"command": ["ls"], "inputs": [{"from": 3}, {"from": ""}], "stdout": "../x"}`: {"inputs[0].from", "stdout"},
		`{"command": ["ls"]}`: nil,
		`[]`:                  {"(spec)"},
		`{"command"`:          {"(spec)"},
	} {
		_, err := job.ReadSpec([]byte(spec), (*job.Spec).Validate)
		var got []string
		var wrong *job.SpecError
		if errors.As(err, &wrong) {
			for _, p := range wrong.Problems {
				got = append(got, p.Path)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: problems of %q; want of %q", spec, got, want)
		}
	}
}
