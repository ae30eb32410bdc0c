// Package order compares what the engine makes of random jobs in orders with a model. It has tests
// only.
package order
