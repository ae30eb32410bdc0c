// Command storm attacks the service while people use it, and looks whether it kept its promises.
//
// Real processes of pawl serve and pawl worker run a load of mixed jobs: on PostgreSQL three that
// serve and six that work, on three machines, each behind a proxy of its own; on SQLite one. People
// submit jobs, each call again until it is answered, and some calls twice at once; they cancel,
// pause, resume, resubmit and delete; others follow the events, go away and come back. Meanwhile
// processes are killed, frozen, stopped and replaced by those of a next version, the network is
// slow, cut or swallows what is sent, the database dies, refuses connections or writes, clocks are
// wrong and disks are full.
//
// With -restore the database is put back in the end to what it was before, and the machines are
// asked what they know better.
//
// Then the weather clears, and every job must come to its end. What clients were promised
// (clients.ledger) and what jobs did (jobs.ledger, which they write themselves) is compared with
// the database, the folders, the processes of this machine and what the followers of events saw.
// Some of it is compared while the storm goes on.
//
// The last line is a JSON object; "broken" is empty when every promise was kept, and the exit code
// is 0 then. With each promise that was broken come the stories of its jobs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.db, "db", "sqlite", "the database: sqlite, with one process; or postgres, a private server with nine")
	seconds := flag.Int("seconds", 60, "for how long the storm goes on, before all jobs come to their ends")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of load and faults; 0: a random one")
	flag.IntVar(&o.jobs, "jobs", 0, "jobs that are submitted; 0: 70 for each second")
	noSweep := flag.Bool("no-sweep", false, "nobody looks for what was forgotten")
	calm := flag.Bool("calm", false, "without any fault: then nothing may have to be repaired")
	flag.BoolVar(&o.restore, "restore", false, "put the database back to an earlier time when the storm is over")
	flag.StringVar(&o.without, "without", "", "go without a guard, such as turn: the storm must notice")
	flag.StringVar(&o.only, "only", "", "the one fault that there is, such as clock_steps; by default there are all")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder if nothing was broken, too")
	flag.Parse()
	o.duration, o.sweep, o.faults = time.Duration(*seconds)*time.Second, !*noSweep, !*calm
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	if o.jobs == 0 {
		o.jobs = 70 * *seconds
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.out = os.Stdout
	sum, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(2)
	}
	line, err := json.Marshal(sum)
	if err != nil {
		panic(err) // plain data
	}
	fmt.Println(string(line))
	if len(sum.Broken) > 0 {
		os.Exit(1)
	}
}

// A summary is the last line of the program.
type summary struct {
	Seed          uint64         `json:"seed"`
	DB            string         `json:"db"`
	Seconds       float64        `json:"seconds"` // of the storm and of what came after it
	Kills         int            `json:"kills"`
	Faults        map[string]int `json:"faults"`             // of the other kinds
	LeftOut       []string       `json:"left_out,omitempty"` // kinds of faults that this machine does not allow
	Jobs          int            `json:"jobs"`
	States        map[string]int `json:"states"`
	Deleted       int            `json:"deleted"`
	Met           int            `json:"met"`            // jobs that were not made, for there was one with their unique key
	Lost          int            `json:"lost"`           // accepted, and not there or not ended
	LaunchedTwice int            `json:"launched_twice"` // attempts whose program was started twice
	Poison        int            `json:"poison"`         // innocent jobs that were at work in too many kills
	Events        int            `json:"events"`         // that followers saw
	Strangers     int            `json:"strangers"`      // calls for jobs of another tenant that were answered: with nothing
	Repaired      map[string]int `json:"repaired"`       // by the sweep, by class
	Restored      bool           `json:"restored,omitempty"`
	Limits        int            `json:"limits"`       // changes of limits
	Spans         int            `json:"spans"`        // runs of jobs that told when they began and ended
	SideBySide    int            `json:"side_by_side"` // of one key, at most
	Blocked       int            `json:"blocked"`      // how often jobs were, and went on or failed
	Paced         int            `json:"paced"`        // starts and launches that were looked at by their rates
	Without       string         `json:"without,omitempty"`
	Broken        []string       `json:"broken"` // what does not hold, as "name: what was seen"
}
