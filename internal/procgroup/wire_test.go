package procgroup

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// FuzzFrame: no bytes make a frame that is larger than frames are, and text has nothing that a
// terminal obeys.
func FuzzFrame(f *testing.F) {
	f.Add(encode(frameHead{frameBeat, 1, 0}))
	f.Add(append(encode(frameHead{frameFail, 3, 5}), "\x1b[2J\x00"...))
	f.Add(encode(frameHead{frameFail, 3, 65535}))
	f.Add(append(encode(frameHead{frameWelcome, 0, uint16(binary.Size(welcome{}))}), encode(welcome{})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readFrame(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(got.payload) > maxPayload || got.rank >= MaxSize || len(got.payload)+binary.Size(frameHead{}) > len(data) {
			t.Fatalf("frame %+v of %d bytes", got, len(data))
		}
		for _, r := range got.text() {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("text %q", got.text())
			}
		}
		var w welcome
		if got.decode(&w) == nil && !bytes.Equal(encode(w), got.payload) {
			t.Fatalf("welcome %+v of %x", w, got.payload)
		}
	})
}

// rootOf returns a rank 0 that waits for others, without a listener.
func rootOf(token string) *Group {
	g := &Group{place: Place{Size: 2, Token: token}, options: Options{}.withDefaults(), links: map[int]*link{}, peers: map[int]hello{}, waiting: map[net.Conn]bool{}}
	g.self = hello{Magic: magic, Protocol: protocol, Size: 2}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	return g
}

// FuzzExamine: what a process sends before its proof neither stops rank 0 nor lets it in.
func FuzzExamine(f *testing.F) {
	good := encode(hello{Magic: magic, Protocol: protocol, Rank: 1, Size: 2, Nonce: newNonce()})
	f.Add(good, make([]byte, 32))
	f.Add(good[:20], []byte{})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{})
	f.Fuzz(func(t *testing.T, first, proof []byte) {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write(append(bytes.Clone(first), proof...)) // ends when the other side does
			there.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		if h, err := rootOf("secret").examine(&link{Conn: here}); err == nil {
			t.Fatalf("let in %+v", h)
		}
		here.Close()
	})
}

// TestExamineProof: with the token a process is let in; with one bit of its messages changed it is
// not.
func TestExamineProof(t *testing.T) {
	mine := encode(hello{Magic: magic, Protocol: protocol, Rank: 1, Size: 2, Nonce: newNonce()})
	for bit := -1; bit < 8*len(mine)+8*32; bit++ {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			data := bytes.Clone(mine)
			if bit >= 0 && bit < 8*len(data) {
				data[bit/8] ^= 1 << (bit % 8)
			}
			_, _ = there.Write(data) // rank 0 may end first, which is what is tested
			var challenge [32]byte
			if _, err := io.ReadFull(there, challenge[:]); err != nil {
				return
			}
			proof := prove([]byte("secret"), "process", mine, challenge[:])
			if at := bit - 8*len(mine); at >= 0 {
				proof[at/8] ^= 1 << (at % 8)
			}
			_, _ = there.Write(proof[:])
			_, _ = io.Copy(io.Discard, there)
		}()
		_, err := rootOf("secret").examine(&link{Conn: here})
		if (err == nil) != (bit == -1) {
			t.Errorf("bit %d changed: %v", bit, err)
		}
		here.Close()
	}
}

// TestNoise: connections that say nothing, or anything else, do not keep a group from forming.
func TestNoise(t *testing.T) {
	port := unusedPort(t)
	address := "127.0.0.1:" + port
	root := start(t, "once", torchEnv(0, 2, port)...)
	var noise []net.Conn
	for deadline := time.Now().Add(10 * time.Second); len(noise) < 40 && time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // rank 0 does not listen yet
			continue
		}
		defer conn.Close()
		noise = append(noise, conn)
		_, _ = io.WriteString(conn, strings.Repeat("noise", len(noise)-1)) // refused meanwhile
	}
	if len(noise) < 40 {
		t.Fatalf("%d connections", len(noise))
	}
	for _, p := range []*process{start(t, "once", torchEnv(1, 2, port)...), root} {
		if err := p.ends(t); err != nil {
			t.Errorf("%v: %s", err, p.err.String())
		}
	}
}
