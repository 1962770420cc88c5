//go:build !unix

package kernelbench

import "time"

// cpuTime would be the time that processors have spent on this process; 0 says
// that it is not known.
func cpuTime() time.Duration { return 0 }
