package detector

import "testing"

// TestPlacePairs: of two nodes with one address at these places, must each hear the other one, and is it a finding if they do not.
func TestPlacePairs(t *testing.T) {
	const hear, told = "hear ", "told"
	for pair, want := range map[[2]Place]string{
		{0, 0}: "", {0, PlaceUplink}: "", {0, PlaceUnasked}: "", {0, PlaceBridge}: told, {0, PlaceSegment}: hear, {0, PlaceSecond}: hear,
		{PlaceUplink, PlaceUplink}: hear + told, {PlaceUplink, PlaceUnasked}: told, {PlaceUplink, PlaceBridge}: told, {PlaceUplink, PlaceSegment}: hear, {PlaceUplink, PlaceSecond}: hear,
		{PlaceUnasked, PlaceUnasked}: told, {PlaceUnasked, PlaceBridge}: told, {PlaceUnasked, PlaceSegment}: hear, {PlaceUnasked, PlaceSecond}: hear,
		{PlaceBridge, PlaceBridge}: told, {PlaceBridge, PlaceSegment}: hear + told, {PlaceBridge, PlaceSecond}: hear + told,
		{PlaceSegment, PlaceSegment}: hear + told, {PlaceSegment, PlaceSecond}: hear + told, {PlaceSecond, PlaceSecond}: hear,
	} {
		for _, p := range [][2]Place{pair, {pair[1], pair[0]}} {
			got := ""
			if MustHear(p[0], p[1]) {
				got = hear
			}
			if Told(p[0], p[1]) {
				got += told
			}
			if got != want {
				t.Errorf("%v: %q, want %q", p, got, want)
			}
		}
	}
}
