// Command controlplane is what kube-retrofit tests and demonstrates itself against:
// the programs of a Kubernetes control plane and kubectl, linked into one file.
//
// Which one runs is said by the name it was started under (a link named
// kube-apiserver is the API server) or else by the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// program is one of the linked programs; run returns the exit code.
type program struct {
	name string
	run  func() int
}

var programs = []program{
	{"etcd", runEtcd},
	{"kube-apiserver", func() int { return cli.Run(apiserver.NewAPIServerCommand()) }},
	{"kube-controller-manager", func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }},
	{"kube-scheduler", func() int { return cli.Run(scheduler.NewSchedulerCommand()) }},
	{"kubectl", func() int { return cli.Run(kubectl.NewDefaultKubectlCommand()) }},
}

// runEtcd ends the process itself when etcd fails.
func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// find returns the program of that name, or nil.
func find(name string) func() int {
	for _, p := range programs {
		if p.name == name {
			return p.run
		}
	}
	return nil
}

func main() {
	run := find(filepath.Base(os.Args[0]))
	if run == nil && len(os.Args) > 1 {
		// The programs take their name from Args[0], so the choice moves there.
		os.Args = os.Args[1:]
		run = find(os.Args[0])
	}
	if run == nil {
		names := make([]string, len(programs))
		for i, p := range programs {
			names[i] = p.name
		}
		fmt.Fprintf(os.Stderr, "usage: controlplane {%s} [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run())
}
