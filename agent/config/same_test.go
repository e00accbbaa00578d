package config

import "testing"

// TestSameRules: which rules match counts, whatever their addresses.
func TestSameRules(t *testing.T) {
	c, err := Parse([]byte(`
networks:
  - name: a
    match: {interfaces: ["cali*"], cidrs: [10.0.0.0/8]}
  - name: b
    match: {bridges: [br0]}
  - name: default
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		a, b Subject
		want bool
	}{
		{Subject{Interface: "veth0"}, Subject{Interface: "veth1"}, true},
		{Subject{Interface: "cali0"}, Subject{Interface: "cali1", Peer: "eth0"}, true},
		{Subject{Interface: "cali0"}, Subject{Interface: "veth0"}, false},
		{Subject{Interface: "veth0"}, Subject{Interface: "veth0", Bridge: "br1"}, true},
		{Subject{Interface: "veth0"}, Subject{Interface: "veth0", Bridge: "br0"}, false},
	} {
		if got := c.SameRules(test.a, test.b); got != test.want {
			t.Errorf("%+v and %+v: %t, want %t", test.a, test.b, got, test.want)
		}
	}
	if !(*Config)(nil).SameRules(Subject{Interface: "a"}, Subject{Interface: "b"}) {
		t.Error("without a file all are the same")
	}
}
