package kernel

func Force(name string) {
	for _, l := range levels() {
		if l.name == name {
			active = l
		}
	}
}
