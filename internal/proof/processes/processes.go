// Package processes proves what processes of the library do side by side on one database: they
// share jobs and places under limits, die, are frozen and come back. Each test has real processes,
// which are its own binary once more, on a real server. It has tests only.
package processes
