package cluster_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/tests/lab"
)

// plugin: what kubectl dupip shows to an administrator, to who has the documented rights, to who has one namespace, and to somebody
// without rights.
func (c *testCluster) plugin() {
	path := filepath.Join(c.Dir(), "kubectl-dupip")
	c.Do(lab.Build("../..", path, "./cmd/kubectl-dupip"))
	c.AddCommand("kubectl-dupip", path)
	c.run(`helm -n dupip upgrade dupip deploy/chart --reuse-values --set reporter.enabled=true --wait
kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE`)
	c.shop()
	ip := c.duplicate("node1", "old", "new", pod("new", "node1"))
	c.ownInState("node1", ip, "confirmed")

	yamls := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section(c, "../../deploy/README.md", "### kubectl dupip"), -1)
	viewer := yamls[0][1]
	c.Apply(viewer)
	c.Kubectl("-n", "shop", "create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")

	c.sees(ip)
	c.sees(ip, "--as=alice")
	c.run("kubectl dupip conflicts --as=alice; kubectl dupip status --as=alice; kubectl dupip nodes --as=alice")
	for _, right := range []string{"create pods --subresource=exec", "get pods --subresource=log", "get secrets", "delete pods", "create pods"} {
		if out, err := c.Shell("kubectl -n dupip auth can-i --as=alice " + right); err == nil || strings.TrimSpace(out) != "no" {
			c.Errorf("who has the documented rights may %s: %s", right, out)
		}
	}

	// Agents are on the network of their node: its loopback is nobody's to reach.
	agent, err := c.agent("node1")
	c.Do(err)
	for name, want := range map[string]string{agent: "no", "dupip-reporter-0": "yes"} {
		if out, _ := c.Shell("kubectl -n dupip auth can-i --as=alice create pods/" + name + " --subresource=portforward"); strings.TrimSpace(out) != want {
			c.Errorf("who has the documented rights may forward ports of %s: %s", name, out)
		}
	}

	const get = "kubectl -n shop get events --field-selector reason=DuplicateIP,involvedObject.name=old"
	c.eventually("the Event that bob sees", func() error {
		out, err := c.Shell(get + " --as=bob -o wide")
		if err == nil && !strings.Contains(out, ip.String()) {
			err = errors.New("there are none but " + out)
		}
		return err
	})
	c.denied("--as=bob", "list pods")
	c.denied("--as=nobody", "list pods")
	if out, err := c.Shell(get + " --as=nobody"); err == nil {
		c.Errorf("nobody sees Events: %s", out)
	}

	c.eachVerb(viewer)
	c.acknowledges(ip, viewer, yamls[1][1])
	c.examines()
	c.reconnects()
	c.run("helm -n dupip upgrade dupip deploy/chart --reuse-values --set reporter.enabled=false --wait")
	c.eventually("no reporter", func() error {
		return c.fails("", "no reporter is in namespace dupip: install it")
	})
	if out := c.Kubectl("-n", "dupip", "get", "leases,configmaps,roles,rolebindings,serviceaccounts,statefulsets", "-l", "app.kubernetes.io/component=reporter", "-o", "name"); out != "" {
		c.Errorf("it is gone, and there are\n%s", out)
	}
	c.run("kubectl -n shop delete pods --all; kubectl -n dupip delete role,rolebinding dupip-viewer")
}

// sees expects that a user sees all there is. What is wanted is a regular expression.
func (c *testCluster) sees(ip netip.Addr, user ...string) {
	c.Helper()
	for command, want := range map[string]string{
		"conflicts": regexp.QuoteMeta(ip.String()), "conflicts -n shop": "shop/new", "conflicts -n default": "No such conflict", "bindings --pod shop/old": regexp.QuoteMeta(ip.String()),
		"explain " + ip.String(): "Remove shop/old, which has lost its reservation", "audit": "mismatched", "nodes": "reporter", "status": "(?s)2 alive.*with findings",
		"explain shop/old": "Remove shop/old", "explain old -n shop": "Remove shop/old", "conflicts -A -o 'jsonpath={.conflicts[*].ip}'": regexp.QuoteMeta(ip.String()),
		"bindings -A --no-headers": "(?m)^" + regexp.QuoteMeta(ip.String()) + " .*shop/new", "bindings -n shop -o custom-columns=IP:.ip,POD:.pod.name": regexp.QuoteMeta(ip.String()) + " +new\n",
		"status --node node2": "observing", "version": "kubectl dupip ",
	} {
		c.eventually(command, func() error {
			out, err := c.Shell("kubectl dupip " + command + " " + strings.Join(user, " "))
			if err == nil && !regexp.MustCompile(want).MatchString(out) {
				err = fmt.Errorf("no %q in\n%s", want, out)
			}
			return err
		})
	}
}

// fails expects one line that says why a user sees nothing.
func (c *testCluster) fails(user, want string) error {
	out, err := c.Shell("kubectl dupip conflicts " + user)
	if err == nil {
		return lab.Final(errors.New("it has shown\n" + out))
	}
	_, said, _ := strings.Cut(err.Error(), "\n")
	if !strings.Contains(said, want) || strings.Contains(said, "\n") {
		return errors.New("it says " + said)
	}
	return nil
}

func (c *testCluster) denied(user, right string) {
	c.Helper()
	c.Do(c.fails(user, "kubectl dupip: forbidden: you may not "+right+" in namespace dupip;"))
}

// eachVerb: without any verb of a Role, the plugin says which one is missing.
func (c *testCluster) eachVerb(manifest string) {
	c.Helper()
	text, _, _ := strings.Cut(manifest, "---\n")
	for i := range role(c, text).Rules {
		for n, verb := range role(c, text).Rules[i].Verbs {
			r := role(c, text)
			right := verb + " " + r.Rules[i].Resources[0]
			r.Rules[i].Verbs[n] = "watch" // instead: a rule needs one
			less, err := yaml.Marshal(r)
			c.Do(err)
			c.Apply(string(less))
			c.eventually("the end of the right to "+right, func() error {
				_, err := c.Shell("kubectl dupip conflicts --as=alice")
				if err == nil {
					return errors.New("it works")
				}
				if strings.Contains(err.Error(), "you may not "+right+" in") {
					return nil
				}
				return err
			})
			c.Apply(text)
			c.eventually("the right to "+right, func() error {
				_, err := c.Shell("kubectl dupip conflicts --as=alice")
				return err
			})
		}
	}
}

func role(c *testCluster, text string) (r rbacv1.Role) {
	c.Helper()
	c.Do(yaml.UnmarshalStrict([]byte(text), &r))
	return r
}

// acknowledges: who has the documented rights besides says that they work on a conflict. All agents show it, also after an upgrade, until
// it is ended.
func (c *testCluster) acknowledges(ip netip.Addr, viewer, rules string) {
	c.Helper()
	ack := "kubectl dupip ack " + ip.String() + " --as=alice --by alice "
	if _, err := c.Shell(ack); err == nil || !strings.Contains(err.Error(), "forbidden: you may not list configmaps in namespace dupip;") {
		c.Errorf("a viewer may acknowledge: %v", err)
	}
	r := role(c, strings.Split(viewer, "---\n")[0])
	var more []rbacv1.PolicyRule
	c.Do(yaml.UnmarshalStrict([]byte(rules), &more))
	r.Rules = append(r.Rules, more...)
	text, err := yaml.Marshal(r)
	c.Do(err)
	c.Apply(string(text))
	c.eventually("the right to acknowledge", func() error {
		out, err := c.Shell(ack + "--for 1h --why 'node is being replaced'")
		if err == nil && !regexp.MustCompile(`Acknowledged by alice until .* UTC: node is being replaced\.\n(.*\n)+  amtool silence add `).MatchString(out) {
			err = lab.Final(errors.New("it says\n" + out))
		}
		return err
	})
	shows := func(want bool) {
		c.Helper()
		for name := range c.Machines {
			c.eventually("what "+name+" shows", func() error {
				out, err := c.dupip(name, "explain "+ip.String())
				if err == nil && strings.Contains(out, "Acknowledged by alice until ") != want {
					err = errors.New(out)
				}
				return err
			})
		}
	}
	shows(true)
	c.run("helm -n dupip upgrade dupip deploy/chart --reuse-values --set dashboard.enabled=true")
	if out := c.run("kubectl -n dupip get configmap dupip-reporter-acks -o yaml"); !strings.Contains(out, "node is being replaced") {
		c.Error("an upgrade has removed the acknowledgement")
	}
	shows(true)
	if out := c.run(ack + "--end"); !strings.Contains(out, "Not acknowledged any more.") {
		c.Error("it is not ended")
	}
	shows(false)
}

// examines: the plugin's doctor finds nothing, and its dump has all, and no name if that is wanted.
func (c *testCluster) examines() {
	c.Helper()
	for _, want := range []string{"each of 2 nodes has an agent", "2 agents know of each other", "2 of 2 nodes were examined", " 0 failures"} {
		if out := c.run("kubectl dupip doctor"); !strings.Contains(out, want) {
			c.Errorf("the doctor does not say %q", want)
		}
	}
	file := filepath.Join(c.Dir(), "dump.tar.gz")
	if out := c.run("kubectl dupip sysdump --redact -o " + file); !strings.Contains(out, "Nothing is missing.") {
		c.Error("the dump is not whole")
	}
	text, err := c.Shell("tar -xzOf " + file)
	c.Do(err)
	for _, want := range []string{`"state": "confirmed"`, "msg=starting node=node-", "DaemonSet"} {
		if !strings.Contains(text, want) {
			c.Errorf("the dump lacks %q", want)
		}
	}
	if names := regexp.MustCompile(`\b(node[12]|shop)\b.*`).FindAllString(text, 10); names != nil {
		c.Errorf("the dump has names: %q", names)
	}
}

// reconnects: the page's port answers again when all reporters were replaced, until the plugin is interrupted.
func (c *testCluster) reconnects() {
	c.Helper()
	pid, ended := filepath.Join(c.Dir(), "ui.pid"), make(chan error, 1)
	go func() {
		_, err := c.Shell("echo $$ > " + pid + "; exec kubectl dupip ui --port 18953 --as=alice")
		ended <- err
	}()
	interrupt := sync.OnceValue(func() error {
		_, err := c.Shell("kill $(cat " + pid + ")")
		return errors.Join(err, <-ended)
	})
	c.Cleanup(func() { _ = interrupt() })
	page := func() error {
		out, err := c.Shell("curl -sS --max-time 20 http://127.0.0.1:18953/")
		if err == nil && !strings.Contains(out, "shop/new") {
			err = errors.New("it does not have shop/new:\n" + out)
		}
		return err
	}
	c.eventually("the page", page)
	c.replace("-l dupip.io/component=reporter")
	c.eventually("the page of another reporter", page)
	c.Do(interrupt())
	if page() == nil {
		c.Error("there is a page without the plugin")
	}
}
