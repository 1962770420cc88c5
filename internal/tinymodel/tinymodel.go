// Package tinymodel is the small LLaDA model inside the binary, so that the
// library and the command work before anything is downloaded.
//
// It has 3.7 million parameters in 6 layers of 4 heads and knows three tasks:
// finding a number hidden in a text of up to 2,048 tokens, reversing, sorting,
// doubling or filtering a list of numbers below 100, and arithmetic word
// problems of one or two steps. A prompt is plain text that ends in a question:
//
//	Q: Please reverse the list 66 50 47 62.
//	A:
//
// with no white space behind the last colon; solved examples ("Q: ...\nA:
// ...\n") or a text ("Text: ...\n") may stand before it. A start token is
// neither needed nor harmful. generation_config.json holds the sampler
// settings it answers with: gen_length 32, block_length 8, steps 32 and
// temperature 0.
//
// How it was trained, and how often it is right, is in the folder train.
package tinymodel

import (
	"embed"
	"io/fs"
)

//go:embed config.json generation_config.json tokenizer.json tokenizer_config.json
var files embed.FS

//go:embed model.safetensors
var weights []byte

// Question is a prompt that shows what the model can do: one number among
// others, in a text of 768 tokens. It is the first held-out question of that
// length, whether or not the model answers it.
//
//go:embed question.txt
var Question string

// Answer is the right answer to Question.
//
//go:embed answer.txt
var Answer string

// FS holds config.json, generation_config.json, tokenizer.json and
// tokenizer_config.json, in the format of a HuggingFace checkpoint.
func FS() fs.FS { return files }

// Weights is the file model.safetensors, bfloat16. It is the memory of the
// binary itself, not a copy: it must not be modified, and it may begin at any
// address.
func Weights() []byte { return weights }
