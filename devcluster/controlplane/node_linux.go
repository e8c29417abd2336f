package main

import (
	"context"

	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The programs of a node run on Linux only, and are linked only there.
func init() {
	programs = append(programs,
		program{"kubelet", func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }},
		program{"kube-proxy", func() int { return cli.Run(proxy.NewProxyCommand()) }},
	)
}
