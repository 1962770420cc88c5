package models

import "github.com/pulsecol/pulsecol/internal/gguf"

// GGUFOptions say how a model becomes a GGUF file.
type GGUFOptions struct {
	Type    string // of the weights: one of GGUFTypes
	Name    string // in the metadata, unless the model is a GGUF file with a name of its own; "" for none
	Threads int    // at most; 0 for all

	// Progress is called as the work goes on, with the elements of weights that are done and
	// those of all. Note is called with what the file has in another way than the model.
	// Both may be nil.
	Progress func(done, total int64)
	Note     func(text string)
}

// GGUFTypes are the file types of GGUFOptions, those of the largest files first. Their names
// are llama.cpp's: "Q4_K_M" is Q4_K with some matrices in Q6_K.
func GGUFTypes() []string {
	var names []string
	for _, t := range gguf.FileTypes() {
		names = append(names, t.Name)
	}
	return names
}
