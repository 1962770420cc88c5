// Package sampler holds the samplers of masked diffusion language models: how a
// sequence of mask tokens becomes text in a given number of denoising steps.
//
// It knows no model. A sampler sees token ids and calls a [Forward] for the
// logits of the rows it is about to read; [LLaDA] and [Dream] follow the
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
// their number beforehand, since a schedule of column refreshes is laid out over
// it.
//
// # Where logits are
//
// A row of logits is half a megabyte, and a greedy sampler wants two numbers of it:
// what a [Rule] says, a token and how sure it is. So [Logits] may stay where the
// model computed them, and if they are a [Chooser], answer there. Drawing tokens
// and truncating distributions take whole rows, which are then read in parts.
//
// # Ties
//
// Between equal confidences the lower position is committed first; between equal
// logits the lower token id is proposed. The references leave both to their
// tensor library. Ties are frequent: confidences are rounded (see [DType]), and
// those of sure tokens all become 1.
//
// # The mask token
//
// A model may find the mask token itself the most probable. The references then
// write it: that uses up the step's quota but leaves the position masked, open to
// later steps, and after the last one masked for good. So do the samplers here,
// because equal weights are to give equal tokens. SuppressMask keeps the mask from
// being proposed. Decoding by a threshold or factor always does, since it goes on
// until no mask is left. The mask stays part of the softmax either way, so the
// probabilities of other tokens do not change.
//
// # Determinism
//
// Equal options, prompts and logits give equal tokens on every platform and with
// any number of threads. Each random decision draws from a ChaCha8 stream of its
// own, keyed by seed, step, batch row and position, so no order of evaluation can
// change it; exp and log are computed by this package, since those of package
// math differ between architectures in their last bit; no product is left for a
// compiler to fuse with a sum; and sums over a row have an order that a thousand
// threads of a GPU can keep to as well.
package sampler
