package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// folders: nothing is left that should be gone.
func (c *checker) folders() {
	for _, m := range c.machines() {
		if err := checks.Folder(c.folder(m), tenant, c.fileLeft); err != nil {
			c.breaks("folder: %v", err)
		}
		c.rooms(m)
		c.work(m)
		c.archives(m)
		lock, err := folder.Take(c.folder(m))
		if err != nil {
			c.breaks("lock_left: %s: %v", m, err)
			continue
		}
		lock.Close()
	}
}

// rooms is the folder in which the end of a program is kept until its job's folder goes.
const rooms = ".rooms"

func (c *checker) rooms(machine string) {
	for _, e := range c.list(machine, "ends/"+rooms) {
		k, _, err := runner.ParseEndName(e.Name())
		if j := c.rows[k.Job]; err != nil || j == nil || j.State == job.Finished {
			c.broken(k.Job, "file_left: %s/ends/%s/%s", machine, rooms, e.Name())
		}
	}
}

// work: programs that did not finish leave their folders to whoever wants to know why.
func (c *checker) work(machine string) {
	for _, e := range c.list(machine, "work/"+tenant) {
		id, err := job.ParseID(e.Name())
		switch j := c.rows[id]; {
		case err != nil:
			c.breaks("file_left: %s/work/%s/%s", machine, tenant, e.Name())
		case j == nil:
			c.broken(id, "work_left: job %s is not there, and %s/work/%s/%s is", id, machine, tenant, e.Name())
		case j.State == job.Finished:
			c.broken(id, "work_left: job %s is FINISHED, and %s/work/%s/%s is there", id, machine, tenant, e.Name())
		}
	}
}

// archives: results go with their job. Of one that was accepted after the database was saved nobody
// knows any more.
func (c *checker) archives(machine string) {
	for _, e := range c.list(machine, "archive/"+tenant) {
		if id, err := job.ParseID(e.Name()); err == nil && c.rows[id] == nil && !c.restored() {
			c.broken(id, "archive_left: job %s is not there, and %s/archive/%s/%s is", id, machine, tenant, e.Name())
		}
	}
}

func (c *checker) fileLeft(name string) {
	c.breaks("file_left: %s", strings.TrimPrefix(name, c.dir+"/"))
	if id, found := idIn(name); found {
		c.tell(id)
	}
}

func (c *checker) list(machine, name string) []fs.DirEntry {
	list, err := os.ReadDir(filepath.Join(c.folder(machine), name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.breaks("folder: %v", err)
	}
	return list
}
