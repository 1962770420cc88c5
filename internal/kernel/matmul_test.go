package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// TestMatMul compares products at random sizes, in every form, with plain loops.
func TestMatMul(t *testing.T) {
	r := attncase.Rand(41)
	size := func() int { return []int{1, 2, 7, 8, 31, 33, 64, 129, 257, 520}[r.IntN(10)] }
	for i := range 120 {
		p := kernel.MatMul{M: size(), N: size(), K: size(), Scale: []float32{1, 0.5}[r.IntN(2)], Add: r.IntN(2) == 0}
		if p.M*p.N*p.K > 1<<22 {
			p.M = 1 + r.IntN(9)
		}
		form := r.IntN(4)
		p.TransA, p.TransB = form == 1, form == 2
		rows, cols := p.M, p.K
		if p.TransA {
			rows, cols = p.K, p.M
		}
		p.LDA, p.LDC = cols+r.IntN(3), p.N+r.IntN(3)
		p.A = attncase.Normal(r, (rows-1)*p.LDA+cols, 1)
		b := attncase.Normal(r, p.K*p.N, 1)
		if form == 3 {
			w := newMatrix(t, p.K, p.N, []kernel.DType{kernel.F32, kernel.BF16, kernel.F16}[r.IntN(3)], b)
			p.W = &w
		} else {
			p.B = b
		}
		before := attncase.Normal(r, (p.M-1)*p.LDC+p.N, 1)
		plain, want := product[float32](p, before), product[float64](p, before)
		t.Run(fmt.Sprintf("%d-%dx%dx%d-form%d", i, p.M, p.N, p.K, form), func(t *testing.T) {
			kernel.ForEachISA(t, func(t *testing.T) {
				c, intact := guarded(t, len(before))
				copy(c, before)
				p := p
				p.C = c
				team.MatMul(p)
				compare(t, "MatMul", c, plain, want)
				intact()
			})
		})
	}
}

// product is MatMul by its definition, on what C holds before.
func product[F ref.Float](p kernel.MatMul, before []float32) (c []F) {
	for _, x := range before {
		c = append(c, F(x))
	}
	line := make([]float32, p.N)
	for i := range p.M {
		sums := make([]F, p.N)
		for k := range p.K {
			a := i*p.LDA + k
			if p.TransA {
				a = k*p.LDA + i
			}
			if p.W != nil {
				p.W.Row(line, k)
			}
			for j := range p.N {
				switch {
				case p.TransB:
					line[j] = p.B[j*p.K+k]
				case p.W == nil:
					line[j] = p.B[k*p.N+j]
				}
				sums[j] += F(p.A[a]) * F(line[j])
			}
		}
		for j, sum := range sums {
			sum *= F(p.Scale)
			if p.Add {
				sum += F(before[i*p.LDC+j])
			}
			c[i*p.LDC+j] = sum
		}
	}
	return c
}

// TestMatMulPanics: sizes that do not fit are a panic that names the operand.
func TestMatMulPanics(t *testing.T) {
	four := make([]float32, 4)
	for want, change := range map[string]func(p *kernel.MatMul){
		"must be positive":              func(p *kernel.MatMul) { p.K = 0 },
		"A has 3 elements":              func(p *kernel.MatMul) { p.A = four[:3] },
		"len(B) is 3, want 4":           func(p *kernel.MatMul) { p.B = four[:3] },
		"C has 3 elements":              func(p *kernel.MatMul) { p.C = four[:3] },
		"rows of A are 1 apart":         func(p *kernel.MatMul) { p.LDA = 1 },
		"weight [1 4], must be [2 2]":   func(p *kernel.MatMul) { w := newMatrix(t, 1, 4, kernel.F32, four); p.W = &w },
		"must be [2 2], not transposed": func(p *kernel.MatMul) { w := newMatrix(t, 2, 2, kernel.F32, four); p.W, p.TransB = &w, true },
	} {
		p := kernel.MatMul{M: 2, N: 2, K: 2, A: four, LDA: 2, B: four, C: make([]float32, 4), LDC: 2, Scale: 1}
		change(&p)
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
					t.Errorf("got %s, want %s", r, want)
				}
			}()
			team.MatMul(p)
		}()
	}
}

func BenchmarkMatMul(b *testing.B) {
	const rows, in, out = 1024, 512, 1408
	r := attncase.Rand(1)
	x, dy, w := attncase.Normal(r, rows*in, 1), attncase.Normal(r, rows*out, 1), attncase.Normal(r, out*in, 1)
	dx, dw := make([]float32, rows*in), make([]float32, out*in)
	for name, p := range map[string]kernel.MatMul{
		"x wT":   {M: rows, N: out, K: in, A: x, LDA: in, B: w, TransB: true, C: dy, LDC: out, Scale: 1},
		"dy w":   {M: rows, N: in, K: out, A: dy, LDA: out, B: w, C: dx, LDC: in, Scale: 1},
		"dyT x ": {M: out, N: in, K: rows, A: dy, LDA: out, TransA: true, B: x, C: dw, LDC: in, Scale: 1},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				team.MatMul(p)
			}
			b.ReportMetric(2*float64(rows*in*out)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
