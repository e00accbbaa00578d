package say

import (
	"testing"

	"github.com/dupip/dupip/document"
)

func TestWho(t *testing.T) {
	for want, b := range map[string]document.Binding{
		"shop/web":      {Holder: document.Holder{Pod: &document.Pod{Namespace: "shop", Name: "web"}, Netns: "cni-1", NetnsCookie: 7}},
		"cni-1":         {Holder: document.Holder{Netns: "cni-1", NetnsCookie: 7}},
		"(no name yet)": {Holder: document.Holder{NetnsCookie: 7}},
		"unseen netns":  {Holder: document.Holder{Ifindex: 3}},
	} {
		if got := Who(b); got != want {
			t.Errorf("%+v is %q, want %q", b, got, want)
		}
	}
}
