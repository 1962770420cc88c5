// Package eval measures how well methods of attention answer the samples of
// tasks: it runs every method on the same samples, keeps the answers in a file from which an
// interrupted evaluation continues, and makes tables and pictures of them.
//
// It does not depend on a model: the caller gives it a function that answers one sample.
package eval
