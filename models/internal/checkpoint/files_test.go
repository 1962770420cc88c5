package checkpoint

import (
	"strings"
	"testing"
)

// TestOpenFSNil: no file system is an error.
func TestOpenFSNil(t *testing.T) {
	if f, err := OpenFS(nil, nil); f != nil || err == nil || !strings.Contains(err.Error(), "file system is nil") {
		t.Errorf("got %v, %v", f, err)
	}
}
