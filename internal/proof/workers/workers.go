// Package workers proves what package claims promises to workers in any language: over real HTTP,
// on both databases, with servers that are killed.
package workers
