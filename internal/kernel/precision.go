package kernel

import "fmt"

// Precision is what operands of products are rounded to, both unless said otherwise. Sums are
// float32, and so is everything else: softmax, normalisation, results.
type Precision uint8

const (
	// AutoPrecision is the device's own: Float32 on the CPU, and so in this package;
	// BFloat16 on GPUs.
	AutoPrecision Precision = iota
	Float32                 // not rounded
	// BFloat16 rounds to 8 significant bits, ties to even. Where the processor
	// multiplies pairs of bfloat16 faster than float32, it does so, and takes
	// subnormal numbers for 0; elsewhere the rounded numbers are multiplied as
	// float32, at no gain in speed. The same bits for any number of threads, but
	// not for any processor.
	BFloat16
	// Int16 makes operands integers that share a factor: those of a query, of a
	// key, of a feature of v over a block of keys, and of 256 neighbours in a row of
	// inputs or weights of a linear layer. They have as many bits as exact sums of
	// 32 bits allow, 12 and a sign for a head dimension of 128, so that results are
	// closer to those of Float32 than BFloat16's unless a few numbers are far
	// larger than their neighbours. It is faster with AVX512-VNNI; elsewhere the integers are
	// multiplied as float32, and it is slower. An infinity counts as NaN.
	Int16
	// Int8 rounds inputs of linear layers, where the weights are quantized, to integers of 8
	// bits with a factor for each 32 neighbours in a row, and takes the weights as they are:
	// sums of products of integers, which are exact, are multiplied by the factors. All
	// other products are those of Float32. An infinity counts as NaN. The same bits for any number of
	// threads and any processor.
	Int8
)

// rounds reports whether both operands of all products are rounded on the CPU.
func (p Precision) rounds() bool { return p == BFloat16 || p == Int16 }

// Validate reports a precision that is none of these.
func (p Precision) Validate() error {
	if p > Int8 {
		return fmt.Errorf("precision is %v, want auto, float32, bfloat16, int16 or int8", p)
	}
	return nil
}

func (p Precision) String() string {
	switch p {
	case AutoPrecision:
		return "auto"
	case Float32:
		return "float32"
	case BFloat16:
		return "bfloat16"
	case Int16:
		return "int16"
	case Int8:
		return "int8"
	}
	return fmt.Sprintf("Precision(%d)", uint8(p))
}
