package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a server says to who cannot log in does not prove that others reach the database.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		codeNoDatabase: true, // dropped, or not restored yet
		"28P01":        true, // the password was changed
		"28000":        true, // the role is not there any more
		"57P01":        true, // the server is shut down
		"53300":        true, // it has no connection left
		codeReadOnly:   true,
		codeCanceled:   false, // a limit of one statement
		codeNoRight:    false,
		codeDeadlock:   false,
	} {
		if got := cutOff(classify(&pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: %t, want %t", code, got, want)
		}
	}
}
