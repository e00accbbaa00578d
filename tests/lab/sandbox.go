package lab

import "os/exec"

// AddSandbox makes a netns that is joined to nothing, as a runtime makes it for CNI
// plugins to fill. The lab removes it, if [Node.DeleteSandbox] has not.
func (n *Node) AddSandbox(name string) (*Netns, error) { return n.lab.newNetns(name) }

// DeleteSandbox removes a netns of [Node.AddSandbox] with the devices in it.
func (n *Node) DeleteSandbox(sandbox *Netns) error {
	sandbox.removeDevices()
	n.lab.forget(sandbox)
	return sandbox.close()
}

// Path is the file that opens the netns.
func (n *Netns) Path() string { return netnsDir + "/" + n.Name }

// Start starts a command inside the netns.
func (n *Netns) Start(cmd *exec.Cmd) error { return n.Exec(cmd.Start) }
