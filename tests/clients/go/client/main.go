// A task submitted with headers and received with franz-go. Arguments: BOOTSTRAP TASKS CALLBACKS GROUP
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("arguments: BOOTSTRAP TASKS CALLBACKS GROUP")
	}
	bootstrap, tasks, callbacks, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := submit(ctx, bootstrap, tasks, callbacks); err != nil {
		log.Fatal("submit: ", err)
	}
	if err := consume(ctx, bootstrap, callbacks, group); err != nil {
		log.Fatal("consume: ", err)
	}
}

func submit(ctx context.Context, bootstrap []string, tasks, callbacks string) error {
	// begin snippet submit
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	if err != nil {
		return err
	}
	defer client.Close()
	dueAt := time.Now().Add(time.Second).Format(time.RFC3339Nano)
	command := &kgo.Record{
		Topic: tasks,
		Key:   []byte("order-4711"),
		Value: []byte("Gr\u00fc\u00dfe from Go \x00\xff"), // any bytes
		Headers: []kgo.RecordHeader{
			{Key: "duestream-topic", Value: []byte(callbacks)},
			{Key: "duestream-due-at", Value: []byte(dueAt)},
			{Key: "duestream-task-id", Value: []byte("go-1")},
			{Key: "step", Value: []byte("1")},
			{Key: "step", Value: []byte("2")}, // names may repeat
		},
	}
	if err := client.ProduceSync(ctx, command).FirstErr(); err != nil {
		return err
	}
	// end snippet
	return nil
}

func consume(ctx context.Context, bootstrap []string, callbacks, group string) error {
	// begin snippet consume
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(callbacks),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // not franz-go's default
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if err := show(record); err != nil { // your work
				return err
			}
			return client.CommitRecords(ctx, record) // only when it is done
		}
	}
	// end snippet
}

func show(record *kgo.Record) error {
	headers := make([][]any, 0, len(record.Headers))
	for _, header := range record.Headers {
		headers = append(headers, []any{header.Key, header.Value})
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"partition": record.Partition, "key": record.Key, "value": record.Value, "headers": headers,
	})
}
