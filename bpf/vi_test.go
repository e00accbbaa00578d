package bpf
import "testing"
func TestVI(t *testing.T) {
	for _, m := range []Mode{TC, XDP} {
		o := load(t, Options{Mode: m})
		i, _ := o.program.Info()
		n, ok := i.VerifiedInstructions()
		t.Log(m, n, ok)
	}
}
