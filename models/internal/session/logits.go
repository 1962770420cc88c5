package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
)

// Logits runs one dense forward pass over sequences of one length and returns the logits of
// every token, [len(ids),n,Vocab] flat, which are valid until the session's next call.
// padding is the number of tokens on the left of each that are padding; nil is none. The
// session has no cache.
func (s *Session) Logits(ctx context.Context, ids [][]int32, padding []int) ([]float32, error) {
	if err := s.checkLogits(ids, padding); err != nil {
		return nil, err
	}
	if err := s.enter(0); err != nil {
		return nil, err
	}
	defer s.leave()
	n := len(ids[0])
	shape := models.Shape{Batch: len(ids), Len: n, Rows: len(ids) * n, Padded: padding != nil}
	if err := s.start(ctx, shape, 1, nil); err != nil {
		return nil, err
	}
	var rows []sampler.Row
	for b := range ids {
		for i := range n {
			rows = append(rows, sampler.Row{Batch: b, Pos: i})
		}
	}
	r := &run{Session: s, inputs: newInputs(len(ids), n, padding, s.PositionsSkipPadding), shape: shape}
	logits, err := r.forward(ctx, sampler.Pass{IDs: ids, Rows: rows})
	if err != nil {
		return nil, err
	}
	if p := s.programs[0]; p.deferred == nil {
		return p.values(), nil
	}
	all, err := logits.Rows(len(rows), 0)
	if err != nil {
		return nil, err
	}
	return slices.Concat(all...), nil
}

func (s *Session) checkLogits(ids [][]int32, padding []int) error {
	if len(ids) == 0 || len(ids[0]) == 0 {
		return fmt.Errorf("%w: no token ids", models.ErrRequest)
	}
	n := len(ids[0])
	if n > s.Context {
		return fmt.Errorf("%w: a sequence of %d tokens exceeds the model's context of %d", models.ErrRequest, n, s.Context)
	}
	if padding != nil && len(padding) != len(ids) {
		return fmt.Errorf("%w: padding of %d sequences, there are %d", models.ErrRequest, len(padding), len(ids))
	}
	for b, row := range ids {
		if len(row) != n {
			return fmt.Errorf("%w: sequence %d has %d tokens, sequence 0 has %d", models.ErrRequest, b, len(row), n)
		}
		if err := CheckIDs(row, s.Vocab); err != nil {
			return fmt.Errorf("sequence %d: %w", b, err)
		}
		if padding != nil && (padding[b] < 0 || padding[b] > n) {
			return fmt.Errorf("%w: sequence %d has %d padding tokens, want 0 to %d", models.ErrRequest, b, padding[b], n)
		}
	}
	return nil
}
