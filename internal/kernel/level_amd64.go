//go:build amd64 && !noasm

package kernel

//go:generate go run -C _gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg kernel

import "golang.org/x/sys/cpu"

// levels lists what this machine can run, fastest first. Package cpu reports an
// instruction set only if the operating system saves its registers.
func levels() []*level {
	found := []*level{}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		avx2 := &level{
			name:       "avx2",
			mulRows:    mulRowsAVX2,
			mulCols:    mulColsAVX2,
			softmax:    softmaxAVX2,
			scaleRows:  scaleRowsAVX2,
			dotRows:    dotRowsAVX2,
			transpose:  transposeAVX2,
			packF32:    packF32AVX2,
			packBF16:   packBF16AVX2,
			sumSquares: sumSquaresAVX2,
			weigh:      weighAVX2,
			swiGLU:     swiGLUAVX2,
			rotate:     rotateAVX2,
			rank:       rankPortable,
			partition:  partitionPortable,
			spin:       spinAVX2,
		}
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
			avx512.weigh = weighAVX512
			avx512.swiGLU = swiGLUAVX512
			avx512.rank = rankAVX512
			avx512.partition = partitionAVX512
			avx512.spin = spinAVX512
			found = append(found, &avx512)
		}
		found = append(found, avx2)
	}
	return append(found, &portable)
}
