package sqlite

import (
	"context"
	"database/sql"
	"sync"
)

// prepared are statements that read, each prepared once for a connection: to parse one takes longer
// than to run it.
type prepared struct {
	mu    sync.Mutex
	stmts map[string]*sql.Stmt // guarded by mu
}

// mostPrepared is how many statements are kept. Only lists have more texts than a few: one for each
// shape of a filter.
const mostPrepared = 200

// query runs a statement. Closing db closes what was prepared.
func (p *prepared) query(ctx context.Context, db *sql.DB, text string, args []any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, db, text)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return db.QueryContext(ctx, text, args...)
	}
	return s.QueryContext(ctx, args...)
}

// stmt returns the prepared statement of a text; nil when there are too many.
func (p *prepared) stmt(ctx context.Context, db *sql.DB, text string) (*sql.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.stmts[text]; s != nil || len(p.stmts) == mostPrepared {
		return s, nil
	}
	s, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if p.stmts == nil {
		p.stmts = map[string]*sql.Stmt{}
	}
	p.stmts[text] = s
	return s, nil
}
