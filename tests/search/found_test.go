package search

import "testing"

// failures are plans that broke a law once, shrunk.
var failures = []struct{ name, plan string }{
	{
		"a holder that takes 0.8 s was confirmed on its own node only: another node's request waited for 0.7 s",
		`seed=25 nodes=3
		63.192s n3 pod a 10.0.0.1 slow=0.814s quiet
		112.096s n2 pod f 10.0.0.1`,
	},
	{
		"a holder that takes 1.3 s was suspected every two seconds for ever: its late answer ended the penalty",
		`seed=1 nodes=2
		10s n1 pod a 10.0.0.1
		20s n2 pod b 10.0.0.1 slow=1.3s
		240s n1 stall 0.1s`,
	},
	{
		"a holder that takes 1.8 s was confirmed by answers to earlier rounds",
		`seed=1 nodes=2
		10s n1 pod a 10.0.0.1
		20s n2 pod b 10.0.0.1 slow=1.8s
		240s n1 stall 0.1s`,
	},
	{
		"a holder that left after the first round and came back before the second was confirmed",
		`seed=219 nodes=2
		47.418s n2 pod c 10.0.0.1 quiet
		60.376s - loss 0.50 49.327s
		65.648s n1 pod b 10.0.0.1
		66.4s n1 end b
		68.896s n1 pod a 10.0.0.1 quiet
		69.812s n1 drop a
		70.687s n1 take a`,
	},
	{
		"a reporter that was cut off was never told of conflicts that had ended meanwhile",
		`seed=176 nodes=2 reporter
		45.683s n2 pod a 10.0.0.1
		58.257s n2 pod b 10.0.0.1
		128.011s n2 cut * 40.668s
		146.376s n2 vanish b`,
	},
	{
		"a reporter believed for ever what an agent had reported that was killed before it saved it",
		`seed=555 nodes=2 reporter
		79.508s n2 pod a 10.0.0.3 slow=0.099s
		114.962s n2 kill
		119.498s n1 pod d 10.0.0.3
		122.915s n2 start
		126.822s n2 kill
		130.642s n2 end a`,
	},
	{
		"a newcomer whose node did not reply kept another one from its second round",
		`seed=1888 nodes=9
		30.113s n7 pod j 10.0.0.2 slow=0.588s
		38.925s n2 pod k 10.0.0.2
		39.234s n9 pod f 10.0.0.2 slow=0.093s
		40.032s n7 drop j
		43.623s n7 cut * 1.22s
		44.456s n7 take j
		45.971s n9 pod i 10.0.0.2 slow=0.091s quiet
		46.462s n9 cut * 2.646s`,
	},
	{
		"the same with a slow newcomer",
		`seed=1329 nodes=10
		36.904s n6 pod j 10.0.0.1 slow=0.724s
		37.144s n10 pod l 10.0.0.1 quiet
		74.739s n3 pod a 10.0.0.1 slow=0.846s quiet
		79.241s n10 drop l
		79.578s n10 take l
		82.927s n10 drop l
		85.993s n3 pod d 10.0.0.1
		87.682s n3 drop d
		93.737s n10 take l
		95.86s n3 take d`,
	},
	{
		"a conflict of slow holders ended just before the one that had come back had answered twice",
		`seed=700 nodes=2
		13.258s n2 pod b 10.0.0.2 slow=0.711s quiet given=yes
		119.238s n2 pod c 10.0.0.2 slow=0.761s given=yes
		130.611s n2 drop c
		133.419s n2 take c`,
	},
	{
		"a request about a holder that had left and come back was answered as if it had been silent",
		`seed=13905 nodes=2
		58.106s n1 pod c 10.0.0.2
		76.293s n2 pod e 10.0.0.2 slow=0.604s
		108.443s n2 drop e
		108.544s n2 take e`,
	},
	{
		"a silent pod took its address again while the agent still asked who had taken it over, and waited for the next of these probes",
		`seed=101 nodes=2
		53.368s n1 pod b 10.0.0.2 quiet given=yes
		57.591s n2 pod a 10.0.0.2 quiet given=no
		92.993s n1 drop b
		94.055s n1 take b`,
	},
	{
		"its answer was taken for a late one to these probes",
		`seed=10 nodes=2
		24.485s n1 pod a 10.0.0.1 quiet
		36.668s n2 pod c 10.0.0.1 quiet
		48.775s n1 drop a
		50.944s n1 take a`,
	},
	{
		"a holder that had given up the address for 0.3 s between two rounds was confirmed",
		`seed=50518 nodes=2
		1.205s n1 pod b 10.0.0.2
		1.291s n1 drop b
		1.982s n1 take b
		2.828s n2 pod a 10.0.0.2 quiet
		3.243s n2 drop a
		3.546s n2 take a`,
	},
	{
		"two pods were silent when they were asked: each node forgot the other one's, and kept its own",
		`seed=318362 nodes=5 reporter next=n4
		33.741s n5 pod b 10.0.0.3 slow=0.215s quiet
		39.17s n3 pod e 10.0.0.1
		41.418s n1 pod a 10.0.0.2 slow=1.323s quiet
		44.597s n1 end c
		45.168s n5 mute b 3.428s
		46.428s n4 pod g 10.0.0.3 slow=0.601s
		46.897s n4 mute g 0.741s
		64.724s n4 pod f 10.0.0.2 slow=0.862s
		65.706s n4 drop f
		82.279s n1 end a
		90.918s - copy 0.04 29.896s
		93.67s n3 drop e
		100.635s n3 take e
		109.108s n4 take f`,
	},
	{
		"an agent that ended in order kept the conflicts of its pods open for five minutes",
		`seed=1 nodes=2
		10s n1 pod a 10.0.0.1
		20s n2 pod b 10.0.0.1
		60s n2 stop
		240s n1 stall 0.1s`,
	},
	{
		"a reporter forgot at once, and for ever, what a node had reported that was suspended for 16 s and has a namesake",
		`seed=7591 nodes=2 reporter
		24s n2 namesake n1
		50s n2 pod a 10.0.0.2
		114s n2 pod e 10.0.0.2 quiet
		146s n2 freeze 16s`,
	},
	{
		"a virtual machine migrates, and then its two pods keep the address",
		`seed=1 nodes=3
		10s n1 pod a 10.0.0.1 vm=db
		100s n2 pod b 10.0.0.1 vm=db
		104s n1 end a
		200s n3 pod c 10.0.0.2 vm=web
		220s n2 pod d 10.0.0.2 vm=web`,
	},
}

// What was found once is not broken again.
func TestFound(t *testing.T) {
	for _, f := range failures {
		p, err := Parse(f.plan)
		if err != nil {
			t.Fatal(err)
		}
		if r := Play(p, nil); r.Broken != nil {
			t.Errorf("%s: %s", f.name, r)
		}
	}
}
