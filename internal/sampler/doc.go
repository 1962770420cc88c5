// Package sampler holds the samplers of masked diffusion language models: how a
// sequence of mask tokens becomes text in a given number of denoising steps.
//
// It does not depend on a model. A sampler gets token ids and calls a [Forward] for the
// logits of the rows that it reads. [LLaDA] and [Dream] follow the
// published generate functions of the two model families
// (github.com/ML-GSAI/LLaDA generate.py, github.com/DreamLM/Dream
// generation_utils.py) and the confidence-threshold decoding of Fast-dLLM
// (arXiv 2505.22618).
//
// # One step
//
// At every step a sampler proposes a token for masked positions, gives each
// proposal a confidence, and commits the most confident ones: it writes them into the
// sequence. Only masks are ever overwritten. Steps are counted from 1 over the
// whole generation, and each one is exactly one call of Forward. TotalSteps gives
// their number in advance, because a schedule of column refreshes depends on it.
//
// # Where logits are
//
// A row of logits is half a megabyte, and a greedy sampler needs two numbers of it: the
// token and the confidence that an [lmhead.Rule] determines. So [lmhead.Logits] may stay on
// the device of the model, and an [lmhead.RuleApplier] applies the rule there. Sampling and
// truncated distributions need whole rows, which are read in chunks.
//
// # Ties
//
// Between equal confidences the lower position is committed first; between equal
// logits the lower token id is proposed. The references leave both to their
// tensor library. Ties are frequent: confidences are rounded (see [lmhead.Rounding]), and
// high ones all become 1.
//
// # The mask token
//
// The mask token itself may be the most probable token. The references then write it:
// that counts against the step's quota but leaves the position masked. A later step may fill
// it; after the last step it stays masked. The samplers here do the same, because equal
// weights have to give equal tokens. SuppressMask excludes the mask from proposals. Decoding
// by a threshold or factor, or for a model with a cache, always excludes it, because a block
// ends when none of its masks is left. The mask stays part of the softmax in both cases, so
// the probabilities of other tokens do not change.
//
// # Determinism
//
// Equal options, prompts and logits give equal tokens on every platform and with
// any number of threads. Each random decision draws from a ChaCha8 stream of its own, keyed
// by seed, step, batch row and position, so it does not depend on the order of evaluation.
// This package computes exp and log itself, because those of package math differ between
// architectures in their last bit. Explicit conversions prevent a compiler from fusing
// products with sums. Sums over a row have an order that a GPU's threads reproduce.
package sampler
