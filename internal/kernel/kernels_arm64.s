//go:build !noasm

#include "textflag.h"

// The assembler has no vector arithmetic in floating point but VFMLA. These are
// instructions on four float32, written with the numbers of their registers in
// the order of the assembler: operands, then the result.
#define FADD(m, n, d) WORD $(0x4E20D400 | m<<16 | n<<5 | d)
#define FSUB(m, n, d) WORD $(0x4EA0D400 | m<<16 | n<<5 | d) // n - m
#define FMUL(m, n, d) WORD $(0x6E20DC00 | m<<16 | n<<5 | d)
#define FMLA(m, n, d) WORD $(0x4E20CC00 | m<<16 | n<<5 | d) // d += n m
#define FMAX(m, n, d) WORD $(0x4E20F400 | m<<16 | n<<5 | d) // NaN if one is
#define FMAXNM(m, n, d) WORD $(0x4E20C400 | m<<16 | n<<5 | d) // the other if one is NaN
#define FCMGE(m, n, d) WORD $(0x6E20E400 | m<<16 | n<<5 | d) // all bits set where n >= m
#define FRINTM(n, d) WORD $(0x4E219800 | n<<5 | d) // towards -Inf
#define FCVTZS(n, d) WORD $(0x4EA1B800 | n<<5 | d) // to int32
#define FDIV(m, n, d) WORD $(0x6E20FC00 | m<<16 | n<<5 | d) // n / m
#define FNEG(n, d) WORD $(0x6EA0F800 | n<<5 | d)
#define FADDP(m, n, d) WORD $(0x6E20D400 | m<<16 | n<<5 | d) // sums of neighbours: of n, then of m
#define SHL23(n, d) WORD $(0x4F375400 | n<<5 | d)
#define SSHR31(n, d) WORD $(0x4F210400 | n<<5 | d) // all bits set where the sign is
#define IADD(m, n, d) WORD $(0x4EA08400 | m<<16 | n<<5 | d)
#define MOV(n, d) WORD $(0x4EA01C00 | n<<16 | n<<5 | d)

// The following do an instruction on four vectors, to fill the latency of one with
// the others: FOUR2 and FOUR3 on those from each operand on, ALL2 and ALL3 with the
// same first operand for all.
#define FOUR2(op, n, d) \
	op(n, d) \
	op((n+1), (d+1)) \
	op((n+2), (d+2)) \
	op((n+3), (d+3))

#define FOUR3(op, m, n, d) \
	op(m, n, d) \
	op((m+1), (n+1), (d+1)) \
	op((m+2), (n+2), (d+2)) \
	op((m+3), (n+3), (d+3))

#define ALL3(op, m, n, d) \
	op(m, n, d) \
	op(m, (n+1), (d+1)) \
	op(m, (n+2), (d+2)) \
	op(m, (n+3), (d+3))

#define ALL2(op, n, d) \
	op(n, d) \
	op(n, (d+1)) \
	op(n, (d+2)) \
	op(n, (d+3))

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

// Constants: the coefficients of the polynomial for 2^r of exp.go, constant term
// first. The first one is also 1, and its bits are the bias of exponents.
DATA exp2Poly<>+0(SB)/4, $0x3f800000
DATA exp2Poly<>+4(SB)/4, $0x3f317276
DATA exp2Poly<>+8(SB)/4, $0x3e75e99c
DATA exp2Poly<>+12(SB)/4, $0x3d64c2db
DATA exp2Poly<>+16(SB)/4, $0x3c12b3ea
DATA exp2Poly<>+20(SB)/4, $0x3af84b68
GLOBL exp2Poly<>(SB), RODATA|NOPTR, $24

// LOADPOLY loads them into V24 to V29.
#define LOADPOLY \
	MOVD $exp2Poly<>(SB), R3 \
	VLD1R.P 4(R3), [V24.S4] \
	VLD1R.P 4(R3), [V25.S4] \
	VLD1R.P 4(R3), [V26.S4] \
	VLD1R.P 4(R3), [V27.S4] \
	VLD1R.P 4(R3), [V28.S4] \
	VLD1R.P 4(R3), [V29.S4]

// POWER makes V8 to V11 2^r times the powers of 2 whose exponents are the integers
// in V4 to V7, with r in V0 to V3. It uses V12 to V15.
#define POWER \
	FOUR2(FCVTZS, 4, 4) \
	FOUR2(SHL23, 4, 4) \
	ALL3(IADD, 24, 4, 4) \
	ALL2(MOV, 28, 8) \
	ALL3(FMLA, 29, 0, 8) \
	ALL2(MOV, 27, 12) \
	FOUR3(FMLA, 8, 0, 12) \
	ALL2(MOV, 26, 8) \
	FOUR3(FMLA, 12, 0, 8) \
	ALL2(MOV, 25, 12) \
	FOUR3(FMLA, 8, 0, 12) \
	ALL2(MOV, 24, 8) \
	FOUR3(FMLA, 12, 0, 8) \
	FOUR3(FMUL, 4, 8, 8)

// EXP2 makes V8 to V11 the powers of 2 of V0 to V3, all at most 0. V30 is -127,
// whose power has the exponent bits 0, which means 0.
#define EXP2 \
	ALL3(FMAX, 30, 0, 0) \
	FOUR2(FRINTM, 0, 4) \
	FOUR3(FSUB, 4, 0, 0) \
	POWER

// func softmaxNEON(s []float32, rows int, state []float32)
TEXT ·softmaxNEON(SB), NOSPLIT, $0-56
	MOVD s_base+0(FP), R0
	MOVD rows+24(FP), R1
	MOVD state_base+32(FP), R2
	MOVD $128, R7              // bytes of a row
	LOADPOLY
	MOVW $0xC2FE0000, R3
	VDUP R3, V30.S4            // -127
	MOVW $0xFF7FFFFF, R3
	VDUP R3, V31.S4            // -math.MaxFloat32
	MOVD $2, R4

lanes: // 16 lanes from R0 and R2 on
	VLD1 (R2), [V16.S4, V17.S4, V18.S4, V19.S4]
	MOVD R0, R5
	MOVD R1, R6

maximum:
	VLD1.P (R5)(R7), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR3(FMAXNM, 0, 16, 16)
	SUB    $1, R6
	CBNZ   R6, maximum

	// What was seen before shrinks by the difference to the new maximum, or to 0
	// where that is -Inf.
	VLD1 (R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	VST1 [V16.S4, V17.S4, V18.S4, V19.S4], (R2)
	ALL3(FCMGE, 31, 16, 4)
	VAND V4.B16, V16.B16, V16.B16
	VAND V5.B16, V17.B16, V17.B16
	VAND V6.B16, V18.B16, V18.B16
	VAND V7.B16, V19.B16, V19.B16
	FOUR3(FSUB, 16, 0, 0)
	EXP2
	ADD  $256, R2, R5
	VST1 [V8.S4, V9.S4, V10.S4, V11.S4], (R5)
	ADD  $128, R2, R5
	VLD1 (R5), [V20.S4, V21.S4, V22.S4, V23.S4]
	FOUR3(FMUL, 8, 20, 20)

	MOVD R0, R5
	MOVD R1, R6

power:
	VLD1   (R5), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR3(FSUB, 16, 0, 0)
	EXP2
	FOUR3(FADD, 8, 20, 20)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], (R5)(R7)
	SUB    $1, R6
	CBNZ   R6, power

	ADD  $128, R2, R5
	VST1 [V20.S4, V21.S4, V22.S4, V23.S4], (R5)
	ADD  $64, R0
	ADD  $64, R2
	SUB  $1, R4
	CBNZ R4, lanes
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

// More constants: -0, -88, log2 e, and what float32 lacks of it.
DATA swiGLUConstants<>+0(SB)/4, $0x80000000
DATA swiGLUConstants<>+4(SB)/4, $0xC2B00000
DATA swiGLUConstants<>+8(SB)/4, $0x3FB8AA3B
DATA swiGLUConstants<>+12(SB)/4, $0x32A57060
GLOBL swiGLUConstants<>(SB), RODATA|NOPTR, $16

// func swiGLUNEON(dst, gate, up []float32)
//
// silu(x) is x/(1+e) for x >= 0 and x e/(1+e) for x < 0, with e = exp(-|x|), which
// is 0 below -88.
TEXT ·swiGLUNEON(SB), NOSPLIT, $0-72
	MOVD    dst_base+0(FP), R0
	MOVD    gate_base+24(FP), R1
	MOVD    gate_len+32(FP), R2
	MOVD    up_base+48(FP), R4
	LOADPOLY
	MOVD    $swiGLUConstants<>(SB), R3
	VLD1R.P 4(R3), [V20.S4]
	VLD1R.P 4(R3), [V21.S4]
	VLD1R.P 4(R3), [V22.S4]
	VLD1R.P 4(R3), [V23.S4]

next:
	// -|x| in V16 to V19, its integer part in units of ln 2 in V4 to V7, and what
	// remains in V0 to V3.
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VORR   V20.B16, V0.B16, V16.B16
	VORR   V20.B16, V1.B16, V17.B16
	VORR   V20.B16, V2.B16, V18.B16
	VORR   V20.B16, V3.B16, V19.B16
	ALL3(FMAX, 21, 16, 16)
	ALL3(FMUL, 22, 16, 4)
	FOUR2(FRINTM, 4, 4)
	FOUR2(FNEG, 4, 0)
	ALL3(FMLA, 22, 16, 0)
	ALL3(FMLA, 23, 16, 0)
	POWER

	// The numerator is e where x is negative, else 1.
	SUB    $64, R1
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	ALL3(FADD, 24, 8, 12)
	FOUR2(SSHR31, 0, 4)
	VBSL   V24.B16, V8.B16, V4.B16
	VBSL   V24.B16, V9.B16, V5.B16
	VBSL   V24.B16, V10.B16, V6.B16
	VBSL   V24.B16, V11.B16, V7.B16
	FOUR3(FDIV, 12, 4, 4)
	FOUR3(FMUL, 4, 0, 0)
	VLD1.P 64(R4), [V4.S4, V5.S4, V6.S4, V7.S4]
	FOUR3(FMUL, 4, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUB    $16, R2
	CBNZ   R2, next
	RET
