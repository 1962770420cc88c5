package session

// Graphs is the number of graphs that the session keeps.
func (s *Session) Graphs() int { return len(s.programs) }
