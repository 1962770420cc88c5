package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

func cpuid() {
	function("cpuid", "(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)", "is the instruction of that name.")
	Load(Param("leaf"), reg.EAX)
	Load(Param("subleaf"), reg.ECX)
	CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		Store(r, ReturnIndex(i))
	}
	RET()
}
