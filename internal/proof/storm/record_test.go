package main

import (
	"archive/zip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

var update = flag.Bool("update", false, "live a sound world, and record it in testdata")

const (
	recordFile = "testdata/sound.zip" // the folder of a world
	bookFile   = "book.json"          // in it: what people know of the world
	recordedAt = "/sound"             // where archives stand, as the rows say
)

var comment = regexp.MustCompile(`--.*`)

// A record is what people know of a world.
type record struct {
	Promises  []known
	Heard     []map[job.ID][]job.Event // by each ear
	Strangers []job.ID
}

// known is what a promise knows besides its order.
type known struct {
	Name                              string
	ID                                job.ID
	At, Begun                         time.Time
	Answered, Since                   time.Duration
	Again                             int
	Asked, Granted, Deleting, Deleted bool
}

// record writes a world that is over to testdata.
func (w *world) record(t *testing.T) {
	r := record{Strangers: w.strangers.accepted}
	for _, p := range w.book.all {
		r.Promises = append(r.Promises, known{
			Name: p.name, ID: p.id, At: p.at, Begun: p.begun, Answered: p.answered, Since: p.since, Again: p.again,
			Asked: p.asked, Granted: p.granted, Deleting: p.deleting, Deleted: p.deleted,
		})
	}
	for _, e := range w.ears {
		r.Heard = append(r.Heard, e.jobs)
	}
	text, err := json.Marshal(r)
	must(t, err)
	c := w.copied(t)
	must(t, os.WriteFile(filepath.Join(c.dir, bookFile), text, 0o600))
	c.execute(t, `UPDATE specs SET resolved = replace(resolved, ?1, ?2) WHERE resolved IS NOT NULL`, c.dir, recordedAt)
	f, err := os.Create(recordFile)
	must(t, err)
	z := zip.NewWriter(f)
	must(t, z.AddFS(os.DirFS(c.dir)))
	must(t, z.Close())
	must(t, f.Close())
}

// recorded makes the world of testdata in a folder.
func recorded(t *testing.T, dir string) *world {
	z, err := zip.OpenReader(recordFile)
	must(t, err)
	defer z.Close()
	must(t, os.CopyFS(dir, z))
	text, err := os.ReadFile(filepath.Join(dir, bookFile))
	must(t, err)
	var r record
	must(t, json.Unmarshal(text, &r))

	w := newWorld(dir)
	if diff := cmp.Diff(schema(t, fresh(t)), schema(t, w.folder("m0"))); diff != "" {
		t.Fatalf("the schema has changed since the world was recorded (-now +then): "+
			"record it anew, with -update\n%s", diff)
	}
	w.execute(t, `UPDATE specs SET resolved = replace(resolved, ?1, ?2) WHERE resolved IS NOT NULL`, recordedAt, dir)
	w.nodes = []*node{{name: "m0.0", machine: "m0", role: "serve", api: &way{addr: "127.0.0.1:1"}}} // nobody is there
	w.book, err = newBook(w.storm)
	must(t, err)
	t.Cleanup(w.book.close)
	orders := w.orders()
	for _, k := range r.Promises {
		o := orders[slices.IndexFunc(orders, func(o order) bool { return o.name == k.Name })]
		o.begun, o.since, o.again = k.Begun, k.Since, k.Again
		p := &promise{
			order: o, id: k.ID, at: k.At, answered: k.Answered,
			asked: k.Asked, granted: k.Granted, deleting: k.Deleting, deleted: k.Deleted,
		}
		w.book.all, w.book.byID[p.id] = append(w.book.all, p), p
	}
	for i, heard := range r.Heard {
		e := newEar(w.storm, i)
		e.jobs = heard
		w.ears = append(w.ears, e)
	}
	w.strangers.accepted = r.Strangers
	return w
}

// fresh returns a data folder that has just been made.
func fresh(t *testing.T) string {
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	must(t, err)
	must(t, s.Close())
	return dir
}

// schema returns how the tables of a data folder were made, without comments.
func schema(t *testing.T, dir string) string {
	db, err := checks.Open("", dir, "ro")
	must(t, err)
	defer db.Close()
	rows, err := db.Query(`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name`)
	must(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var sql string
		must(t, rows.Scan(&sql))
		all = append(all, strings.Join(strings.Fields(comment.ReplaceAllString(sql, "")), " "))
	}
	must(t, rows.Err())
	return strings.Join(all, "\n")
}
