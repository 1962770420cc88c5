// Package ref is the reference of package kernel: the same mathematics as plain loops,
// written to be checked by reading. Every fast path is compared with it. It is slow and meant
// for tests.
//
// Functions have the type of calculation as a parameter. The results in float64 are the
// reference values. The error of the same loops in float32 is the scale for the error of a
// fast path.
package ref

import (
	"cmp"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Float is a type to calculate in.
type Float interface{ float32 | float64 }

// exp and log of the type in use; math has them in float64 only.
func exp[F Float](x F) F { return F(math.Exp(float64(x))) }
func log[F Float](x F) F { return F(math.Log(float64(x))) }

// Probabilities are the attention weights [B, H, M, N] over the keys [lo, N)
// that are valid and kept by the table (nil = all), and the natural logarithms
// of their denominators [B, H, M]. A query without keys has weights of zero and
// a logarithm of -Inf.
func Probabilities[F Float](a *kernel.Operands, t *kernel.Table, lo int) (p, lse []F) {
	m, n, dim := a.Queries(), a.Len, a.HeadDim
	p = make([]F, a.Batch*a.Heads*m*n)
	lse = make([]F, a.Batch*a.Heads*m)
	for b := range a.Batch {
		for h := range a.Heads {
			head := b*a.Heads + h
			kv := b*a.KVHeads + h/(a.Heads/a.KVHeads)
			for i := range m {
				row := p[(head*m+i)*n:][:n]
				maximum := F(math.Inf(-1))
				for j := range n {
					row[j] = F(math.Inf(-1))
					if j < lo || a.Valid != nil && a.Valid[b*n+j] == 0 || t != nil && !kept(a, t, b, h, i, j) {
						continue
					}
					var dot F
					for d := range dim {
						dot += F(a.Q[(head*m+i)*dim+d]) * F(a.K[(kv*n+j)*dim+d])
					}
					row[j] = F(a.Scale) * dot
					maximum = max(maximum, row[j])
				}
				if math.IsInf(float64(maximum), -1) {
					clear(row)
					lse[head*m+i] = F(math.Inf(-1))
					continue
				}
				var sum F
				for j := range n {
					row[j] = exp(row[j] - maximum)
					sum += row[j]
				}
				for j := range n {
					row[j] /= sum
				}
				lse[head*m+i] = maximum + log(sum)
			}
		}
	}
	return p, lse
}

// kept reports whether a table lets query i of head h read key j.
func kept(a *kernel.Operands, t *kernel.Table, b, h, i, j int) bool {
	if at := a.First + i; t.Reach >= 0 && j >= t.Sinks && max(at-j, j-at) > t.Reach {
		return false
	}
	heads := a.Heads
	if t.SharedHeads {
		h, heads = 0, 1
	}
	if t.SharedBatch {
		b = 0
	}
	groups := (a.Queries() + t.Group - 1) / t.Group
	row := (b*heads+h)*groups + i/t.Group
	words := (a.Len + 31) / 32
	return t.Bits[row*words+j/32]>>(j%32)&1 == 1
}

// Attention is softmax(Scale q k^T) v [B, H, M, D] over the keys that the table
// keeps (nil = all), with the log-sum-exp [B, H, M].
func Attention[F Float](a *kernel.Operands, t *kernel.Table) (out, lse []F) {
	p, lse := Probabilities[F](a, t, 0)
	m, n, dim := a.Queries(), a.Len, a.HeadDim
	out = make([]F, a.Batch*a.Heads*m*dim)
	for head := range a.Batch * a.Heads {
		kv := head/a.Heads*a.KVHeads + head%a.Heads/(a.Heads/a.KVHeads)
		for i := range m {
			for j := range n {
				if w := p[(head*m+i)*n+j]; w != 0 {
					for d := range dim {
						out[(head*m+i)*dim+d] += w * F(a.V[(kv*n+j)*dim+d])
					}
				}
			}
		}
	}
	return out, lse
}

// Scores are the mean weights [B, H, ceil(R/group), N-lo] that each key of
// [lo, N) receives from the valid queries of a group, 0 if it has none. The groups are
// those of the R queries from a.From to a.To, of all if both are 0.
func Scores[F Float](a *kernel.Operands, group, lo int) []F {
	p, _ := Probabilities[F](a, nil, lo)
	m, n := a.Queries(), a.Len
	from, to := a.From, a.To
	if from == 0 && to == 0 {
		to = m
	}
	groups := (to - from + group - 1) / group
	scores := make([]F, a.Batch*a.Heads*groups*(n-lo))
	for head := range a.Batch * a.Heads {
		for u := range groups {
			var valid []int
			for i := from + u*group; i < min(from+(u+1)*group, to); i++ {
				if a.Valid == nil || a.Valid[head/a.Heads*n+a.First+i] != 0 {
					valid = append(valid, i)
				}
			}
			if len(valid) == 0 {
				continue
			}
			for j := lo; j < n; j++ {
				var sum F
				for _, i := range valid {
					sum += p[(head*m+i)*n+j]
				}
				scores[(head*groups+u)*(n-lo)+j-lo] = sum / F(len(valid))
			}
		}
	}
	return scores
}

// AttentionGrad are the gradients of sum(dout * Attention(a, t)).
func AttentionGrad[F Float](dout []float32, a *kernel.Operands, t *kernel.Table) (dq, dk, dv []F) {
	p, _ := Probabilities[F](a, t, 0)
	n, dim := a.Len, a.HeadDim
	dq = make([]F, len(a.Q))
	dk = make([]F, len(a.K))
	dv = make([]F, len(a.V))
	for head := range a.Batch * a.Heads {
		kv := head/a.Heads*a.KVHeads + head%a.Heads/(a.Heads/a.KVHeads)
		for i := range n {
			dp := make([]F, n)
			var mean F // of dp under the weights
			for j := range n {
				for d := range dim {
					dp[j] += F(dout[(head*n+i)*dim+d]) * F(a.V[(kv*n+j)*dim+d])
				}
				mean += p[(head*n+i)*n+j] * dp[j]
			}
			for j := range n {
				weight := p[(head*n+i)*n+j]
				ds := F(a.Scale) * weight * (dp[j] - mean)
				for d := range dim {
					x := (head*n+i)*dim + d
					y := (kv*n+j)*dim + d
					dv[y] += weight * F(dout[x])
					dq[x] += ds * F(a.K[y])
					dk[y] += ds * F(a.Q[x])
				}
			}
		}
	}
	return dq, dk, dv
}

// TopK lists the k best scores, best first: larger scores, then smaller indices;
// NaN last. Entries that valid (nil = all) marks with 0 are left out.
func TopK(scores, valid []float32, k int) []int {
	var order []int
	for j := range scores {
		if valid == nil || valid[j] != 0 {
			order = append(order, j)
		}
	}
	// cmp.Compare puts NaN below everything.
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(scores[y], scores[x]) })
	return order[:max(0, min(k, len(order)))]
}

// BlockTopK lists the valid keys of the k blocks with the largest sums of valid
// scores, without blocks that have no valid key.
func BlockTopK(scores, valid []float32, block, k int) []int {
	blocks := (len(scores) + block - 1) / block
	sums := make([]float32, blocks)
	any := make([]float32, blocks)
	for b := range blocks {
		sum := 0.0
		for j := b * block; j < min((b+1)*block, len(scores)); j++ {
			if valid == nil || valid[j] != 0 {
				sum += float64(scores[j])
				any[b] = 1
			}
		}
		sums[b] = float32(sum)
	}
	var keys []int
	for _, b := range TopK(sums, any, k) {
		for j := b * block; j < min((b+1)*block, len(scores)); j++ {
			if valid == nil || valid[j] != 0 {
				keys = append(keys, j)
			}
		}
	}
	return keys
}

// SparseD lists the keys of SparseD's selection for one row: the keys before
// block last among the quota best blocks by scores, and the genQuota best blocks
// of the keys from block last on by genScores.
func SparseD(scores, genScores []float32, block, last, quota, genQuota int) []int {
	var keys []int
	for _, j := range BlockTopK(scores, nil, block, quota) {
		if j < last*block {
			keys = append(keys, j)
		}
	}
	for _, j := range BlockTopK(genScores, nil, block, genQuota) {
		keys = append(keys, last*block+j)
	}
	return keys
}

// Bitmap is a set of keys as the bits of ceil(n/32) words.
func Bitmap(n int, keys []int) []uint32 {
	bits := make([]uint32, (n+31)/32)
	for _, j := range keys {
		bits[j/32] |= 1 << (j % 32)
	}
	return bits
}

// Linear is x w^T + bias (nil = none) for x [rows, w.Cols].
func Linear[F Float](x []float32, rows int, w *kernel.Matrix, bias []float32) []F {
	y := make([]F, rows*w.Rows)
	weights := make([]float32, w.Cols)
	for j := range w.Rows {
		w.Row(weights, j)
		for i := range rows {
			var sum F
			for d, f := range weights {
				sum += F(f) * F(x[i*w.Cols+d])
			}
			if bias != nil {
				sum += F(bias[j])
			}
			y[i*w.Rows+j] = sum
		}
	}
	return y
}

// KeptMass is the share of full attention on the keys of a table, for the middle
// query of each group [B, H, ceil(M/group)]; 0 for padding.
func KeptMass[F Float](a *kernel.Operands, t *kernel.Table) (mass []F) {
	p, _ := Probabilities[F](a, nil, 0)
	for head := range a.Batch * a.Heads {
		b, h := head/a.Heads, head%a.Heads
		m := a.Queries()
		for first := 0; first < m; first += min(t.Group, m) {
			i := (first + min(first+min(t.Group, m), m)) / 2
			var sum F
			for j := range a.Len {
				if kept(a, t, b, h, i, j) && (a.Valid == nil || a.Valid[b*a.Len+a.First+i] != 0) {
					sum += p[(head*m+i)*a.Len+j]
				}
			}
			mass = append(mass, sum)
		}
	}
	return mass
}
