//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

func init() {
	register(func(s exec.Embed) (implementation, error) { return &embedding{table: single(s.Table)}, nil })
}

// embedding runs op.NewEmbed.
type embedding struct {
	layerOp
	table []kernel.Projection
}

func (r *embedding) weights() ([]kernel.Projection, []byte) { return r.table, nil }

func (r *embedding) run(c *call) (gorgonia.Value, error) {
	table, err := c.matrix(r.table, c.o.dtype())
	if err != nil {
		return nil, err
	}
	s, w := c.in[0].Shape(), &r.table[0].Weight
	v, out, err := c.result(s[0], s[1], w.Cols)
	if err != nil {
		return nil, err
	}
	return v, c.gather(table, 0, out, w.Rows, w.Cols, false, v.Dtype(), func(i int) error {
		return fmt.Errorf("%w: the token id at row %d, position %d is outside the vocabulary [0, %d)", op.ErrValue, i/s[1], i%s[1], w.Rows)
	})
}
