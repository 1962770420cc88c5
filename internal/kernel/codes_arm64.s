//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// More instructions that the assembler does not have; see neon_arm64.h.
#define SCVTF(n, d) WORD $(0x4E21D800 | n<<5 | d) // from int32
#define FMLS(m, n, d) WORD $(0x4EA0CC00 | m<<16 | n<<5 | d) // d -= n m

// SDOT adds to int32 of d the products of four signed bytes of n with those of word (h, l) of m.
#define SDOT(h, l, m, n, d) WORD $(0x4F80E000 | l<<21 | m<<16 | h<<11 | n<<5 | d)

// STEP adds the products of the codes of eight lanes with word (h, l) of four rows, V20 to
// V23, to V0 to V7. V18 has the offset of codes.
#define STEP(h, l) \
	VLD1 (R17), [V16.B16, V17.B16] \
	ADD $128, R17 \
	VSUB V18.B16, V16.B16, V16.B16 \
	VSUB V18.B16, V17.B16, V17.B16 \
	SDOT(h, l, 20, 16, 0) \
	SDOT(h, l, 20, 17, 1) \
	SDOT(h, l, 21, 16, 2) \
	SDOT(h, l, 21, 17, 3) \
	SDOT(h, l, 22, 16, 4) \
	SDOT(h, l, 22, 17, 5) \
	SDOT(h, l, 23, 16, 6) \
	SDOT(h, l, 23, 17, 7)

// INPUTS loads 16 bytes of four rows from R22 on, whose blocks are 48 bytes apart.
#define INPUTS \
	VLD1 (R22), [V20.B16] \
	ADD $48, R22, R23 \
	VLD1 (R23), [V21.B16] \
	ADD $48, R23 \
	VLD1 (R23), [V22.B16] \
	ADD $48, R23 \
	VLD1 (R23), [V23.B16]

#define CLEAR \
	VEOR V0.B16, V0.B16, V0.B16 \
	VEOR V1.B16, V1.B16, V1.B16 \
	VEOR V2.B16, V2.B16, V2.B16 \
	VEOR V3.B16, V3.B16, V3.B16 \
	VEOR V4.B16, V4.B16, V4.B16 \
	VEOR V5.B16, V5.B16, V5.B16 \
	VEOR V6.B16, V6.B16, V6.B16 \
	VEOR V7.B16, V7.B16, V7.B16

// NUMBERS multiplies the integers of a row, n and n+1, by the scales V24 and V25.
#define NUMBERS(n) \
	SCVTF(n, n) \
	SCVTF((n+1), (n+1)) \
	FMUL(24, n, n) \
	FMUL(25, (n+1), (n+1))

// LEAST adds the minima V26 and V27 times the sum of the inputs of a row, which is negated,
// from R23 on.
#define LEAST(n) \
	VLD1R (R23), [V28.S4] \
	SCVTF(28, 28) \
	FMLS(28, 26, n) \
	FMLS(28, 27, (n+1)) \
	ADD $48, R23

// ADDROW adds the numbers of a row times the value of its byte 1, from R23 on, to V(n+8).
#define ADDROW(n) \
	VLD1R (R23), [V28.S4] \
	FMLA(28, n, (n+8)) \
	FMLA(28, (n+1), (n+9)) \
	ADD $48, R23

// func mulBlocksSDOT(y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, offset, group int, accumulate bool)
TEXT ·mulBlocksSDOT(SB), NOSPLIT, $0-169
	MOVD ldy+24(FP), R1
	LSL  $2, R1
	MOVD ldx+56(FP), R3
	LSL  $2, R3
	MOVD minima_len+136(FP), R9
	MOVD offset+152(FP), R4
	VDUP R4, V18.B16
	MOVD group+160(FP), R10
	MOVBU accumulate+168(FP), R11
	MOVD $0, R12

columns: // eight lanes from byte R12 of a row on
	MOVD y_base+0(FP), R13
	ADD  R12, R13
	MOVD x_base+32(FP), R14
	MOVD rows+64(FP), R15

rows:
	MOVD codes_base+80(FP), R17
	ADD  R12, R17
	MOVD scales_base+104(FP), R19
	ADD  R12, R19
	MOVD minima_base+128(FP), R20
	ADD  R12, R20
	MOVD blocks+72(FP), R21
	MOVD R14, R16
	VEOR V8.B16, V8.B16, V8.B16
	VEOR V9.B16, V9.B16, V9.B16
	VEOR V10.B16, V10.B16, V10.B16
	VEOR V11.B16, V11.B16, V11.B16
	VEOR V12.B16, V12.B16, V12.B16
	VEOR V13.B16, V13.B16, V13.B16
	VEOR V14.B16, V14.B16, V14.B16
	VEOR V15.B16, V15.B16, V15.B16
	CBZ  R11, block
	MOVD R13, R23
	VLD1 (R23), [V8.S4, V9.S4]
	ADD  R1, R23
	VLD1 (R23), [V10.S4, V11.S4]
	ADD  R1, R23
	VLD1 (R23), [V12.S4, V13.S4]
	ADD  R1, R23
	VLD1 (R23), [V14.S4, V15.S4]

block:
	MOVD R16, R22
	MOVD $2, R24

half:
	CMP  $1, R24
	BNE  clear
	CMP  $32, R10
	BEQ  products

clear:
	CLEAR

products:
	INPUTS
	STEP(0, 0)
	STEP(0, 1)
	STEP(1, 0)
	STEP(1, 1)
	ADD  $16, R22
	CMP  $2, R24
	BNE  numbers
	CMP  $32, R10
	BEQ  next

numbers:
	VLD1 (R19), [V24.S4, V25.S4]
	ADD  $128, R19
	NUMBERS(0)
	NUMBERS(2)
	NUMBERS(4)
	NUMBERS(6)
	CBZ  R9, units
	VLD1 (R20), [V26.S4, V27.S4]
	ADD  $128, R20
	ADD  $36, R16, R23
	LEAST(0)
	LEAST(2)
	LEAST(4)
	LEAST(6)

units:
	ADD  $32, R16, R23
	ADDROW(0)
	ADDROW(2)
	ADDROW(4)
	ADDROW(6)

next:
	SUB  $1, R24
	CBNZ R24, half
	ADD  $192, R16
	SUB  $1, R21
	CBNZ R21, block

	VST1 [V8.S4, V9.S4], (R13)
	ADD  R1, R13
	VST1 [V10.S4, V11.S4], (R13)
	ADD  R1, R13
	VST1 [V12.S4, V13.S4], (R13)
	ADD  R1, R13
	VST1 [V14.S4, V15.S4], (R13)
	ADD  R1, R13
	ADD  R3, R14
	SUB  $4, R15
	CBNZ R15, rows
	ADD  $32, R12
	CMP  $128, R12
	BNE  columns
	RET

// EXPAND writes byte i of the words V2 and V3 as float32, times the scales V24 and V25, plus the
// minima V26 and V27, from R5 on.
#define EXPAND \
	VAND V19.B16, V4.B16, V4.B16 \
	VAND V19.B16, V5.B16, V5.B16 \
	VSUB V18.S4, V4.S4, V4.S4 \
	VSUB V18.S4, V5.S4, V5.S4 \
	SCVTF(4, 4) \
	SCVTF(5, 5) \
	VMOV V26.B16, V6.B16 \
	VMOV V27.B16, V7.B16 \
	FMLA(24, 4, 6) \
	FMLA(25, 5, 7) \
	VST1 [V6.S4, V7.S4], (R5) \
	ADD $128, R5

// func expandNEON(dst, codes, scales, minima []float32, n, group, offset int)
TEXT ·expandNEON(SB), NOSPLIT, $0-120
	MOVD offset+112(FP), R4
	VDUP R4, V18.S4
	MOVD $255, R4
	VDUP R4, V19.S4
	MOVD minima_len+80(FP), R9
	MOVD $0x80000000, R4
	MOVD $0, R12

expandColumns: // eight lanes from byte R12 of a row on
	MOVD dst_base+0(FP), R5
	ADD  R12, R5
	MOVD codes_base+24(FP), R6
	ADD  R12, R6
	MOVD scales_base+48(FP), R7
	ADD  R12, R7
	MOVD minima_base+72(FP), R8
	ADD  R12, R8
	MOVD n+96(FP), R10
	VDUP R4, V26.S4 // -0, which changes no sum
	VDUP R4, V27.S4

expandGroup:
	VLD1 (R7), [V24.S4, V25.S4]
	ADD  $128, R7
	CBZ  R9, expandWords
	VLD1 (R8), [V26.S4, V27.S4]
	ADD  $128, R8

expandWords:
	MOVD group+104(FP), R11
	SUB  R11, R10

expandWord:
	VLD1 (R6), [V2.S4, V3.S4]
	ADD  $128, R6
	VMOV V2.B16, V4.B16
	VMOV V3.B16, V5.B16
	EXPAND
	VUSHR $8, V2.S4, V4.S4
	VUSHR $8, V3.S4, V5.S4
	EXPAND
	VUSHR $16, V2.S4, V4.S4
	VUSHR $16, V3.S4, V5.S4
	EXPAND
	VUSHR $24, V2.S4, V4.S4
	VUSHR $24, V3.S4, V5.S4
	EXPAND
	SUB  $4, R11
	CBNZ R11, expandWord
	CBNZ R10, expandGroup
	ADD  $32, R12
	CMP  $128, R12
	BNE  expandColumns
	RET

// func peakSDOT(n int) (flops int)
TEXT ·peakSDOT(SB), NOSPLIT, $0-16
	MOVD n+0(FP), R0
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V20.B16, V20.B16, V20.B16
	CLEAR

peak:
	SDOT(0, 0, 20, 16, 0)
	SDOT(0, 0, 20, 16, 1)
	SDOT(0, 0, 20, 16, 2)
	SDOT(0, 0, 20, 16, 3)
	SDOT(0, 0, 20, 16, 4)
	SDOT(0, 0, 20, 16, 5)
	SDOT(0, 0, 20, 16, 6)
	SDOT(0, 0, 20, 16, 7)
	SUB  $1, R0
	CBNZ R0, peak
	MOVD $256, R0 // 8 times 16 products and sums
	MOVD R0, flops+8(FP)
	RET
