package exec

// Ranks are the processes of a run, each of which runs the same graphs. Collectives run in all of
// them, in the same order; they fail in all if one fails or ends. Values can be compared, as pointers can,
// and Rank and Size do not change.
type Ranks interface {
	Rank() int // of this process, from 0
	Size() int
	ID() [128]byte // the same in all processes, for libraries that form groups of their own

	// AllGather copies part of every rank into whole, in the order of ranks. Ranks compare
	// the names of what they run.
	AllGather(name string, whole, part []float32) error
	// AllReduce replaces values by their sums over the ranks, in the order of ranks.
	AllReduce(name string, values []float32) error
	// ReduceScatter stores in part this rank's part of the sums of whole over the ranks.
	ReduceScatter(name string, part, whole []float32) error
}

// CollectiveKind is what a collective does.
type CollectiveKind uint8

// The collectives.
const (
	AllGather CollectiveKind = iota
	AllReduce
	ReduceScatter
)

// Collective is the Spec of op.NewAllGather, op.NewAllReduce and op.NewReduceScatter.
type Collective struct {
	Kind  CollectiveKind
	Axis  int   // that is split over the ranks; 0 of AllReduce
	Ranks Ranks // nil = this process alone
}
