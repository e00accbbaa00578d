package cluster_test

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// rolloutPastDead: an update passes a node that is down, with the chart's own values, and ends when that returns.
func (c *testCluster) rolloutPastDead() {
	node3 := c.Machines["node3"]
	c.Do(node3.Kill())
	c.run("kubectl wait --for=condition=Ready=Unknown --timeout=$PATIENCE node/node3")
	c.run("helm -n dupip upgrade dupip deploy/chart --set podLabels.turn=next")
	for _, name := range []string{"node1", "node2"} {
		c.eventually("the next agent on "+name, func() error {
			var pods corev1.PodList
			err := c.Get(&pods, "api/v1/namespaces/dupip/pods?labelSelector=turn=next&fieldSelector=spec.nodeName="+name)
			if err == nil && (len(pods.Items) != 1 || !ready(pods.Items[0])) {
				out, _ := c.Shell("kubectl -n dupip get pods -o wide")
				err = errors.New("there are\n" + out)
			}
			return err
		})
	}
	c.run("kubectl -n dupip get ds,pods -o wide")
	c.Do(node3.Start())
	c.Ready("node3")
	c.run("kubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE")
	c.members()
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
