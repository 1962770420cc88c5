package checkpoint

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/workgroup"
	"github.com/pulsecol/pulsecol/models"
)

// ggufEncoder encodes the tensors of a model for a GGUF file, part by part.
type ggufEncoder struct {
	ctx     context.Context
	files   *Files
	config  models.Config
	options models.GGUFOptions
	pair    bool // rows of Q and K; see GGUF

	sources     []safetensors.Tensor
	infos       []safetensors.Info // of the file
	requantized int                // how many tensors were quantized before
	done, total int64              // elements
	buffer      []byte             // of a part
}

// partElements is about how many elements are encoded between two writes: enough for all
// threads, and few for the memory.
const partElements = 4 << 20

// elements writes the elements of a tensor of the list.
func (e *ggufEncoder) elements(i int, w io.Writer) error {
	src, cols := e.sources[i], 1
	if n := len(src.Shape); n > 0 {
		cols = src.Shape[n-1]
	}
	rows := elements(src.Shape) / cols
	part := max(1, partElements/cols)
	for from := 0; from < rows; from += part {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		n := min(part, rows-from)
		data, err := e.encode(i, from, n, cols)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		e.done += int64(n * cols)
		if e.options.Progress != nil {
			e.options.Progress(e.done, e.total)
		}
	}
	return nil
}

// encode returns n rows of a tensor from a row on, as the file has them. Which thread
// encodes a row makes no difference to its bytes.
func (e *ggufEncoder) encode(i, from, n, cols int) ([]byte, error) {
	size := e.infos[i].DType.Bytes(cols)
	if len(e.buffer) < n*size {
		e.buffer = make([]byte, n*size)
	}
	data := e.buffer[:n*size]
	threads := runtime.GOMAXPROCS(0)
	if e.options.Threads > 0 {
		threads = min(threads, e.options.Threads)
	}
	threads = min(threads, n)
	errs := make([]error, threads)
	var g workgroup.Group
	for t := range threads {
		begin, end := t*n/threads, (t+1)*n/threads
		g.Go(func() {
			errs[t] = mapped.Guard(func() error { return e.encodeRows(i, data[begin*size:end*size], from+begin, cols) })
		})
	}
	g.Wait()
	for _, err := range errs { // in the order of rows
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// encodeRows fills data with the rows of a tensor from a row on.
func (e *ggufEncoder) encodeRows(i int, data []byte, from, cols int) error {
	src, typ := e.sources[i], e.infos[i].DType
	read, size := src.DType.Bytes(cols), typ.Bytes(cols)
	paired := e.pair && isPaired(e.infos[i].Name)
	values := make([]float32, cols)
	for at := 0; at < len(data); at += size {
		row := from + at/size
		source := row
		if paired {
			source = pairedRow(row, e.config.HeadDim)
		}
		x := src.Data[source*read:][:read]
		if src.DType == typ && typ.Quantized() { // as it is: another search would add errors
			copy(data[at:], x)
			continue
		}
		src.DType.Decode(values, x, 0)
		if err := typ.Encode(data[at:][:size], values); err != nil {
			return fmt.Errorf("%w: tensor %q: row %d: %w", models.ErrWeights, src.Name, source, err)
		}
	}
	return nil
}

// pairedRow is the row of a model in whose place a row is that has its pair next to it; see
// halves.
func pairedRow(row, dim int) int {
	head, at := row/dim*dim, row%dim
	return head + at%2*(dim/2) + at/2
}
