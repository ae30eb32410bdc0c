// Package pawl is a job service as a library.
package pawl
