package testers

import (
	"context"
	"os"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
)

// Machine tests whether this process can open descriptors and start a process. It has no
// parameters.
type Machine struct{}

// fewDescriptors is how many are opened: about what a step has open at a time.
const fewDescriptors = 16

// Test implements [recovery.Tester].
func (Machine) Test(context.Context, recovery.Question) (recovery.Answer, error) {
	err := enough()
	if job.Shortage(err) {
		return recovery.Answer{Says: err.Error()}, nil
	}
	return recovery.Answer{Clear: true, Says: "there are descriptors, and a process can be started"}, nil
}

// enough opens descriptors and starts a process. Any error but a shortage, such as that there is no
// shell, says that it got as far as it had to.
func enough() error {
	for range fewDescriptors {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", ":"}, &os.ProcAttr{Env: []string{}})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}
