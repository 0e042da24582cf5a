// A worker with three tasks, for each of which the payload is bytes.
//
//	worker --queue demo --slots 4
//
// JACKALOPE_GRPC is the address of the gRPC door, JACKALOPE_TOKEN the token of an API key where one
// is needed, and JACKALOPE_CA a file with the certificate authority of a broker with TLS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"jackalope/client"
)

func main() {
	queue := flag.String("queue", "demo", "the queue to serve")
	name := flag.String("name", "", "the worker's own name, stable over restarts")
	slots := flag.Uint("slots", 4, "how many tasks run at once")
	drain := flag.Float64("drain", 10, "how many seconds to wait for what runs, when stopping")
	lease := flag.Float64("lease", 30, "how many seconds the broker waits for a silent worker")
	flag.Parse()

	options, err := client.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	connection, err := client.Dial(options)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()

	// SIGTERM and SIGINT drain; a second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ctx.Done()
		stop()
	}()
	worker := &client.Worker{
		Name:   *name,
		Queues: []string{*queue},
		Slots:  uint32(*slots),
		Drain:  time.Duration(*drain * float64(time.Second)),
		Lease:  time.Duration(*lease * float64(time.Second)),
		Log:    func(line string) { log.Print(line) },
		Handlers: map[string]client.Handler{
			"reverse": reverse, "fail": fail, "sleep": sleep,
		},
	}
	if err := worker.Run(ctx, connection); err != nil {
		log.Fatal(err)
	}
}

func reverse(_ context.Context, task *client.Task) ([]byte, error) {
	reversed := make([]byte, len(task.Payload))
	for at, each := range task.Payload {
		reversed[len(reversed)-1-at] = each
	}
	return reversed, nil
}

func fail(_ context.Context, task *client.Task) ([]byte, error) {
	return nil, errors.New(string(task.Payload))
}

// sleep reports how far it has come, and wakes up early when it is to stop.
func sleep(ctx context.Context, task *client.Task) ([]byte, error) {
	seconds, err := strconv.ParseFloat(string(task.Payload), 64)
	if err != nil {
		return nil, &client.Reject{Message: err.Error()}
	}
	task.Progress(50, "sleeping")
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return []byte(fmt.Sprintf("slept %v", seconds)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
