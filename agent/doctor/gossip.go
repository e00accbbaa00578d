package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document/say"
)

// joined reports whether the agent should be in a cluster.
func (f *facts) joined() bool {
	return f.opts.Bind != "" || len(f.opts.Join) > 0 || f.status != nil && !f.status.Cluster.Alone
}

// checkGossip checks the agent's view of the cluster, so that duplicates on other nodes are found.
func checkGossip(_ context.Context, known *facts) Check {
	c := known.status.Cluster
	if c.Alone {
		return warn("start the agent with the flags that are given here (--join, --bind): duplicates on other nodes are not found", "the agent is alone")
	}
	var members []string
	for _, state := range slices.Sorted(maps.Keys(c.Members)) {
		if n := c.Members[state]; n > 0 {
			members = append(members, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := "members: " + strings.Join(members, ", ")
	if !c.Encrypted {
		text += ", not encrypted"
	}
	advice := slices.Clone(c.Problems)
	if c.Unacked > 0 {
		text += fmt.Sprintf(", %d of %d leases without acknowledgement", c.Unacked, c.Leases)
		_, port, _ := net.SplitHostPort(c.Address)
		advice = append(advice, fmt.Sprintf("allow TCP and UDP port %s between the nodes", port))
		var behind []string
		for _, n := range known.nodes.Nodes {
			if n.Unacked > 0 {
				behind = append(behind, n.Name)
			}
		}
		if len(behind) > 0 {
			advice = append(advice, "no acknowledgement comes from "+detector.List(behind))
		}
	}
	if c.Members[cluster.Alive] < 2 && c.Members[cluster.Dead]+c.Members[cluster.Suspect] > 0 {
		advice = append(advice, "no other node answers: dupip nodes names them; see whether this one is cut off")
	}
	if known.opts.KeyFile != "" && !c.Encrypted {
		advice = append(advice, "restart the agent with the --gossip-key-file that is given here")
	}
	if len(advice) > 0 {
		return warn(strings.Join(advice, "; "), "%s", text)
	}
	return ok("%s", text)
}

// checkKeys checks whether the key file is there if the agent needs one, and valid and private.
func checkKeys(_ context.Context, known *facts) Check {
	const advice = "make a key (head -c 32 /dev/urandom | base64 > FILE) and give it to all nodes with --gossip-key-file"
	path, running := known.opts.KeyFile, known.status != nil && !known.status.Cluster.Alone
	switch {
	case path != "":
	case running && known.status.Cluster.Encrypted:
		return ok("the agent has keys; name their file with --gossip-key-file to have it examined")
	case running:
		return ok("the agent has none: its gossip is reached from this node only")
	case !known.opts.NeedsKey:
		return ok("no key is needed: --bind %s is reached from this node only", known.opts.Bind)
	default:
		return fail(advice, "no --gossip-key-file: the agent does not start")
	}
	n, err := known.opts.CountKeys(path)
	if err != nil {
		return known.failOrSkip("--gossip-key-file: "+fileAdvice, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
		return warn("chmod o-r it", "%s: all users of this node may read the keys", path)
	}
	return ok("%s, %s", path, say.Plural(n, "key", "keys"))
}

// checkGossipPort checks whether an agent could listen at the port, with TCP and UDP.
func checkGossipPort(_ context.Context, known *facts) Check {
	bind, port := known.opts.Bind, known.opts.GossipPort
	if s := known.status; s != nil && !s.Cluster.Alone {
		return ok("%s, the agent's", s.Cluster.Address)
	}
	if err := known.opts.CheckPort(bind, port); err != nil {
		return fail(fmt.Sprintf("ss -lntup 'sport = :%d' names the program that uses the port: stop it, or choose another --gossip-port, the same on all nodes; "+
			"--bind has to be an address of this node", port), "%v", err)
	}
	return ok("%s is free, TCP and UDP", net.JoinHostPort(bind, strconv.Itoa(port)))
}

// maxTargets limits the addresses to try. joinTime is for resolving, and again for connecting.
const maxTargets, joinTime = 16, 2 * time.Second

// checkJoin checks whether --join leads to nodes that accept connections. It connects to none if the
// agent has other members already.
func checkJoin(ctx context.Context, known *facts) Check {
	if len(known.opts.Join) == 0 {
		return ok("no --join: others join this node")
	}
	if s := known.status; s != nil && s.Cluster.Members[cluster.Alive] > 1 {
		return ok("joined, see \"gossip\"")
	}
	resolving, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	addresses, unresolved := known.opts.Resolve(resolving, known.opts.Join, known.opts.GossipPort)
	own, _ := net.InterfaceAddrs()
	others := slices.DeleteFunc(slices.Clone(addresses), func(a netip.AddrPort) bool {
		return slices.ContainsFunc(own, func(o net.Addr) bool { return strings.HasPrefix(o.String(), a.Addr().String()+"/") })
	})
	reached, failed := dialAll(ctx, others)
	for _, name := range unresolved {
		failed = append(failed, name+" (not resolved)")
	}
	switch {
	case len(reached) > 0 && len(failed) == 0:
		return ok("%s can be reached by TCP", detector.List(reached))
	case len(reached) > 0:
		return warn("one is enough to join; allow TCP and UDP between the nodes, or remove the others from the list", "%s can be reached by TCP, not %s", detector.List(reached), detector.List(failed))
	case len(failed) > 0:
		return warn("see whether agents run there, and allow TCP and UDP between the nodes; the first node of a cluster finds no other", "no node to join: %s", detector.List(failed))
	case len(addresses) > 0:
		return ok("--join names this node only: the first of a cluster")
	}
	return warn("name other nodes with --join", "--join leads to no address")
}

// dialAll connects to the first maxTargets addresses at once.
func dialAll(ctx context.Context, addresses []netip.AddrPort) (reached, failed []string) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	addresses = addresses[:min(len(addresses), maxTargets)]
	causes := make([]string, len(addresses)) // empty for those that answer
	var group sync.WaitGroup
	for n, address := range addresses {
		group.Go(func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
			if err == nil {
				conn.Close()
				return
			}
			causes[n] = "no answer"
			if errno, answered := errors.AsType[syscall.Errno](err); answered {
				causes[n] = errno.Error()
			}
		})
	}
	group.Wait()
	for n, address := range addresses {
		if causes[n] == "" {
			reached = append(reached, address.String())
		} else {
			failed = append(failed, fmt.Sprintf("%s (%s)", address, causes[n]))
		}
	}
	return reached, failed
}
