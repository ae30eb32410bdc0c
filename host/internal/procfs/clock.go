package procfs

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Clock is /proc/uptime of a machine, told by the clock of this process. Its methods are safe for
// concurrent use.
type Clock struct {
	mu    sync.Mutex
	began time.Time // when the machine began to run; what was seen can only be late
	asked time.Time
}

const clockLasts = 10 * time.Minute // the two clocks go apart by then, by a millisecond or so

// Set sets the clock by what the machine has said just now.
func (c *Clock) Set(uptime string) (time.Duration, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(uptime), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, err
	}
	up := time.Duration(seconds * float64(time.Second))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
	c.began = c.asked.Add(-up)
	return up, nil
}

// AtLeast sets the clock ahead if it is behind what the machine says.
func (c *Clock) AtLeast(up time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if began := time.Now().Add(-up); began.Before(c.began) {
		c.began = began
	}
}

// Now returns the time since the machine began to run, and whether the clock has been set lately.
func (c *Clock) Now() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began), time.Since(c.asked) < clockLasts
}
