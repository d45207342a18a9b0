// A task submitted with a wish for a reply, and the reply awaited. Arguments: BOOTSTRAP TASKS CALLBACKS REPLIES
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("arguments: BOOTSTRAP TASKS CALLBACKS REPLIES")
	}
	bootstrap, tasks, callbacks, replies := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, due := range []string{"2999-01-01T00:00:00Z", "2199-01-01T00:00:00Z"} {
		reply, err := submit(ctx, bootstrap, tasks, callbacks, replies, due)
		if err != nil {
			log.Fatal("submit: ", err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
			log.Fatal(err)
		}
	}
}

func submit(ctx context.Context, bootstrap []string, tasks, callbacks, replies, due string) (map[string]string, error) {
	// begin snippet reply
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.ConsumeTopics(replies), // every instance reads all replies and takes its own
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(time.Now().UnixMilli())),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	correlation := fmt.Appendf(nil, "shop-%d", time.Now().UnixNano())
	command := &kgo.Record{
		Topic: tasks,
		Key:   []byte("order-4711"),
		Value: []byte("hello"),
		Headers: []kgo.RecordHeader{
			{Key: "duestream-topic", Value: []byte(callbacks)},
			{Key: "duestream-due-at", Value: []byte(due)},
			{Key: "duestream-reply", Value: []byte("true")},
			{Key: "duestream-correlation", Value: correlation},
		},
	}
	if err := client.ProduceSync(ctx, command).FirstErr(); err != nil {
		return nil, err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			reply := map[string]string{}
			for _, header := range record.Headers {
				reply[header.Key] = string(header.Value)
			}
			// Replies come at least once: a second one with the same correlation says the same.
			if bytes.Equal([]byte(reply["duestream-reply-correlation"]), correlation) {
				return reply, nil // reply["duestream-reply-answer"]: accepted, duplicate, conflict or rejected
			}
		}
	}
	// end snippet
}
