//go:build amd64 && !noasm

package kernel

//go:generate go run -C _gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg kernel

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// isas lists what this machine can run, fastest first. Package cpu reports an
// instruction set only if the operating system saves its registers.
func isas() []*isa {
	found := []*isa{}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA && hasF16C() {
		avx2 := &isa{
			name:        "avx2",
			mulRows:     mulRowsAVX2,
			mulCols:     mulColsAVX2,
			softmax:     softmaxAVX2,
			scaleRows:   scaleRowsAVX2,
			dotRows:     dotRowsAVX2,
			transpose:   transposeAVX2,
			packF32:     packF32AVX2,
			packBF16:    packBF16AVX2,
			sumSquares:  sumSquaresAVX2,
			applyWeight: applyWeightAVX2,
			swiGLU:      swiGLUAVX2,
			rotate:      rotateAVX2,
			sortKeys:    sortKeysPortable,
			partition:   partitionPortable,
			peakFMA:     peakFMAAVX2,
			codes:       avx2Codes(),
		}
		avx2.bf16 = avx2.roundedProducts(roundRowsUnits)
		avx2.int16 = avx2.integerProducts()
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ {
			// Transposition is bound by shuffles and stores of 8x8 blocks, rotation
			// by loads and stores of short rows: wider registers would not make them
			// faster.
			avx512 := *avx2
			avx512.name = "avx512"
			avx512.mulRows = mulRowsAVX512
			avx512.mulCols = mulColsAVX512
			avx512.softmax = softmaxAVX512
			avx512.scaleRows = scaleRowsAVX512
			avx512.dotRows = dotRowsAVX512
			avx512.sumSquares = sumSquaresAVX512
			avx512.applyWeight = applyWeightAVX512
			avx512.swiGLU = swiGLUAVX512
			avx512.sortKeys = sortKeysAVX512
			avx512.partition = partitionAVX512
			avx512.peakFMA = peakFMAAVX512
			avx512.bf16 = avx512.roundedProducts(roundRowsAVX512)
			avx512.int16 = avx512.integerProducts()
			avx512.codes = avx512Codes()
			if cpu.X86.HasAVX512VNNI {
				avx512.codes = avx512VNNICodes()
				avx512.int16 = int16Products{
					perWord:  2,
					packRows: packRowsAVX512VNNI,
					packCols: packColsAVX512VNNI,
					mulRows:  mulRowsAVX512VNNI,
					mulCols:  mulColsAVX512VNNI,
					unscale:  unscaleAVX512VNNI,
					peakFMA:  peakFMAAVX512VNNI,
				}
			}
			found = append(found, &avx512)
			if cpu.X86.HasAVX512BF16 {
				bf16 := avx512
				bf16.name = "avx512bf16"
				bf16.bf16 = bf16Products{
					perWord:     2,
					unit:        1,
					packRows:    packRowsAVX512BF16,
					packCols:    packColsAVX512BF16,
					packValues:  packRowsAVX512BF16,
					mulRows:     mulRowsAVX512BF16,
					mulCols:     mulColsAVX512BF16,
					softmax:     softmaxAVX512BF16,
					blocking:    packedBlocking,
					fewerPauses: 1,
					peakFMA:     peakFMAAVX512BF16,
				}
				at := 0
				if slowBF16() {
					at = 1
				}
				found = slices.Insert(found, at, &bf16)
				if cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16 && tilesAllowed() {
					amx := bf16
					amx.name = "amx"
					amx.bf16 = tileProducts()
					found = slices.Insert(found, 0, &amx)
				}
			}
		}
		found = append(found, avx2)
	}
	return append(found, &portable)
}

// roundRowsUnits is roundRowsAVX2 for any length.
func roundRowsUnits(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
	units := n / rowUnit * rowUnit
	if units > 0 {
		roundRowsAVX2(dst, ldd, list, src, lds, units)
	}
	if units < n {
		roundRowsPortable(dst[units:], ldd, list, src[units:], lds, n-units)
	}
}

// hasF16C reports whether the processor converts binary16 numbers, which package cpu does not
// say. Every one with AVX2 does.
func hasF16C() bool {
	_, _, features, _ := cpuid(1, 0)
	return features>>29&1 != 0
}

// slowBF16 reports whether the processor has VDPBF16PS, but is faster without.
// Emerald Rapids issues one in two cycles, and in that time four VFMADD231PS,
// which make twice as many products. Intel's other cores with AVX512-FP16 are assumed to be
// alike. The processor's model decides and not a measurement, so that a machine gives the
// same results every time.
func slowBF16() bool {
	const genu, ineI, ntel = 0x756e6547, 0x49656e69, 0x6c65746e // "GenuineIntel"
	_, b, c, d := cpuid(0, 0)
	_, _, _, features := cpuid(7, 0)
	return b == genu && d == ineI && c == ntel && features>>23&1 != 0
}
