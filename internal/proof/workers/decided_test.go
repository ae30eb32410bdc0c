package workers_test

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/job"
)

// TestDecidedInSQL: a worker decides in a transaction of its own how its job ends, and ends without
// having said so. No other worker gets the job: it ends as was decided.
func TestDecidedInSQL(t *testing.T) {
	each(t, func(s *site) {
		if !s.many() {
			s.Skip("no other program writes into a folder")
		}
		sv := s.serve()
		first, second := s.worker(sv), s.worker(sv)
		s.submit(sv, object{}, object{})
		j := first.claim(1, object{"slots": 1})[0]
		conn, err := pgx.Connect(s.Context(), s.at)
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close(s.Context())
		const finish = "SELECT pawl.finish('default', $1, $2, $3)"
		if _, err := conn.Exec(s.Context(), finish, j.ID, j.Epoch-1, `{"sum":3}`); err == nil {
			s.Error("an older run decided")
		}
		if _, err := conn.Exec(s.Context(), finish, j.ID, j.Epoch, `{"sum":3}`); err != nil {
			s.Fatal(err)
		}
		if a, text := s.call(sv, first.secret, http.MethodPost, "/v1/claims/end", object{}); a.status >= 300 {
			s.Fatalf("end: %d: %s", a.status, text)
		}
		other := second.claim(1, object{"slots": 1})[0]
		if other.ID == j.ID {
			s.Error("another worker has the job")
		}
		for s.view(sv, j.ID.String()).State != job.Finished { // its turn may come after that of the other job
			if _, more := second.ask(object{"slots": 1, "wait": "1s"}); len(more) > 0 {
				s.Fatalf("there are more jobs: %+v", more)
			}
		}
		if v := s.view(sv, j.ID.String()); string(v.Result) != `{"sum":3}` {
			s.Errorf("its result is %s", v.Result)
		}
		second.says("finish", held(other, nil))
		s.check(sv)
	})
}
