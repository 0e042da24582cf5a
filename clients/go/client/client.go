// Package client submits tasks to a Jackalope broker over gRPC, and runs them.
//
// The messages are generated from the contract of the gRPC door; this package adds what a contract
// cannot: metadata, typed refusals, submits that may be repeated, and a worker that comes back.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "jackalope/v1"
)

const (
	// inlineMax is the largest body that goes into a message; a larger one is uploaded first.
	inlineMax = 64 * 1024
	chunkSize = 256 * 1024
	waitStep  = 30 * time.Second
)

// Options say where the broker is, and who calls.
type Options struct {
	Address   string // host:port of the gRPC door
	Token     string // of an API key, where the broker needs one
	Namespace string // "default" if empty
	Name      string // who acts: shown in histories
	TLS       *tls.Config
}

// Client is a connection to a broker, for programs that submit tasks and for workers.
type Client struct {
	conn    *grpc.ClientConn
	tasks   pb.TaskServiceClient
	workers pb.WorkerServiceClient
	blobs   pb.BlobServiceClient
	name    string
}

// Dial returns a client at once; the connection is made when it is needed, and made again.
func Dial(options Options) (*Client, error) {
	transport := grpc.WithInsecure()
	if options.TLS != nil {
		transport = grpc.WithTransportCredentials(credentials.NewTLS(options.TLS))
	}
	conn, err := grpc.Dial(
		options.Address,
		transport,
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})),
		grpc.WithPerRPCCredentials(caller(options)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A broker that is cut off says nothing: ask, so that the loss is noticed.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	)
	if err != nil {
		return nil, err
	}
	return &Client{conn, pb.NewTaskServiceClient(conn), pb.NewWorkerServiceClient(conn), pb.NewBlobServiceClient(conn), options.Name}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// caller is the metadata of every call.
type caller Options

func (c caller) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	metadata := map[string]string{}
	if c.Token != "" {
		metadata["authorization"] = "Bearer " + c.Token
	}
	if c.Namespace != "" {
		metadata["jackalope-namespace"] = c.Namespace
	}
	if c.Name != "" {
		metadata["jackalope-client"] = c.Name
	}
	return metadata, nil
}

func (c caller) RequireTransportSecurity() bool { return false }

// Refused is what a broker answers when it says no.
type Refused struct {
	Code       string        // what kind of no this is, such as "queue_full"
	Message    string        // what happened, to what, and what to do
	RetryAfter time.Duration // when asking again may help; 0 when it will not
}

func (r *Refused) Error() string { return fmt.Sprintf("%s (%s)", r.Message, r.Code) }

// refused returns the refusal that an error of gRPC has in its details, or the error itself.
func refused(err error) error {
	told, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	found := &Refused{Message: told.Message()}
	for _, detail := range told.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.Domain == "jackalope" {
				found.Code = strings.ToLower(detail.Reason)
			}
		case *errdetails.RetryInfo:
			// By its fields: older packages of the details have a duration without methods.
			delay := detail.GetRetryDelay()
			found.RetryAfter = time.Duration(delay.GetSeconds())*time.Second + time.Duration(delay.GetNanos())
		}
	}
	if found.Code == "" {
		return err
	}
	return found
}

func toRefused(refusal *pb.Refusal) *Refused {
	code := strings.ToLower(strings.TrimPrefix(refusal.Code.String(), "REFUSAL_CODE_"))
	return &Refused{code, refusal.Message, refusal.RetryAfter.AsDuration()}
}

// isLost reports whether a call failed with its connection, so that it may be repeated.
func isLost(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted:
		var no *Refused
		return !errors.As(refused(err), &no)
	}
	return false
}

// again calls until there is an answer: once more after a lost connection, and as long after a
// refusal as the broker asks. Everything that it is used for may be repeated.
func again(ctx context.Context, call func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := call()
		var no *Refused
		pause := wait
		if errors.As(refused(err), &no) {
			pause = no.RetryAfter
		}
		if err == nil || (!isLost(err) && (no == nil || no.RetryAfter == 0)) {
			return refused(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %v", ctx.Err(), err)
		}
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

// NewID returns an id for a task: a UUID of version 7, which begins with the time.
func NewID() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic(err)
	}
	ms := uint64(time.Now().UnixMilli())
	for n := 0; n < 6; n++ {
		id[n] = byte(ms >> (40 - 8*n))
	}
	id[6] = 0x70 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// Submit submits a task, and returns its id once it is durable. It waits for a full queue and for a
// broker that is away, until the context is done; the id makes that harmless.
func (c *Client) Submit(ctx context.Context, task *pb.TaskSpec) (string, error) {
	if task.Id == "" {
		task.Id = NewID()
	}
	payload := task.Payload
	var id string
	err := again(ctx, func() error {
		if len(payload) > inlineMax {
			upload, err := c.upload(ctx, payload)
			if err != nil {
				return err
			}
			task.Payload, task.PayloadUpload = nil, upload
		}
		answer, err := c.tasks.SubmitTask(ctx, &pb.SubmitTaskRequest{Task: task})
		if err == nil {
			id = answer.Id
		}
		return err
	})
	return id, err
}

// Wait returns a task when it has ended.
func (c *Client) Wait(ctx context.Context, id string) (*pb.Task, error) {
	for {
		var answer *pb.WaitTaskResponse
		err := again(ctx, func() (err error) {
			request := &pb.WaitTaskRequest{Id: id, Timeout: durationpb.New(waitStep)}
			answer, err = c.tasks.WaitTask(ctx, request)
			return err
		})
		if err != nil || answer.Ended {
			return answer.GetTask(), err
		}
	}
}

// TaskFailed is the end of a task without success.
type TaskFailed struct{ Task *pb.Task }

func (f *TaskFailed) Error() string {
	reason := strings.ToLower(strings.TrimPrefix(f.Task.Reason.String(), "DEATH_REASON_"))
	return fmt.Sprintf("%s: %s", reason, f.Task.GetError().GetMessage())
}

// Result waits for a task, and returns its result, or TaskFailed.
func (c *Client) Result(ctx context.Context, id string) ([]byte, error) {
	task, err := c.Wait(ctx, id)
	if err != nil {
		return nil, err
	}
	if task.State != pb.TaskState_TASK_STATE_SUCCEEDED {
		return nil, &TaskFailed{task}
	}
	if task.Result != nil || task.ResultSize == 0 {
		return task.Result, nil
	}
	var result []byte
	err = again(ctx, func() (err error) {
		result, err = c.download(ctx, &pb.DownloadBlobRequest{TaskId: id})
		return err
	})
	return result, err
}

// upload sends a body in chunks, and returns its name for one submit or one result.
func (c *Client) upload(ctx context.Context, body []byte) (string, error) {
	stream, err := c.blobs.UploadBlob(ctx)
	if err != nil {
		return "", err
	}
	for at := 0; at < len(body); at += chunkSize {
		end := at + chunkSize
		if end > len(body) {
			end = len(body)
		}
		if err := stream.Send(&pb.UploadBlobRequest{Data: body[at:end]}); err == io.EOF {
			break // The answer says why.
		} else if err != nil {
			return "", err
		}
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetUpload(), err
}

func (c *Client) download(ctx context.Context, request *pb.DownloadBlobRequest) ([]byte, error) {
	stream, err := c.blobs.DownloadBlob(ctx, request)
	if err != nil {
		return nil, err
	}
	var body []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		body = append(body, part.Data...)
	}
}
