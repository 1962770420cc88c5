package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The texts of the built-in tasks, as in train/tasks.py. Random numbers are drawn in the same order,
// so that one seed gives one text in both languages.

var (
	magicKeys = strings.Fields(`acorn almond anvil basket beacon beetle bishop blanket bonnet bramble brook buckle button cactus
camel candle carrot castle cello cherry chisel clover comet compass coral cradle crayon cricket
crow daisy dolphin donkey dragon drum eagle ember falcon feather fiddle flute fossil fox gander
garlic geyser ginger glove goblet goose granite hammer harbor harp hazel hedge heron ivy jacket
jasmine jewel kettle kite ladder lantern lemon lichen lily lizard magnet mango maple marble
meadow melon mirror mitten monkey moss needle nettle nutmeg oak olive onion orbit orchid otter
oyster paddle panther parrot pebble pepper pigeon pine plum poppy prism puffin quill rabbit
radish raven ribbon saddle salmon satchel shovel spruce stirrup sundial swan thimble thistle
tiger trumpet tulip turnip turtle violet walnut whistle willow wizard zebra`)
	people           = strings.Fields(`Ada Ben Cleo Dina Emil Fay Gus Hugo Ines Jon Kira Leo Mona Nils Olga Pip Rosa Sven Tara Yuri`)
	items            = strings.Fields(`apples books bottles boxes cards coins marbles pencils shells stamps`)
	fillerAdjectives = strings.Fields(`bright broken careful cold dusty faded gentle heavy hidden hollow little lonely narrow pale
patient quiet rusty silent slow small steep sudden tall tired warm wide wooden`)
	fillerNouns = strings.Fields(`baker barge bell boat bridge cat clock cloud crowd dog door farmer ferry garden gate ghost guard
horse house judge key lamp letter map market mill miller nurse painter piano pilot river road
roof sailor school shadow ship singer storm table teacher tower train tree wagon wall wind
window`)
	places = strings.Fields(`attic barn bay cellar church corner field forest garden harbor hill island kitchen lake library
market museum orchard park pier river school square station street tower valley village yard`)
	fillerVerbs = strings.Fields(`appeared changed disappeared fell leaned moved rested returned shone slept stood stopped stayed
turned waited walked`)
)

// fillerSentences do not mention magic numbers.
var fillerSentences = []string{
	"The {adjective} {noun} {verb} near the {place}.",
	"A {adjective} {noun} {verb} beside the {noun2}.",
	"Nobody in the {place} saw the {adjective} {noun}.",
	"Every {noun} in the {place} was {adjective} that day.",
	"{name} walked to the {place} with a {adjective} {noun}.",
	"{name} told {name2} about the {noun} and the {noun2}.",
	"When the {noun} {verb}, the {place} became {adjective}.",
	"The road from the {place} to the {place2} is {adjective}.",
	"{name} likes the {adjective} {noun} more than the {noun2}.",
	"It rained over the {place} until the {noun} {verb}.",
	"There is a {noun} behind the {place}, and it is {adjective}.",
	"{name} left the {place} early, but {name2} stayed.",
	"The {noun} and the {noun2} {verb} at the same time.",
	"Page {number} of the book shows a {adjective} {noun}.",
	"It takes {number} minutes to walk to the {place}.",
	"{name} counted {number} steps from the {noun} to the {place}.",
	"The {noun} was built in the year {year}.",
}

var gain = []string{"{n} finds {a} more.", "{n} buys {a} more.", "{m} gives {n} {a} more.", "Then {n} gets {a} more from {m}."}
var loss = []string{"{n} loses {a} of them.", "{n} sells {a} of them.", "{n} gives {a} of them to {m}.", "Then {m} takes {a} of them."}
var times = []string{"Then {n} has {a} times as many.", "Soon {n} has {a} times as many."}

// largestNumber bounds the numbers of an arithmetic problem.
const largestNumber = 100

// filler is a sentence without a needle's content.
func filler(r *pyRandom) string {
	noun, noun2 := r.two(fillerNouns)
	place, place2 := r.two(places)
	name, name2 := r.two(people)
	sentence := r.choice(fillerSentences)
	adjective, verb := r.choice(fillerAdjectives), r.choice(fillerVerbs)
	number, year := r.between(2, 400), r.between(1500, 1999)
	return strings.NewReplacer(
		"{noun}", noun, "{noun2}", noun2, "{place}", place, "{place2}", place2, "{name}", name, "{name2}", name2,
		"{adjective}", adjective, "{verb}", verb, "{number}", strconv.Itoa(number), "{year}", strconv.Itoa(year),
	).Replace(sentence)
}

func magicNumber(r *pyRandom) int { return r.between(10000, 99999) }

// needleSentence is hidden in a text; it also answers magicQuestion(key).
func needleSentence(key string, value int) string {
	return fmt.Sprintf("The magic number for %s is %d.", key, value)
}

func magicQuestion(key string) string {
	return fmt.Sprintf("What is the magic number for %s?", key)
}

// multiqueryQuestion asks for the numbers of two or more keys; they are the answer, in that order.
func multiqueryQuestion(keys []string) string {
	last := len(keys) - 1
	return fmt.Sprintf("What are the magic numbers for %s and %s?", strings.Join(keys[:last], ", "), keys[last])
}

// assignmentSentence begins a chain of names.
func assignmentSentence(name string, value int) string {
	return fmt.Sprintf("The number of %s is %d.", name, value)
}

// linkSentence gives name the number of other, which the text names first.
func linkSentence(name, other string) string {
	return fmt.Sprintf("The number of %s is that of %s.", name, other)
}

// trackingQuestion asks for the names of a chain; they are the answer, from its beginning.
func trackingQuestion(value string) string {
	return fmt.Sprintf("Which names have the number %s?", value)
}

// listOperations are in the order of train/tasks.py.
var listOperations = []struct {
	name  string
	apply func([]int) []int
}{
	{"reverse", func(x []int) []int { slices.Reverse(x); return x }},
	{"sort", func(x []int) []int { slices.Sort(x); return x }},
	{"double each number in", func(x []int) []int {
		for i := range x {
			x[i] *= 2
		}
		return x
	}},
	{"keep the even numbers in", func(x []int) []int { return slices.DeleteFunc(x, func(v int) bool { return v%2 == 1 }) }},
	{"keep the odd numbers in", func(x []int) []int { return slices.DeleteFunc(x, func(v int) bool { return v%2 == 0 }) }},
}

// listQuestion is a question about a list of three to eight numbers, and its answer.
func listQuestion(r *pyRandom) (question, answer string) {
	operation := listOperations[r.below(len(listOperations))]
	top := 99
	if strings.HasPrefix(operation.name, "double") {
		top = 49
	}
	x := make([]int, r.between(3, 8))
	for i := range x {
		x[i] = r.between(0, top)
	}
	question = fmt.Sprintf("Please %s the list %s.", operation.name, joinNumbers(x))
	if answer = joinNumbers(operation.apply(x)); answer == "" {
		answer = "none"
	}
	return question, answer + "."
}

func joinNumbers(x []int) string {
	words := make([]string, len(x))
	for i, v := range x {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, " ")
}

// arithmeticQuestion is a word problem of the given number of steps, and its worked answer.
func arithmeticQuestion(r *pyRandom, steps int) (question, answer string) {
	n, m := r.two(people)
	item := r.choice(items)
	x := r.between(2, 50)
	told, worked := fmt.Sprintf("%s has %d %s.", n, x, item), ""
	for range steps {
		var signs []string
		if x <= largestNumber-2 {
			signs = append(signs, "+")
		}
		if x >= 3 {
			signs = append(signs, "-")
		}
		if x <= largestNumber/2 {
			signs = append(signs, "*")
		}
		var a, y int
		var sentences []string
		sign := r.choice(signs)
		switch sign {
		case "+":
			a, sentences = r.between(2, min(50, largestNumber-x)), gain
			y = x + a
		case "-":
			a, sentences = r.between(2, min(50, x-1)), loss
			y = x - a
		case "*":
			a, sentences = r.between(2, min(5, largestNumber/x)), times
			y = x * a
		}
		told += " " + strings.NewReplacer("{n}", n, "{m}", m, "{a}", strconv.Itoa(a)).Replace(r.choice(sentences))
		worked += fmt.Sprintf("%d %s %d = %d. ", x, sign, a, y)
		x = y
	}
	return fmt.Sprintf("%s How many %s does %s have now?", told, item, n), fmt.Sprintf("%s#### %d", worked, x)
}

// sameText reports whether an output equals the answer exactly.
func sameText(output, answer string) bool {
	return strings.TrimSpace(output) == strings.TrimSpace(answer)
}

// sameResult marks as GSM8K does, by the number after "####".
func sameResult(output, answer string) bool {
	return strings.Contains(output, resultMark) && sameText(lastPart(output, resultMark), lastPart(answer, resultMark))
}

const resultMark = "####"

func lastPart(text, mark string) string {
	return text[strings.LastIndex(text, mark)+len(mark):]
}
