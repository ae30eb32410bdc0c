package postgres

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/job"
)

// Statements are the texts whose plans a test pins, and Settings those of the connections that run
// them.
var (
	Statements = map[string]string{
		"submit": insertJobs, "submit limited": insertLimited, "try turns lock of": tryTurnsLockOf,
		"await turns lock of": awaitTurnsLockOf, "claim": claimHeads + claimed,
		"claim told": claimHeads + claimTold, "claim named": claimNamed + claimed,
		"claim named told": claimNamed + claimTold, "claim handed": claimHanded, "apply fences": applyFences,
		"apply lock": applyLock,
		"apply":      applyChanges, "apply judge": judgeChanges, "finish": finishTasks, "finish plain": finishPlain,
		"try turns lock": tryTurnsLock, "pass on": passOn, "pass on claimed": passOnClaimed, "write": writeRows,
		"write ends": writeEnds, "write free": freeKeys, "due": dueJobs, "pay": payDebts,
		"expire close": expireClose, "expire": expireTake, "pairs ready": readyPairs,
		"renew": renew, "events": eventsOfAll, "newest event": newestEvent, "events of one": eventsOfOne,
		"recount": recount, "recount look": lookForWrong, "recount turns": takeUseless,
		"recount lines": linesUnowed, "note": addEvent,
		"overdue": overdue, "lock needs": lockNeeds, "tie needs": tieNeeds,
		"apply specs":   applySpecs,
		"apply limited": lockedJobs,
		"hand on pick":  pickTurnsLock, "hand on await": awaitTurnsLock, "hand on owed": takeOwed,
		"hand on limits": turnsLimits, "hand on held": turnsHeld, "hand on heads": lineHeads,
		"hand over heads": lineHeadsFree,
		"turns enter":     enterLines, "turns return": giveBack, "turns take": takeTurns, "turns owe": oweTurns,
		"lines of":  linesOf,
		"limit set": setLimit, "walk pick": pickWalk, "walks of": walksOf, "walk page": walkPage,
		"walk take in": takeIn, "walk on": walkOn, "walk end": endWalk,
		"owed":            whatIsOwed,
		"moments of whom": ratesOf, "moments lock": lockMoments, "moments take": takeMoments,
		"moments first": firstMoments, "moments wake": wakeJobs,
		"groups open": openGroups, "groups write": writeGroups, "groups hold": holdGroups,
		"groups wake": wakeGroups, "groups heads": groupHeads, "groups left": groupLeft,
		"groups lapsing": lapsing, "groups empty": emptyGroups, "groups remove": removeGroups,
		"tests due": dueTests, "what is due": whatIsDue,
		"lines groups": lineGroups, "lines limits": lineLimits, "lines take": takeLines, "lines close": closeLines,
		"limits close":    closeLimits,
		"forget keys":     forgetKeys,
		"demand sessions": claimantsThere, "demand parts": readyParts, "unwatched": unwatched,
	}
	Settings = settings
)

// Finishes reports whether a change has the statement of tasks that finish.
func Finishes(c job.Change) bool { return finishes(&c) }

// Writers is the key of the lock of those who write events.
func (s *Store) Writers() int64 { return s.writers() }

// LockTimeout is for how long the next step of a migrator waits for a lock.
func (m *Migrator) LockTimeout(ctx context.Context) (set string, err error) {
	err = m.db.QueryRowContext(ctx, "SHOW lock_timeout").Scan(&set)
	return set, err
}

// NextMigrator returns the migrator of a Pawl that knows one more migration than this one.
func NextMigrator(dsn, schema, migration string) (*Migrator, error) {
	return newMigrator(dsn, nil, schema, withNext(migration))
}

// PrintNext is what [Print] is of such a Pawl.
func PrintNext(w io.Writer, schema string, from int64, migration string) error {
	return printAll(w, schema, from, withNext(migration))
}

func withNext(migration string) fs.FS {
	files := fstest.MapFS{fmt.Sprintf("migrations/%05d_next.sql", newestOf(migrations)+1): {Data: []byte(migration)}}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range names {
		var text []byte
		if text, err = migrations.ReadFile(name); err != nil {
			break
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	if err != nil {
		panic(err)
	}
	return files
}

// Recorded opens a store that tells of each statement which it sends in a call.
func Recorded(dsn string, sent func(sql string)) (*Store, error) {
	s, err := connect(dsn, Options{})
	if err != nil {
		return nil, err
	}
	s.pool.Close()
	s.config.ConnConfig.Tracer = recorder{sent: sent}
	s.pool, err = s.newPool(1, pgx.QueryExecModeCacheStatement, settings, limits)
	return s, err
}

// A recorder hears of the statements of a connection. All are sent in batches.
type recorder struct{ sent func(sql string) }

func (recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (r recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	r.sent(q.SQL)
}

// Again returns a store that is as if it had just been opened on the database of s, with the
// connections of s.
func (s *Store) Again(ctx context.Context) (*Store, error) {
	again := &Store{o: s.o, config: s.config, pool: s.pool, readers: s.readers, opened: time.Now()}
	return again, again.begin(ctx)
}

// Leave is Close without an end of the connections.
func (s *Store) Leave() { s.closed.Store(true) }
