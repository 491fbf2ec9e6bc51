// Pause does nothing until it is told to stop. Every Pod has one such process: its namespaces live as long as it does.
// Where the containers of a Pod share their process namespace it is process 1, so it also collects the orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		collect()
	}
}

// collect takes the exit status of every child that has ended. One signal may stand for several of them.
func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
