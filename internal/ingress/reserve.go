package ingress

import (
	"runtime"
	"sync"
	"syscall"

	"github.com/pawl-jobs/pawl/job"
)

// The service reserves descriptors and threads for its own work. Callers get only a part of the
// descriptors.
const (
	leastDescriptors = 64    // with fewer the service cannot work
	ownDescriptors   = 512   // kept for the database, for steps and for programs, or half of those there are
	mostConnections  = 10000 // of callers, however many descriptors there are
	ownThreads       = 24    // the Go runtime ends the process when it needs a thread and gets none
)

// Crowds returns those of the callers at addresses, and on the socket of the folder. Neither shuts
// out the other.
func Crowds() (network, socket *Crowd, err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, nil, err
	}
	if limit.Cur < leastDescriptors {
		return nil, nil, job.Errorf(job.Invalid,
			"this process may open %d files, and needs %d: raise the limit (ulimit -n, or LimitNOFILE of the unit)",
			limit.Cur, leastDescriptors)
	}
	callers := int(min(limit.Cur-min(ownDescriptors, limit.Cur/2), mostConnections))
	return NewCrowd(callers * 3 / 4), NewCrowd(callers / 4), nil
}

// KeepThreads starts threads while the machine gives some. The runtime keeps them for when system
// calls take long.
func KeepThreads() {
	var all, begun sync.WaitGroup
	begun.Add(ownThreads)
	for range ownThreads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begun.Done()
			begun.Wait()
		})
	}
	all.Wait()
}
