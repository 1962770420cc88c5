//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

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
