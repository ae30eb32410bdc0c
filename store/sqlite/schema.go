package sqlite

import "context"

// Schema returns the version of the database's schema and the one that this package knows. It asks the database.
func (s *Store) Schema(ctx context.Context) (have, want int64, err error) {
	p, err := migrationsOf(s.read)
	if err != nil {
		return 0, 0, err
	}
	sources := p.ListSources()
	want = sources[len(sources)-1].Version
	err = s.read.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version WHERE is_applied").Scan(&have)
	return have, want, classify(err)
}
