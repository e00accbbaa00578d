package netns

import "testing"

// A netns is found by its name, by a process, or not at all; those that nobody asks for are left out.
func TestFind(t *testing.T) {
	f := newFinding(t)
	named, _, _ := f.pod("cni-1")
	unnamed, _, _ := f.pod("")
	ended, _, _ := f.pod("")
	f.pod("cni-2")
	ask := make(map[uint64]bool)
	inodeOf := func(path string) uint64 {
		ino, err := Inode(path)
		f.do(err)
		ask[ino] = true
		return ino
	}
	first, second, third := inodeOf(named.Path()), inodeOf(unnamed.Path()), inodeOf(ended.Path())
	ended.Delete()
	found, err := Find(ask)
	f.do(err)
	if len(found) != 2 {
		t.Errorf("found %+v", found)
	}
	if ref := found[first]; ref.Name != "cni-1" || ref.Pid != named.Pid || ref.Inode != first {
		t.Errorf("by its name: %+v", ref)
	}
	if ref := found[second]; ref.Name != "" || ref.Pid != unnamed.Pid || ref.Path != unnamed.Path() {
		t.Errorf("by a process: %+v", ref)
	}
	if _, ok := found[third]; ok && found[third].Pid == ended.Pid {
		t.Errorf("after its end: %+v", found[third])
	}
	if !SeesProcesses() {
		t.Error("the processes of this machine are not seen")
	}
}
