//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// LOAD and CLEAR fill the sums of a tile of 4 rows and 16 lanes, V0 to V15, whose
// rows lie R7 bytes apart from R21 on.
#define LOAD \
	MOVD R21, R23 \
	VLD1 (R23), [V0.S4, V1.S4, V2.S4, V3.S4] \
	ADD R7, R23 \
	VLD1 (R23), [V4.S4, V5.S4, V6.S4, V7.S4] \
	ADD R7, R23 \
	VLD1 (R23), [V8.S4, V9.S4, V10.S4, V11.S4] \
	ADD R7, R23 \
	VLD1 (R23), [V12.S4, V13.S4, V14.S4, V15.S4]

#define CLEAR \
	VEOR V0.B16, V0.B16, V0.B16 \
	VEOR V1.B16, V1.B16, V1.B16 \
	VEOR V2.B16, V2.B16, V2.B16 \
	VEOR V3.B16, V3.B16, V3.B16 \
	VEOR V4.B16, V4.B16, V4.B16 \
	VEOR V5.B16, V5.B16, V5.B16 \
	VEOR V6.B16, V6.B16, V6.B16 \
	VEOR V7.B16, V7.B16, V7.B16 \
	VEOR V8.B16, V8.B16, V8.B16 \
	VEOR V9.B16, V9.B16, V9.B16 \
	VEOR V10.B16, V10.B16, V10.B16 \
	VEOR V11.B16, V11.B16, V11.B16 \
	VEOR V12.B16, V12.B16, V12.B16 \
	VEOR V13.B16, V13.B16, V13.B16 \
	VEOR V14.B16, V14.B16, V14.B16 \
	VEOR V15.B16, V15.B16, V15.B16

// SHRINK multiplies the sums by the factors of their lanes, from R24 on.
#define SHRINK \
	VLD1 (R24), [V16.S4, V17.S4, V18.S4, V19.S4] \
	FOUR3(FMUL, 16, 0, 0) \
	FOUR3(FMUL, 16, 4, 4) \
	FOUR3(FMUL, 16, 8, 8) \
	FOUR3(FMUL, 16, 12, 12)

// MULTIPLY adds the products of 16 lanes of b, V16 to V19, with an element of each
// row of a, V20 to V23.
#define MULTIPLY \
	VFMLA V16.S4, V20.S4, V0.S4 \
	VFMLA V17.S4, V20.S4, V1.S4 \
	VFMLA V18.S4, V20.S4, V2.S4 \
	VFMLA V19.S4, V20.S4, V3.S4 \
	VFMLA V16.S4, V21.S4, V4.S4 \
	VFMLA V17.S4, V21.S4, V5.S4 \
	VFMLA V18.S4, V21.S4, V6.S4 \
	VFMLA V19.S4, V21.S4, V7.S4 \
	VFMLA V16.S4, V22.S4, V8.S4 \
	VFMLA V17.S4, V22.S4, V9.S4 \
	VFMLA V18.S4, V22.S4, V10.S4 \
	VFMLA V19.S4, V22.S4, V11.S4 \
	VFMLA V16.S4, V23.S4, V12.S4 \
	VFMLA V17.S4, V23.S4, V13.S4 \
	VFMLA V18.S4, V23.S4, V14.S4 \
	VFMLA V19.S4, V23.S4, V15.S4

// STORE writes the tile.
#define STORE \
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R21) \
	ADD R7, R21 \
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R21) \
	ADD R7, R21 \
	VST1 [V8.S4, V9.S4, V10.S4, V11.S4], (R21) \
	ADD R7, R21 \
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R21)

// func mulRowsNEON(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *prefetch)
TEXT ·mulRowsNEON(SB), NOSPLIT, $0-136
	MOVD  list_base+0(FP), R0
	MOVD  list_len+8(FP), R1
	MOVD  k+24(FP), R2
	MOVD  a_base+32(FP), R3
	MOVD  lda+56(FP), R4
	LSL   $2, R4
	MOVD  b_base+64(FP), R5
	MOVD  c_base+88(FP), R6
	MOVD  ldc+112(FP), R7
	LSL   $2, R7
	MOVBU accumulate+120(FP), R8
	MOVD  $128, R9               // bytes of a row of b

rows: // R10 to R13 are four rows of a
	MOVW.P 4(R0), R10
	MADD   R4, R3, R10, R10
	MOVW.P 4(R0), R11
	MADD   R4, R3, R11, R11
	MOVW.P 4(R0), R12
	MADD   R4, R3, R12, R12
	MOVW.P 4(R0), R13
	MADD   R4, R3, R13, R13
	MOVD   $0, R14

lanes: // from byte R14 of each row of b on
	ADD  R14, R5, R15
	ADD  R14, R6, R21
	MOVD R10, R16
	MOVD R11, R17
	MOVD R12, R19
	MOVD R13, R20
	MOVD R2, R22
	CBZ  R8, clear
	LOAD
	B    step

clear:
	CLEAR

step:
	VLD1.P  (R15)(R9), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1R.P 4(R16), [V20.S4]
	VLD1R.P 4(R17), [V21.S4]
	VLD1R.P 4(R19), [V22.S4]
	VLD1R.P 4(R20), [V23.S4]
	MULTIPLY
	SUB  $1, R22
	CBNZ R22, step
	STORE
	ADD  $64, R14
	CMP  $128, R14
	BNE  lanes
	ADD  R7<<2, R6
	SUB  $4, R1
	CBNZ R1, rows
	RET

// func mulColsNEON(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch)
TEXT ·mulColsNEON(SB), NOSPLIT, $0-136
	MOVD  m+0(FP), R1
	MOVD  list_base+8(FP), R0
	MOVD  list_len+16(FP), R2
	MOVD  a_base+32(FP), R3
	MOVD  lda+56(FP), R4
	LSL   $2, R4
	MOVD  b_base+64(FP), R5
	MOVD  c_base+88(FP), R6
	MOVD  ldc+112(FP), R7
	LSL   $2, R7
	MOVD  keep+120(FP), R8
	MOVD  $128, R9                // bytes of a row of b

rows: // four columns of a from R3 on
	MOVD $0, R14

lanes: // from byte R14 of each row of b on
	ADD  R14, R5, R15
	ADD  R14, R6, R21
	MOVD R0, R16
	MOVD R2, R22
	CBZ  R8, clear
	ADD  R14, R8, R24
	LOAD
	SHRINK
	B    step

clear:
	CLEAR

step:
	MOVW.P 4(R16), R17
	MADD   R4, R3, R17, R17
	VLD1.P (R15)(R9), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD4R  (R17), [V20.S4, V21.S4, V22.S4, V23.S4]
	MULTIPLY
	SUB  $1, R22
	CBNZ R22, step
	STORE
	ADD  $64, R14
	CMP  $128, R14
	BNE  lanes
	ADD  R7<<2, R6
	ADD  $16, R3
	SUB  $4, R1
	CBNZ R1, rows
	RET

// func scaleRowsNEON(c []float32, rows int, w []float32)
TEXT ·scaleRowsNEON(SB), NOSPLIT, $0-56
	MOVD   c_base+0(FP), R0
	MOVD   rows+24(FP), R1
	MOVD   w_base+32(FP), R2
	VLD1.P 64(R2), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1   (R2), [V20.S4, V21.S4, V22.S4, V23.S4]

row:
	VLD1   (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR3(FMUL, 16, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	VLD1   (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR3(FMUL, 20, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUB    $1, R1
	CBNZ   R1, row
	RET

// DOT makes register d four partial sums of the product of a row with V16 to V23.
#define DOT(d) \
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4] \
	FMUL(16, 4, d) \
	FMLA(17, 5, d) \
	FMLA(18, 6, d) \
	FMLA(19, 7, d) \
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4] \
	FMLA(20, 4, d) \
	FMLA(21, 5, d) \
	FMLA(22, 6, d) \
	FMLA(23, 7, d)

// func dotRowsNEON(dst, p []float32, rows int, w []float32)
TEXT ·dotRowsNEON(SB), NOSPLIT, $0-80
	MOVD   dst_base+0(FP), R0
	MOVD   p_base+24(FP), R1
	MOVD   rows+48(FP), R2
	MOVD   w_base+56(FP), R3
	VLD1.P 64(R3), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1   (R3), [V20.S4, V21.S4, V22.S4, V23.S4]

rows:
	DOT(0)
	DOT(1)
	DOT(2)
	DOT(3)
	FADDP(1, 0, 0)
	FADDP(3, 2, 2)
	FADDP(2, 0, 0)
	VST1.P [V0.S4], 16(R0)
	SUB    $4, R2
	CBNZ   R2, rows
	RET

// func peakFMANEON(n int) (flops int)
//
// 16 sums are enough for four units with a latency of four cycles.
TEXT ·peakFMANEON(SB), NOSPLIT, $0-16
	MOVD n+0(FP), R0
	MOVW $0x3F000000, R1 // 0.5
	VDUP R1, V16.S4
	CLEAR

round:
	VFMLA V16.S4, V16.S4, V0.S4
	VFMLA V16.S4, V16.S4, V1.S4
	VFMLA V16.S4, V16.S4, V2.S4
	VFMLA V16.S4, V16.S4, V3.S4
	VFMLA V16.S4, V16.S4, V4.S4
	VFMLA V16.S4, V16.S4, V5.S4
	VFMLA V16.S4, V16.S4, V6.S4
	VFMLA V16.S4, V16.S4, V7.S4
	VFMLA V16.S4, V16.S4, V8.S4
	VFMLA V16.S4, V16.S4, V9.S4
	VFMLA V16.S4, V16.S4, V10.S4
	VFMLA V16.S4, V16.S4, V11.S4
	VFMLA V16.S4, V16.S4, V12.S4
	VFMLA V16.S4, V16.S4, V13.S4
	VFMLA V16.S4, V16.S4, V14.S4
	VFMLA V16.S4, V16.S4, V15.S4
	SUB  $1, R0
	CBNZ R0, round
	MOVD $128, R1        // 16 times four multiplications and additions
	MOVD R1, flops+8(FP)
	RET
