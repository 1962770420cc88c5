package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pulsecol/pulsecol/internal/gguf"
	"github.com/pulsecol/pulsecol/internal/outfile"
	"github.com/pulsecol/pulsecol/models"
)

type convertCmd struct {
	Open  modelFlag `embed:""`
	Type  string    `required:"" enum:"${gguf}" placeholder:"TYPE" help:"Type of the weights, as llama.cpp names types of files, from the largest to the smallest: ${gguf}."`
	Out   string    `required:"" placeholder:"FILE" help:"GGUF file to write; it appears complete or not at all."`
	Force bool      `help:"Replace --out if it is there."`
}

func (convertCmd) Help() string {
	return `Writes a model as a GGUF file, which this program and llama.cpp read: configuration, tokenizer, chat template and weights. The types of a file's matrices are those that llama.cpp's quantizer gives them: Q4_K_M, Q5_K_M and the like have some in a type of more bits, rows that are no whole number of blocks get a type with smaller blocks or F16, and norms and biases are F32.

The model may be a GGUF file itself. What it has quantized is then quantized again, with the errors of both; quantized weights of the same type are copied.

A part of a tensor at a time is in memory. An interrupt leaves no file.

Examples:
  pulsecol convert --model LLaDA-8B-Instruct --type Q4_K_M --out llada-8b-Q4_K_M.gguf
  pulsecol convert --small dream --type Q8_0 --out dream.gguf`
}

func (c *convertCmd) Run(std stdio) error {
	if c.Open.RandomWeights || c.Open.Shape != nil {
		return usagef("convert takes no --random-weights: there is no model to write")
	}
	if err := c.checkOut(); err != nil { // before the work, not after it
		return err
	}
	m, err := c.Open.open()
	if err != nil {
		return err
	}
	defer m.Close()
	ctx, stop := untilInterrupted()
	defer stop()
	b := &conversionBar{screen: newScreen(std.err), start: time.Now(), drawn: time.Now()}
	o := models.GGUFOptions{Type: c.Type, Name: nameOf(m), Progress: b.show, Note: func(text string) {
		fmt.Fprintf(std.err, "pulsecol: note: %s\n", text)
	}}
	var ofModel error
	err = outfile.Write(c.Out, func(w io.Writer) error {
		file := &failingWriter{w: w}
		err := m.WriteGGUF(ctx, file, o)
		if file.err == nil {
			ofModel = err
		}
		return err
	})
	b.close()
	switch {
	case ofModel != nil:
		return ofModel
	case err != nil:
		return fmt.Errorf("--out %w", err)
	}
	return c.report(std.out, m)
}

// failingWriter keeps the error of a writer.
type failingWriter struct {
	w   io.Writer
	err error
}

func (f *failingWriter) Write(p []byte) (n int, err error) {
	n, err = f.w.Write(p)
	f.err = err
	return n, err
}

// checkOut reports an --out that cannot be written, is there already, or is a file of the
// model.
func (c *convertCmd) checkOut() error {
	if c.Out == "" {
		return usagef("--out is empty")
	}
	info, err := os.Stat(c.Out)
	if errors.Is(err, fs.ErrNotExist) {
		return checkNew(c.Out)
	}
	if err == nil && info.Mode().IsRegular() {
		files, err := c.modelFiles()
		if err != nil {
			return err
		}
		for _, path := range files {
			if f, err := os.Stat(path); err == nil && os.SameFile(f, info) {
				return usagef("--out %s: is a file of the model", c.Out)
			}
		}
		if !c.Force {
			return usagef("--out %s: is there already; --force replaces it", c.Out)
		}
	}
	return checkNew(c.Out)
}

func checkNew(path string) error {
	if err := outfile.Check(path); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	return nil
}

// modelFiles are the files that the model may have.
func (c *convertCmd) modelFiles() ([]string, error) {
	if c.Open.Model == nil {
		return nil, nil
	}
	if gguf.Is(*c.Open.Model) {
		return gguf.PartPaths(*c.Open.Model), nil
	}
	found, err := c.Open.folder()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(found.Dir)
	if err != nil {
		return nil, found.Explain(err)
	}
	var paths []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".gguf" { // what was written before may be in the folder
			paths = append(paths, filepath.Join(found.Dir, e.Name()))
		}
	}
	return paths, nil
}

// nameOf is the name of a model in a file's metadata.
func nameOf(m *openModel) string {
	if _, err := os.Stat(m.name); err == nil || m.embedded {
		if path, err := filepath.Abs(m.title()); err == nil && !m.embedded && m.title() == "." {
			return filepath.Base(path)
		}
		return m.title()
	}
	name, _, _ := strings.Cut(m.name, "@") // of the HuggingFace cache
	return name[strings.LastIndex(name, "/")+1:]
}

// report says what was written.
func (c *convertCmd) report(w io.Writer, m *openModel) error {
	types, err := storage(&modelFlag{Model: &c.Out})
	if err != nil {
		return err
	}
	var bytes int64
	var parts []string
	for _, t := range types {
		bytes += t.Bytes
		parts = append(parts, fmt.Sprintf("%d %s", t.Tensors, t.DType))
	}
	_, err = fmt.Fprintf(w, "%s: %s of weights, %.2f bits a weight: %s\n", c.Out, byteSize(bytes), 8*float64(bytes)/float64(m.parameters()), strings.Join(parts, ", "))
	return err
}

// conversionBar shows the progress of a conversion: a bar on a terminal, else a line each
// lineInterval.
type conversionBar struct {
	*screen
	start, drawn time.Time
}

func (b *conversionBar) show(done, total int64) {
	share := float64(done) / float64(total)
	interval := barInterval
	if b.terminal == nil {
		interval = lineInterval
	}
	if time.Since(b.drawn) < interval {
		return
	}
	b.drawn = time.Now()
	left := time.Since(b.start).Seconds() * (1 - share) / share
	text := fmt.Sprintf("%.0f %% of the weights, about %s left", 100*share, seconds(left))
	if b.terminal == nil {
		fmt.Fprintln(b.w, text)
		return
	}
	b.redraw(bar(share) + " " + text)
}
