package kernel

import "fmt"

// Precision is what both operands of every product are rounded to. Sums are
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
)

// rounds reports whether operands are rounded on the CPU.
func (p Precision) rounds() bool { return p > Float32 }

// Validate reports a precision that is none of these.
func (p Precision) Validate() error {
	if p > Int16 {
		return fmt.Errorf("precision is %v, want auto, float32, bfloat16 or int16", p)
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
	}
	return fmt.Sprintf("Precision(%d)", uint8(p))
}
