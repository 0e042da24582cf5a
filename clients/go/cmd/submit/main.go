// Submit tasks and print their results: `<index> <result>`, in the order in which they end.
//
//	submit --queue demo --name reverse --count 10 abc
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	"jackalope/client"
	pb "jackalope/v1"
)

func main() {
	queue := flag.String("queue", "demo", "where the tasks go")
	name := flag.String("name", "reverse", "what to run")
	count := flag.Int("count", 1, "how many tasks")
	flag.Parse()

	if err := submit(*queue, *name, *count, flag.Arg(0)); err != nil {
		var refused *client.Refused
		var failed *client.TaskFailed
		switch {
		case errors.As(err, &refused):
			fmt.Fprintf(os.Stderr, "refused %s: %s\n", refused.Code, refused.Message)
		case errors.As(err, &failed):
			fmt.Fprintln(os.Stderr, failed)
		default:
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func submit(queue, name string, count int, payload string) error {
	options, err := client.FromEnvironment()
	if err != nil {
		return err
	}
	options.Name = "submit"
	connection, err := client.Dial(options)
	if err != nil {
		return err
	}
	defer connection.Close()
	headers, err := structpb.NewStruct(map[string]interface{}{"content": "bytes"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	errs := make(chan error, count)
	for n := 0; n < count; n++ {
		n := n
		all.Add(1)
		go func() {
			defer all.Done()
			body := strings.ReplaceAll(payload, "%", strconv.Itoa(n))
			task := &pb.TaskSpec{Queue: queue, Name: name, Payload: []byte(body), Headers: headers}
			id, err := connection.Submit(ctx, task)
			if err == nil {
				var result []byte
				if result, err = connection.Result(ctx, id); err == nil {
					fmt.Printf("%d %s\n", n, result)
					return
				}
			}
			errs <- err
			cancel() // The others need not wait.
		}()
	}
	all.Wait()
	close(errs)
	return <-errs
}
