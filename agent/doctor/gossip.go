package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector/cluster"
)

// joined says whether the agent that is meant is to be in a cluster.
func (f *facts) joined() bool {
	return f.opts.Bind != "" || len(f.opts.Join) > 0 || f.status != nil && !f.status.Cluster.Alone
}

const aloneText = "no --join and no --bind: an agent alone finds the duplicates of its own node"

// checkGossip translates what the agent says of the cluster.
func checkGossip(_ context.Context, known *facts) finding {
	s := known.status
	switch {
	case s == nil && known.joined():
		return skip("told by a running agent")
	case !known.joined():
		return skip(aloneText)
	case s.Cluster.Alone:
		return warn("start the agent with the flags that are given here (--join, --bind): duplicates on other nodes are not found",
			"the agent is alone")
	}
	c := s.Cluster
	var advice []string
	advice = append(advice, c.Problems...)
	if c.Unacked > 0 {
		text := fmt.Sprintf("allow TCP and UDP %s between the nodes", portOf(c.Address))
		if names := behind(known.nodes); len(names) > 0 {
			text += "; no acknowledgement comes from " + some(names)
		}
		advice = append(advice, text)
	}
	if c.Members[string(cluster.Alive)] < 2 && c.Members[string(cluster.Dead)]+c.Members[string(cluster.Suspect)] > 0 {
		advice = append(advice, "no other node answers: dupip nodes names them; see whether this one is cut off")
	}
	if known.opts.KeyFile != "" && !c.Encrypted {
		advice = append(advice, "restart the agent with the --gossip-key-file that is given here")
	}
	text := membersText(c)
	if c.Unacked > 0 {
		text += fmt.Sprintf(", %d of %d leases without acknowledgement", c.Unacked, c.Leases)
	}
	if len(advice) > 0 {
		return warn(strings.Join(advice, "; "), "%s", text)
	}
	return ok("%s", text)
}

func membersText(c api.ClusterStatus) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(c.Members)) {
		if n := c.Members[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := "members: " + strings.Join(parts, ", ")
	if len(parts) == 0 {
		text = "no members yet"
	}
	if !c.Encrypted {
		text += ", not encrypted"
	}
	return text
}

// behind are the nodes that have not acknowledged leases.
func behind(nodes *api.Nodes) []string {
	if nodes == nil {
		return nil
	}
	var names []string
	for _, n := range nodes.Nodes {
		if n.Unacked > 0 {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkKeys: would an agent take the key file?
func checkKeys(_ context.Context, known *facts) finding {
	path := known.opts.KeyFile
	switch {
	case !known.joined():
		return skip(aloneText)
	case path == "" && known.status != nil && known.status.Cluster.Encrypted:
		return ok("the agent has keys; name their file with --gossip-key-file to have it examined")
	case path == "":
		return warn("make a key (head -c 32 /dev/urandom | base64), give all nodes the same with --gossip-key-file",
			"no --gossip-key-file: whoever reaches the port reads gossip and may lie")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission) && known.uid != 0:
		return skip("%s needs root", path)
	case err != nil:
		return fail("give the right path with --gossip-key-file, or mount the Secret there", "%v", err)
	case !info.Mode().IsRegular():
		return fail("give a file with --gossip-key-file", "%s is not a regular file", path)
	}
	if known.opts.CountKeys == nil {
		return ok("%s is there", path)
	}
	n, err := known.opts.CountKeys(path)
	switch {
	case errors.Is(err, fs.ErrPermission) && known.uid != 0:
		return skip("%s needs root", path)
	case err != nil:
		return fail("mend it: an agent that starts refuses it, one that runs keeps the former keys", "%v", err)
	case info.Mode().Perm()&0o004 != 0:
		return warn("chmod o-r it", "%s: all users of this node may read the keys", path)
	}
	return ok("%s, %s", path, plural(n, "key"))
}
