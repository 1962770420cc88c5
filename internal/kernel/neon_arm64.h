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
