package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A clock is that of the machine, by which the database and all processes go. What the kernel says
// of files is not wrong with it.
type clock struct {
	file   *os.File // how many seconds it is wrong: each process of this version has it in its memory, see [storm.awry]
	server *testenv.Server
}

// startServer starts the server, with a clock that can be wrong where the machine has what that
// needs.
func (s *storm) startServer(ctx context.Context) (err error) {
	if s.faults {
		s.server, err = testenv.StartPostgresWithClock(ctx)
		if err == nil {
			s.clock, err = newClock(filepath.Join(s.dir, "clock"), s.server)
			return err
		}
		if !errors.Is(err, testenv.ErrMissing) {
			return err
		}
		s.sum.LeftOut = append(s.sum.LeftOut, fmt.Sprintf("clock_steps: %v", err))
	}
	s.server, err = testenv.StartPostgres(ctx)
	return err
}

func newClock(name string, server *testenv.Server) (*clock, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	c := &clock{file, server}
	return c, c.set(0)
}

// set has the clock be wrong from now on.
func (c *clock) set(wrong time.Duration) error {
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(wrong/time.Second)), 0)
	return errors.Join(err, c.server.SetClock(wrong))
}

// clockSteps has the clock of the machine step by an hour, and back again when ctx ends.
func clockSteps(ctx context.Context, s *storm, rnd *rand.Rand) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	hour := []time.Duration{-time.Hour, time.Hour}[rnd.IntN(2)]
	s.printf("the clock steps by %s", hour)
	if err := s.clock.set(hour); err != nil {
		return err
	}
	<-ctx.Done()
	s.printf("the clock steps back")
	return s.clock.set(0)
}
