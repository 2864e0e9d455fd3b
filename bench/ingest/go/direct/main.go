// Plain net/http + franz-go: POST /webhooks/{token}, 200 only after the broker acknowledged that record.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "")
	brokers := flag.String("brokers", "127.0.0.1:9092", "")
	topic := flag.String("topic", "webhooks", "")
	flag.Parse()

	opts := []kgo.Opt{
		kgo.SeedBrokers(*brokers),
		kgo.DefaultProduceTopic(*topic),
		kgo.RequiredAcks(kgo.AllISRAcks()), // idempotent by default
		kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.MaxBufferedRecords(1 << 16),
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		log.Fatal(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.URL.Path, "/webhooks/")
		if !ok || token == "" {
			w.WriteHeader(404)
			return
		}
		if r.Method != http.MethodPost {
			w.WriteHeader(405)
			return
		}
		var body []byte
		var err error
		if n := r.ContentLength; n >= 0 && n <= 1<<20 {
			body = make([]byte, n)
			_, err = io.ReadFull(r.Body, body)
		} else {
			body, err = io.ReadAll(io.LimitReader(r.Body, 1<<20))
		}
		if err != nil {
			w.WriteHeader(400)
			return
		}
		sum := sha256.Sum256([]byte(token))
		if err := cl.ProduceSync(r.Context(), &kgo.Record{Key: sum[:16], Value: body}).FirstErr(); err != nil {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(200)
	})
	srv := &http.Server{Addr: *listen, Handler: h}
	go func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
		<-c
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		srv.Shutdown(ctx)
	}()
	if err := srv.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	cl.Close()
}
