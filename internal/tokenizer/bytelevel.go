package tokenizer

// byteRune is the byte-level alphabet of GPT-2 (bytes_to_unicode in its
// encoder.py), in which vocabularies spell their tokens: a printable byte of
// Latin-1 is itself, every other one is the next character from U+0100 on.
var byteRune = func() (table [256]rune) {
	next := rune(0x100)
	for b := range table {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			table[b] = rune(b)
		default:
			table[b] = next
			next++
		}
	}
	return table
}()

// runeByte is the inverse of byteRune.
var runeByte = func() map[rune]byte {
	inverse := make(map[rune]byte, len(byteRune))
	for b, r := range byteRune {
		inverse[r] = byte(b)
	}
	return inverse
}()

// isByteContent reports whether content is spelled in the byte-level alphabet.
func isByteContent(content string) bool {
	for _, r := range content {
		if _, ok := runeByte[r]; !ok {
			return false
		}
	}
	return true
}

// decodeContent returns the bytes a token stands for. One that is not spelled
// in the byte-level alphabet, as an added token with a space, stands for its
// own UTF-8. An added token within the alphabet is read as bytes as well, even
// if its author meant the characters: the reference does so.
func decodeContent(content string) string {
	if !isByteContent(content) {
		return content
	}
	b := make([]byte, 0, len(content))
	for _, r := range content {
		b = append(b, runeByte[r])
	}
	if string(b) == content {
		return content // one copy of the most frequent kind
	}
	return string(b)
}
