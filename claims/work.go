package claims

import (
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Work is what a task keeps in its row, whoever runs it.
type Work struct {
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Progress   *job.Progress   `json:"progress,omitempty"`
	Epoch      int64           `json:"epoch,omitempty"` // of the run that made the progress
	// Told is when a worker elsewhere reported the one or the other, by the clock of the database.
	Told time.Time `json:"told,omitzero"`
}

// ReadWork reads what a task keeps; the zero value if that cannot be read.
func ReadWork(j *job.Job) (w Work) {
	if json.Unmarshal(j.Work, &w) != nil {
		return Work{}
	}
	return w
}
