package postgres

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-jobs/pawl/job"
)

// Codes of PostgreSQL (SQLSTATE) and of our own function refuse.
const (
	codeRefused           = "PW001"
	codeLimits            = "PW002" // of a submission: the limits have changed
	codeIsolation         = "PW003" // of enqueue: the caller's transaction has another isolation level
	codeNotHeld           = "PW006" // of finish: the run has lost the job
	codePassed            = "PW005" // of a submission: its advance is from what is not there any more
	codeSerialization     = "40001"
	codeDeadlock          = "40P01"
	codeUnique            = "23505"
	codeReadOnly          = "25006"
	codeUnsupported       = "0A000"
	codeLockTimeout       = "55P03"
	codeIdleInTx          = "25P03"
	codeCanceled          = "57014"
	codeUndefinedTable    = "42P01"
	codeUndefinedFunction = "42883"
	codeNoSchema          = "3F000"
	codeNoDatabase        = "3D000"
	codeNoRight           = "42501"
	codeProtocol          = "08P01"
	classLogin            = "28" // the role is not there, its password is wrong, or the server does not let it in
)

// codeOf returns the code with which PostgreSQL refused a statement; empty: it did not.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// errAgain restarts a call that met another one which has just committed.
var errAgain = errors.New("met another call")

// again reports whether a call that failed so was undone, and may succeed at once.
func again(err error) bool {
	code := codeOf(err)
	return code == codeDeadlock || code == codeSerialization || errors.Is(err, errAgain)
}

// standby reports whether a code is that of a server which takes no writes, as in recovery. What
// writes is refused there with one code, and with the other a BEGIN that asks to write, before
// anything could. Of the statements here only one that is prepared is refused so elsewhere, after a
// change of its table ("cached plan must not change result type"). That is taken for the same:
// nothing was done, another connection makes a plan of its own, and expiry pauses once in vain.
func standby(code string) bool { return code == codeReadOnly || code == codeUnsupported }

// pooler reports whether a connection was refused as poolers in transaction mode refuse one with
// settings, which they could not keep. PostgreSQL has no such message.
func pooler(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeProtocol && strings.HasPrefix(e.Message, "unsupported startup parameter")
}

// askRights says what to do about a role without the rights of a process.
const askRights = "make it a member of pawl_service, with the rights that pawl migrate grants prints " +
	"(docs/operations/postgresql.md)"

// classify gives an error of the driver its kind.
func classify(err error) error {
	code := codeOf(err)
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, pgconn.ErrStandbyConnection):
		return job.Errorf(job.Unavailable, "database: name the primary, or all servers: %w", err)
	// its deadline is that of connect_timeout
	case code == "" && job.KindOf(err) == job.Internal && errors.As(err, &connect):
		return job.Errorf(job.Unavailable, "database: %w", err)
	case err == nil || job.KindOf(err) != job.Internal || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded):
		return err
	case again(err):
		return job.Errorf(job.Unavailable,
			"database: it was refused %d times to avoid a deadlock or a conflict: %w", mostTries, err)
	case code == codeLimits:
		return job.Errorf(job.Unavailable, "limits are being changed while jobs are submitted: %w", err)
	case code == codeIsolation:
		return job.Errorf(job.Invalid, "%w: begin it with READ COMMITTED", err)
	case code == codeNotHeld:
		return job.Errorf(job.Fenced, "database: %w", err)
	case code == codeReadOnly:
		return job.Errorf(job.Unavailable, "database: this server takes no writes, as a standby does: name the "+
			"primary, or all servers with target_session_attrs=read-write: %w", err)
	case code == codeUnsupported:
		return job.Errorf(job.Unavailable, "database: the transaction cannot begin on this connection: if it "+
			"leads to a standby, have the pooler lead to the primary: %w", err)
	case code == codeUndefinedTable || code == codeNoSchema:
		return job.Errorf(job.Unavailable, "database: the schema is not there: pawl migrate makes it: %w", err)
	case code == codeNoDatabase:
		return job.Errorf(job.Unavailable,
			"database: there is none of that name: make it (createdb), or name another: %w", err)
	case strings.HasPrefix(code, classLogin):
		return job.Errorf(job.Unavailable,
			"database: look at role and password of its URL, and at pg_hba.conf of the server: %w", err)
	case code == codeNoRight:
		return job.Errorf(job.Unavailable,
			"database: the role may not do this: "+askRights+": %w", err)
	case pooler(err):
		return job.Errorf(job.Unavailable, "database: this is a pooler, which refuses the settings of a "+
			"connection: name the database without it, or say --db-pooled, with --db-listen for the database "+
			"without it: %w", err)
	case code == codeLockTimeout:
		return job.Errorf(job.Unavailable, "database: another transaction has not ended in time, such as one that has "+
			"enqueued an equal job; pg_stat_activity shows which: %w", err)
	case code == codeIdleInTx, code == codeCanceled,
		strings.HasPrefix(code, "08"), // connection
		strings.HasPrefix(code, "53"), // no connection, memory or disk left
		strings.HasPrefix(code, "57"), // shut down, starting, canceled
		strings.HasPrefix(code, "58"): // the system under it
		return job.Errorf(job.Unavailable, "database: %w", err)
	case strings.HasPrefix(code, "XX"):
		return job.Errorf(job.Corrupt, "database: %w", err)
	case code != "":
		return err
	}
	// No answer: the connection could not be had, or was lost.
	var network net.Error
	if errors.As(err, &network) || pgconn.Timeout(err) || lost(err) {
		return job.Errorf(job.Unavailable, "database: %w", err)
	}
	return err
}

// cutOff reports whether an error that has its kind says that others may be cut off from the
// database, too: there was no answer, or that of a server that serves nobody now. What refuses one
// statement, such as a limit of its time, proves that the database was reached.
func cutOff(err error) bool {
	if job.KindOf(err) != job.Unavailable || again(err) || errors.Is(err, context.Canceled) {
		return false
	}
	code := codeOf(err)
	return code == "" || standby(code) || code == codeNoDatabase || strings.HasPrefix(code, classLogin) ||
		strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "57P0")
}
