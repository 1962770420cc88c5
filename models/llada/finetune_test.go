package llada_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/task"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lesson is a task that the small model has not seen: a question in one word about a number in
// a text, to be answered with the number alone. The model answers "What is the magic number for
// mitten?" with a sentence.
type lesson struct {
	task          task.Task
	m             *llada.Model
	next          int // sample
	batch, tokens int
}

// answerTokens are masked at the end of each sequence: the number and ends of the answer.
const answerTokens = 8

// draw fills a graph's inputs with new questions, and targets with the tokens of their answers.
func (l *lesson) draw(g *models.Graph, targets *gorgonia.Node) error {
	var ids, at, rows, want []int32
	for range l.batch {
		prompt, answer, err := l.question()
		if err != nil {
			return err
		}
		for i := range l.tokens {
			at = append(at, int32(i))
			if i < len(prompt) {
				ids = append(ids, prompt[i])
				continue
			}
			rows, want = append(rows, int32(len(ids))), append(want, answer[i-len(prompt)])
			ids = append(ids, l.m.Config().MaskID)
		}
	}
	for n, v := range map[*gorgonia.Node][]int32{g.IDs: ids, g.Positions: at, g.Rows: rows, targets: want} {
		if err := gorgonia.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(v))); err != nil {
			return err
		}
	}
	return nil
}

// question has a prompt of tokens-answerTokens tokens and an answer of answerTokens.
func (l *lesson) question() (prompt, answer []int32, err error) {
	s, err := l.task.Sample(l.next)
	if err != nil {
		return nil, nil, err
	}
	l.next++
	text := strings.Replace(s.Prompt, "Q: What is the magic number for ", "Q: ", 1)
	words := strings.Fields(strings.TrimSuffix(s.Answers[0], "."))
	if prompt, err = l.m.Encode(text); err != nil {
		return nil, nil, err
	}
	prompt = prompt[len(prompt)-(l.tokens-answerTokens):]
	if answer, err = l.m.Encode(" " + words[len(words)-1]); err != nil {
		return nil, nil, err
	}
	for len(answer) < answerTokens {
		answer = append(answer, l.m.Config().EOSID)
	}
	return prompt, answer, nil
}

// result is what a training shows: for each quarter of its questions the mean loss and the share
// that was right before the model had seen them.
type result struct{ loss, right [4]float64 }

// train fine-tunes adapters on some batches of questions. Columns are those of one batch: a
// refresh selects them, and the step of the solver comes after a reuse step on the same batch.
// toggle switches sparse attention off for every second pair of batches.
func train(m *llada.Model, sparsity float64, toggle bool, batches int) (res result, err error) {
	const batch, tokens, rank, scale = 2, 240, 8, 2
	ctl, err := pulsecol.NewController(pulsecol.Config{Sparsity: sparsity, GroupSize: 16, Schedule: pulsecol.Every{Steps: 2}, Device: pulsecol.CPU})
	if err != nil {
		return res, err
	}
	g := gorgonia.NewGraph()
	var params gorgonia.Nodes
	built, err := m.BuildTrained(g, models.Shape{Batch: batch, Len: tokens, Rows: batch * answerTokens}, ctl, func(i int, b *graph.Block) error {
		nodes, err := b.Adapt(g, rank, scale, uint64(i))
		params = append(params, nodes...)
		return err
	})
	if err != nil {
		return res, err
	}
	targets := gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(batch*answerTokens), gorgonia.WithName("targets"))
	losses, err := graph.CrossEntropy("loss", built.Logits, targets)
	if err != nil {
		return res, err
	}
	cost, err := gorgonia.Mean(losses)
	if err != nil {
		return res, err
	}
	if _, err := op.Grad(cost, params...); err != nil {
		return res, err
	}
	vm, err := pulsecol.NewMachine(g, ctl, gorgonia.BindDualValues(params...))
	if err != nil {
		return res, err
	}
	defer vm.Close()
	if err := ctl.StartEndless(); err != nil {
		return res, err
	}
	l := &lesson{m: m, batch: batch, tokens: tokens}
	if l.task, err = task.New("retrieval@256", task.Options{Seed: 3, Count: l.count}); err != nil {
		return res, err
	}
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(3e-3))
	for i := range batches {
		if err := l.draw(built, targets); err != nil {
			return res, err
		}
		ctl.SetDense(toggle && i/2%2 == 1)
		for range 2 { // a refresh and a reuse, or two dense steps
			if err := vm.Step(); err != nil {
				return res, err
			}
		}
		quarter, share := 4*i/batches, 4/float64(batches)
		res.loss[quarter] += share * float64(cost.Value().Data().(float32))
		res.right[quarter] += share * rightAnswers(built, targets, batch)
		if err := solver.Step(gorgonia.NodesToValueGrads(params)); err != nil {
			return res, err
		}
	}
	return res, nil
}

func (l *lesson) count(text string) int {
	ids, err := l.m.Encode(text)
	if err != nil {
		return 1
	}
	return len(ids)
}

// rightAnswers is the share of sequences of which every answer token has the largest logit.
func rightAnswers(g *models.Graph, targets *gorgonia.Node, batch int) (share float64) {
	logits, want := g.Logits.Value().Data().([]float32), targets.Value().Data().([]int32)
	for b := range batch {
		right := true
		for i := b * answerTokens; i < (b+1)*answerTokens; i++ {
			row := logits[i*g.Vocab:][:g.Vocab]
			right = right && row[want[i]] == slices.Max(row)
		}
		if right {
			share += 1 / float64(batch)
		}
	}
	return share
}

// TestFineTuning: adapters learn the new task under dense attention, under PulseCol at 80 %
// sparsity, and with sparse attention switched on and off. The loss falls alike, and answers
// are as often right as under dense attention, within noise. PULSECOL_TRAIN=1 trains longer.
func TestFineTuning(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 15 seconds of processor time")
	}
	m, err := llada.OpenFS(tinymodel.FS(), tinymodel.Weights())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	batches := 12
	if os.Getenv("PULSECOL_TRAIN") != "" {
		batches = 100
	}
	var dense result
	for i, c := range []struct {
		name     string
		sparsity float64
		toggle   bool
	}{{"dense", 0, false}, {"pulsecol 80 %", 0.8, false}, {"pulsecol 80 %, toggled", 0.8, true}} {
		got, err := train(m, c.sparsity, c.toggle, batches)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: loss %.2f, right %.2f, by quarter of %d questions", c.name, got.loss, got.right, 2*batches)
		if i == 0 {
			dense = got
		}
		if !(got.loss[3] < got.loss[0]/2) {
			t.Errorf("%s: the loss is %.2f in the last quarter, %.2f in the first", c.name, got.loss[3], got.loss[0])
		}
		// Three standard deviations of the difference of two shares of the second half, whose
		// questions are the same.
		share, want := (got.right[2]+got.right[3])/2, (dense.right[2]+dense.right[3])/2
		if noise := 3 * math.Sqrt(2*0.25/float64(batches)); math.Abs(share-want) > noise {
			t.Errorf("%s: %.2f of the second half are right, under dense attention %.2f, which is more than noise of %.2f", c.name, share, want, noise)
		}
	}
}
