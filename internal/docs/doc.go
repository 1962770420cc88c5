// Package docs tests the project's pages.
package docs
