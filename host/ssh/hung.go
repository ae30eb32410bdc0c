package ssh

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/pawl-jobs/pawl/host/internal/procfs"
)

// hung are shells that were given up, and may still be there: a session that is closed does not end
// what runs in it, and not every connection passes signals on.
type hung struct {
	mu  sync.Mutex
	all []procfs.Stat // guarded by mu
}

func (g *hung) add(p procfs.Stat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, p)
}

// end has another shell kill them, with the programs that they wait for. It compares the start of
// each, since its number may be that of another process by now, after a restart of the machine too.
func (g *hung) end(ctx context.Context, s *shell) {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	var script strings.Builder
	for _, p := range all {
		group := ""
		if p.Session == p.PID { // it has its process group for itself
			group = "-"
		}
		fmt.Fprintf(&script, "pawl_is %d %d && kill -9 %s%[1]d 2>/dev/null\n", p.PID, p.Start, group)
	}
	if len(all) == 0 {
		return
	}
	if _, _, err := s.ask(ctx, script.String()); err == nil { // else the next one does it
		g.mu.Lock()
		g.all = g.all[len(all):]
		g.mu.Unlock()
	}
}
