//go:build !race

package op

// raceEnabled says that the tests run under the race detector.
const raceEnabled = false
