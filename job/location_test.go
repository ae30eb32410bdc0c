package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestOnSystem(t *testing.T) {
	t.Parallel()
	for place, want := range map[string][3]any{
		"system://lab/data/in.txt":   {"lab", "/data/in.txt", true},
		"SYSTEM://lab//a/../b%20 c/": {"lab", "/b%20 c", true},
		"system://lab":               {"lab", "/", true},
		"system://lab/../../etc":     {"lab", "/etc", true},
		"system:lab/x":               {"", "", false},
		"/system://lab/x":            {"", "", false},
		"https://lab/x":              {"", "", false},
	} {
		system, name, ok := job.OnSystem(place)
		if got := [3]any{system, name, ok}; got != want {
			t.Errorf("%s: %v, want %v", place, got, want)
		}
	}
}

func TestRefuseLocations(t *testing.T) {
	t.Parallel()
	ssh := func(name, from string, roots ...string) job.System {
		return job.System{Name: name, Files: roots, Host: job.Host{Kind: job.HostSSH, From: from}}
	}
	systems := map[string]job.System{
		"local": {Name: "local"}, "lab": ssh("lab", "m1", "/data", "/x"), "bare": ssh("bare", "m1"),
		"all": ssh("all", "", "/"),
	}
	const edit = "in the document of the system (pawl get system lab -o yaml >lab.yaml, then pawl apply -f lab.yaml)"
	for from, want := range map[string]*job.Problem{
		"/data/x":                      nil,
		"system://lab/data":            nil,
		"system://lab/x/../data/a":     nil,
		"system://all/etc":             nil,
		"system://${PAWL_SYSTEM}/data": nil,
		"system://none/a":              {What: "is on a system that is unknown", Remedy: "give one that pawl get systems lists, or make it"},
		"system://local/a":             {What: "is on the machine of the service", Remedy: "give the path alone: /a"},
		"system://bare/a": {
			What: "is on system bare, where jobs can name no files", Remedy: "add its folder to files in the " +
				"document of the system (pawl get system bare -o yaml >bare.yaml, then pawl apply -f bare.yaml)",
		},
		"system://lab/database": {
			What:   "is in no folder of system lab that jobs can name",
			Remedy: "give a path in /data, /x, or add its folder to files " + edit,
		},
		"system://lab/data/../etc": {
			What:   "is in no folder of system lab that jobs can name",
			Remedy: "give a path in /data, /x, or add its folder to files " + edit,
		},
	} {
		s := job.Spec{Inputs: []job.Input{{From: from}}}
		var problems []job.Problem
		if want != nil {
			want.Path, want.Value = "inputs[0].from", from
			problems = append(problems, *want)
		}
		if diff := cmp.Diff(problems, s.RefuseLocations(systems, "m1")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", from, diff)
		}
		to := job.Spec{Archive: &job.Archive{To: from}}
		if want != nil {
			problems[0].Path = "archive.to"
		}
		if diff := cmp.Diff(problems, to.RefuseLocations(systems, "m1")); diff != "" {
			t.Errorf("to %s (-want +got):\n%s", from, diff)
		}
		to.Archive.On = job.ArchiveNever
		if found := to.RefuseLocations(systems, "m1"); found != nil {
			t.Errorf("to %s, but nothing is archived: %v", from, found)
		}
	}
	s := job.Spec{Inputs: []job.Input{{From: "system://lab/data"}, {From: "system://all/data"}}}
	for _, machine := range []string{"m2", ""} {
		found := s.RefuseLocations(systems, machine)
		if len(found) != 1 || found[0].What != "is on system lab, which machine m1 alone reaches, and the job is not of that machine" {
			t.Errorf("a job of machine %q: %v", machine, found)
		}
	}
}

func TestFolderOfASystem(t *testing.T) {
	env := []string{"HOME=/home/ada", "USER=ada", "NAMED=$USER", "SCRATCH=/scratch/", "NONE=", "LOW=low"}
	for work, want := range map[string]string{
		"/data/pawl":         "/data/pawl",
		"~":                  "/home/ada",
		"~/jobs/../.pawl":    "/home/ada/.pawl",
		"$SCRATCH/pawl":      "/scratch/pawl",
		"${SCRATCH}/pawl":    "/scratch/pawl",
		"$SCRATCH":           "/scratch",
		"$TMP/pawl":          "work: the account there has no variable TMP",
		"$NONE/pawl":         "work: the variable NONE of the account there is empty",
		"/data/$NONE/pawl":   "work: the variable NONE of the account there is empty",
		"/data/$USER/pawl":   "/data/ada/pawl",
		"/data/$TMP/pawl":    "work: the account there has no variable TMP",
		"$SCRATCH${USER}-2":  "/scratch/ada-2",
		"/data/$NAMED":       "/data/$USER",
		"$LOW/pawl":          "work: low/pawl is no absolute path there",
		"pawl":               "work: pawl is no absolute path there",
		"/data/$SCRATCH/one": "/data/scratch/one",
	} {
		got, err := (&job.System{Work: work}).Folder(env)
		if err != nil {
			if got = err.Error(); job.KindOf(err) != job.Invalid {
				t.Errorf("%s: %v", work, err)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", work, got, want)
		}
	}
}
