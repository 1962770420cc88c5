package kernel

import "math"

// CrossEntropy computes the loss of each row of logits [R, vocab], dst [R],
//
//	dst = log(sum of exp(logits)) - logits[target]
//
// and 0 for a negative target. Targets are below vocab.
func (t *Team) CrossEntropy(dst, logits []float32, targets []int32) {
	vocab := checkTargets("CrossEntropy", logits, targets)
	checkLen("CrossEntropy", "dst", len(dst), len(targets))
	s := rowSpans(len(targets), vocab)
	run(t, &t.crossEntropy, s.tasks(), crossEntropyJob{dst: dst, logits: logits, targets: targets, vocab: vocab, spans: s})
}

// CrossEntropyGrad is the backward pass of CrossEntropy: dlogits [R, vocab] is
// dy (softmax(logits) - 1 at the target), and 0 for a negative target.
func (t *Team) CrossEntropyGrad(dlogits, dy, logits []float32, targets []int32) {
	vocab := checkTargets("CrossEntropyGrad", logits, targets)
	checkLen("CrossEntropyGrad", "dlogits", len(dlogits), len(logits))
	checkLen("CrossEntropyGrad", "dy", len(dy), len(targets))
	s := rowSpans(len(targets), vocab)
	run(t, &t.crossEntropy, s.tasks(), crossEntropyJob{dlogits: dlogits, dy: dy, logits: logits, targets: targets, vocab: vocab, spans: s})
}

func checkTargets(fn string, logits []float32, targets []int32) (vocab int) {
	vocab = len(logits) / max(1, len(targets))
	checkLen(fn, "logits", len(logits), vocab*len(targets))
	return vocab
}

type crossEntropyJob struct {
	dst         []float32 // nil in the backward pass
	dlogits, dy []float32
	logits      []float32
	targets     []int32
	vocab       int
	spans
}

func (j *crossEntropyJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	for r := lo; r < hi; r++ {
		target, logits := int(j.targets[r]), j.logits[r*j.vocab:][:j.vocab]
		if j.dst != nil {
			j.dst[r] = 0
			if target >= 0 {
				most, sum := softmaxSum(logits)
				j.dst[r] = float32(math.Log(sum) + float64(most) - float64(logits[target]))
			}
			continue
		}
		grad := j.dlogits[r*j.vocab:][:j.vocab]
		if target < 0 {
			clear(grad)
			continue
		}
		most, sum := softmaxSum(logits)
		scale := float32(float64(j.dy[r]) / sum)
		for i, x := range logits {
			grad[i] = scale * exp32(x-most)
		}
		grad[target] -= j.dy[r]
	}
}

// softmaxSum returns the largest logit and the sum of exp(logit - largest).
func softmaxSum(logits []float32) (most float32, sum float64) {
	most = float32(math.Inf(-1))
	for _, x := range logits {
		most = max(most, x)
	}
	for _, x := range logits {
		sum += float64(exp32(x - most))
	}
	return most, sum
}
