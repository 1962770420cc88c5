// Package tinymodel holds two small models inside the binary, so that the library
// and the command work before anything is downloaded: one of LLaDA's type, with
// 3.7 million parameters, and one of Dream's, with 3.9 million, where two query
// heads share a key head.
//
// Both have 6 layers of 4 heads and the same tokenizer, and know the same
// tasks: finding one number or up to four hidden in a text, reversing, sorting,
// doubling or filtering a list of numbers below 100, and arithmetic word problems
// of one or two steps. A text may have 4,000 tokens. (They were also shown chains of
// assignments to follow through a text, and did not learn it.) A prompt is plain text that ends in a question:
//
//	Q: Please reverse the list 66 50 47 62.
//	A:
//
// with no white space after the last colon; solved examples ("Q: ...\nA:
// ...\n") or a text ("Text: ...\n") may stand before it. A start token is
// neither needed nor harmful. generation_config.json holds the sampler
// settings they answer with, at temperature 0: gen_length 32, block_length 8 and
// steps 32 for LLaDA, max_new_tokens 32, steps 32 and alg maskgit_plus for Dream.
//
// How they were trained, and how often they are right, is in the folder train.
package tinymodel

import (
	"embed"
	"io/fs"
)

//go:embed llada/*.json dream/*.json
var files embed.FS

//go:embed llada/model.safetensors
var weights []byte

//go:embed dream/model.safetensors
var dreamWeights []byte

// Question is a prompt that shows what the models can do: one number among
// others, in a text of 768 tokens. It is the first held-out question of that
// length, whether or not a model answers it.
//
//go:embed question.txt
var Question string

// Answer is the right answer to Question.
//
//go:embed answer.txt
var Answer string

// FS holds config.json, generation_config.json, tokenizer.json and
// tokenizer_config.json of the LLaDA model, in the format of a HuggingFace
// checkpoint.
func FS() fs.FS { return folder("llada") }

// Weights is the file model.safetensors of the LLaDA model, bfloat16. It is the
// memory of the binary itself, not a copy: it must not be modified, and it may
// begin at any address.
func Weights() []byte { return weights }

// DreamFS is [FS] for the Dream model.
func DreamFS() fs.FS { return folder("dream") }

// DreamWeights is [Weights] for the Dream model.
func DreamWeights() []byte { return dreamWeights }

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // only for a name that is no path
	}
	return sub
}
