// Package eval measures how well methods of attention answer the samples of
// tasks: it runs every method on the same samples, keeps what it has found in a
// file from which an interrupted evaluation goes on, and turns that into tables
// and pictures.
//
// It knows no model: the caller gives it a function that answers one sample.
package eval
