package bench

import (
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/bench/benchtest"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestBenchGate(t *testing.T) {
	testenv.Aside(t)
	keys := append([]string{
		"jobs", "slots", "batch", "rounds", "most", "keys", "owners", "unlimited_jobs_per_second", "one_key_jobs_per_second", "many_keys_jobs_per_second",
		"ratio_one_key", "ratio_many_keys", "most_running", "unlimited_jobs_per_second_rounds", "one_key_jobs_per_second_rounds",
		"many_keys_jobs_per_second_rounds",
	}, benchtest.MachineKeys...)
	for _, database := range []string{"SQLite", "PostgreSQL"} {
		t.Run(database, func(t *testing.T) {
			dir := t.TempDir()
			args := strings.Fields("gate --jobs 30 --slots 8 --batch 7 --rounds 1 --most 3 --keys 4 --owners 5 -o json --dir " + dir)
			if database == "PostgreSQL" {
				args = append(args, "--db", testenv.Postgres(t).Database(t))
			}
			got := benchtest.Measured(t, Command(), keys, args...)
			for key, want := range map[string]any{"jobs": 30.0, "slots": 8.0, "batch": 7.0, "rounds": 1.0, "most": 3.0, "keys": 4.0, "owners": 5.0} {
				if got[key] != want {
					t.Errorf("%s is %v, want %v", key, got[key], want)
				}
			}
			number := func(key string) float64 { v, _ := got[key].(float64); return v }
			for _, key := range []string{"unlimited", "one_key", "many_keys"} {
				key += "_jobs_per_second"
				if rounds, _ := got[key+"_rounds"].([]any); number(key) <= 0 || len(rounds) != 1 {
					t.Errorf("%s is %v, of rounds %v", key, got[key], got[key+"_rounds"])
				}
			}
			for _, key := range []string{"ratio_one_key", "ratio_many_keys"} {
				if number(key) <= 0 {
					t.Errorf("%s is %v, want more than 0", key, got[key])
				}
			}
			if most := number("most_running"); most < 1 || most > 3 {
				t.Errorf("%v jobs of one key ran at once, and 3 may", most)
			}
			benchtest.WantEmpty(t, dir)
		})
	}
}
