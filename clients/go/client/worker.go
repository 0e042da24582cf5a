package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	pb "jackalope/v1"
)

// Task is one attempt at a task, as a handler sees it.
type Task struct {
	ID, Queue, Name, Key string
	Attempt              uint32
	Fence                uint64
	Payload              []byte
	Headers              *structpb.Struct
	// Progress reports how far the attempt has come, 0 to 100.
	Progress func(percent float64, note string)
}

// Handler runs a task. Its context is cancelled when the attempt is to stop.
type Handler func(ctx context.Context, task *Task) ([]byte, error)

// Reject is an error after which no worker need try again.
type Reject struct{ Message string }

func (r *Reject) Error() string { return r.Message }

// Worker runs tasks of a broker, whatever happens to the connection.
//
// An attempt is held from its assignment until the broker has acknowledged how it ended. Until then
// each join names it, and its report is sent again over whichever stream is open. An attempt that is
// no longer the worker's own is stopped, and not reported.
type Worker struct {
	Name     string // stable over reconnects, and of no other worker
	Queues   []string
	Handlers map[string]Handler
	Slots    uint32        // how many attempts run at once
	Lease    time.Duration // how long the broker bears silence; 30 s if 0
	Drain    time.Duration // how long to wait for what runs, when stopping; 10 s if 0
	Log      func(line string)
}

// Run works until the context is done, and then drains: it takes nothing more, waits for what runs,
// hands back the rest and leaves. An error means that the broker does not let this worker in.
func (w *Worker) Run(ctx context.Context, c *Client) error {
	if w.Name == "" {
		host, _ := os.Hostname()
		w.Name = fmt.Sprintf("go-%s-%d-%s", host, os.Getpid(), NewID()[30:])
	}
	if w.Slots == 0 {
		w.Slots = 1
	}
	if w.Lease == 0 {
		w.Lease = 30 * time.Second
	}
	if w.Drain == 0 {
		w.Drain = 10 * time.Second
	}
	if w.Log == nil {
		w.Log = func(string) {}
	}
	r := &run{Worker: w, client: c, events: make(chan func(), 64), attempts: map[key]*attempt{}, over: make(chan struct{})}
	return r.loop(ctx)
}

type key struct {
	task  string
	fence uint64
}

type attempt struct {
	given      *pb.Assignment
	stop       context.CancelFunc
	signal     pb.Signal // what the broker asked for, if it did
	isReleased bool
	report     *pb.WorkRequest // how it ended, once it has
	result     []byte          // a result that is too large for a message
	startSent  bool
	reportSent bool
}

func (a *attempt) held() *pb.Attempt {
	return &pb.Attempt{TaskId: a.given.TaskId, Fence: a.given.Fence}
}

// run is the state of a worker that runs. One goroutine, that of loop, owns all of it; the others
// hand it what happened as functions.
type run struct {
	*Worker
	client     *Client
	events     chan func()
	over       chan struct{}
	attempts   map[key]*attempt
	stream     pb.WorkerService_WorkClient
	cancel     context.CancelFunc
	joined     bool
	session    string
	ref        uint64
	waiting    map[uint64]func(*pb.Answer)
	failures   int
	generation uint64
	leaving    bool
	left       bool
	err        error
	done       bool
}

func (r *run) loop(ctx context.Context) error {
	defer close(r.over)
	beat := time.NewTicker(r.Lease / 4)
	defer beat.Stop()
	stop := ctx.Done()
	r.connect(0)
	for !r.done {
		select {
		case event := <-r.events:
			event()
		case <-beat.C:
			if r.joined {
				r.ask(&pb.WorkRequest{What: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.Heartbeat{}}}, nil)
			}
		case <-stop:
			stop = nil
			r.drain()
		}
		r.flush()
	}
	if r.cancel != nil {
		r.cancel()
	}
	for _, each := range r.attempts {
		each.stop()
	}
	return r.err
}

// tell hands something to the goroutine that owns the state, unless that has ended.
func (r *run) tell(event func()) {
	select {
	case r.events <- event:
	case <-r.over:
	}
}

func (r *run) after(wait time.Duration, event func()) {
	time.AfterFunc(wait, func() { r.tell(event) })
}

// The stream.

func (r *run) connect(wait time.Duration) {
	r.after(wait, func() {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := r.client.workers.Work(ctx)
		if err != nil {
			cancel()
			r.lost(nil, err)
			return
		}
		r.stream, r.cancel, r.waiting = stream, cancel, map[uint64]func(*pb.Answer){}
		r.join()
		go r.receive(stream)
	})
}

func (r *run) receive(stream pb.WorkerService_WorkClient) {
	for {
		message, err := stream.Recv()
		if err != nil {
			r.tell(func() { r.lost(stream, err) })
			return
		}
		r.tell(func() {
			if r.stream == stream {
				r.heard(message)
			}
		})
	}
}

// lost comes back after a lost stream: sooner at first, later each time.
func (r *run) lost(stream pb.WorkerService_WorkClient, err error) {
	if r.stream != stream {
		return
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.stream, r.cancel, r.joined = nil, nil, false
	for _, each := range r.attempts {
		each.startSent, each.reportSent = false, false
	}
	if r.left {
		r.done = true
		return
	}
	var no *Refused
	if errors.As(refused(err), &no) && no.RetryAfter == 0 && status.Code(err) != codes.Unavailable {
		r.err, r.done = no, true
		return
	}
	r.Log(fmt.Sprintf("connection lost: %v", err))
	wait := min(50*time.Millisecond<<min2(r.failures, 6), 2*time.Second)
	r.failures++
	r.connect(wait)
}

func min2(a, b int) int {
	if a < b {
		return a
	}
	return b
}

// ask sends a message; answered gets its answer, if there is one over this stream.
func (r *run) ask(message *pb.WorkRequest, answered func(*pb.Answer)) {
	r.ref++
	message.Ref = r.ref
	if answered != nil {
		r.waiting[r.ref] = answered
	}
	// An error of Send is the end of the stream, which receive reports with its reason.
	_ = r.stream.Send(message)
}

func (r *run) join() {
	slots := r.Slots
	if r.leaving {
		slots = 0
	}
	names := make([]string, 0, len(r.Handlers))
	for name := range r.Handlers {
		names = append(names, name)
	}
	r.generation = uint64(time.Now().UnixMicro())
	join := &pb.Join{
		Worker: r.Name, Queues: r.Queues, Slots: &slots, Lease: durationpb.New(r.Lease),
		Generation: r.generation, Names: &pb.TaskNames{Names: names},
		Labels: map[string]string{"language": "go"},
	}
	for _, each := range r.attempts {
		join.Holding = append(join.Holding, each.held())
	}
	r.joined = false // Reports wait for the answer.
	r.ask(&pb.WorkRequest{What: &pb.WorkRequest_Join{Join: join}}, func(answer *pb.Answer) {
		if refusal := answer.GetRefusal(); refusal != nil {
			r.notLetIn(toRefused(refusal))
			return
		}
		r.joined, r.failures, r.session = true, 0, answer.GetJoined().Session
		for _, dropped := range answer.GetJoined().Drop {
			r.drop(key{dropped.TaskId, dropped.Fence})
		}
	})
}

func (r *run) notLetIn(no *Refused) {
	r.Log("cannot join: " + no.Error())
	switch no.Code {
	case "invalid", "forbidden", "unauthorised", "stale_session":
		// A later stale_session means that another process has this name.
		r.err, r.done = no, true
	default: // A disk without room, too many workers: that passes.
		r.lost(r.stream, no)
	}
}

func (r *run) heard(message *pb.WorkResponse) {
	for _, answer := range message.Answers {
		if answered := r.waiting[answer.Ref]; answered != nil {
			delete(r.waiting, answer.Ref)
			answered(answer)
		}
	}
	for _, given := range message.Assignments {
		r.begin(given)
	}
	for _, asked := range message.Signals {
		r.signalled(asked)
	}
	if message.Drain && !r.leaving {
		r.drain()
	}
	if message.LeaseLost {
		r.join() // The answer lists what to drop.
	}
}

// Attempts.

func (r *run) begin(given *pb.Assignment) {
	name := key{given.TaskId, given.Fence}
	if r.attempts[name] != nil {
		return // Told twice; it is already running.
	}
	ctx, stop := context.WithCancel(context.Background())
	held := &attempt{given: given, stop: stop}
	r.attempts[name] = held
	if r.leaving {
		r.release(held)
		return
	}
	session := r.session
	task := &Task{
		ID: given.TaskId, Queue: given.Queue, Name: given.Name, Key: given.Key, Attempt: given.Attempt,
		Fence: given.Fence, Payload: given.Payload, Headers: given.Headers,
		Progress: func(percent float64, note string) {
			r.tell(func() { r.progress(held, percent, note) })
		},
	}
	go func() {
		result, err := r.call(ctx, task, given, session)
		r.tell(func() { r.ended(held, result, err) })
	}()
}

func (r *run) call(ctx context.Context, task *Task, given *pb.Assignment, session string) (result []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	handler := r.Handlers[task.Name]
	if handler == nil {
		return nil, &Reject{fmt.Sprintf("this worker has no task %q", task.Name)}
	}
	if given.IsLarge {
		request := &pb.DownloadBlobRequest{
			TaskId: task.ID, Kind: pb.BodyKind_BODY_KIND_PAYLOAD, Fence: task.Fence, Session: session,
		}
		if task.Payload, err = r.client.download(ctx, request); err != nil {
			return nil, err
		}
	}
	return handler(ctx, task)
}

func (r *run) progress(held *attempt, percent float64, note string) {
	if r.joined && held.report == nil {
		report := &pb.ReportProgress{TaskId: held.given.TaskId, Fence: held.given.Fence, Percent: &percent, Note: note}
		r.ask(&pb.WorkRequest{What: &pb.WorkRequest_Progress{Progress: report}}, nil)
	}
}

// ended notes how an attempt ended, unless it was dropped or released before.
func (r *run) ended(held *attempt, result []byte, err error) {
	given := held.given
	held.stop()
	if r.attempts[key{given.TaskId, given.Fence}] != held || held.report != nil {
		return
	}
	results := &pb.ReportResults{}
	switch {
	case err == nil:
		finish := &pb.Finish{TaskId: given.TaskId, Fence: given.Fence, Result: result}
		if len(result) > inlineMax {
			finish.Result, held.result = nil, result
		}
		results.Finished = []*pb.Finish{finish}
	case held.signal != pb.Signal_SIGNAL_UNSPECIFIED:
		answer := &pb.AnswerSignal{TaskId: given.TaskId, Fence: given.Fence, Answer: pb.SignalAnswer_SIGNAL_ANSWER_STOPPED}
		held.report = &pb.WorkRequest{What: &pb.WorkRequest_Signal{Signal: answer}}
		return
	default:
		fail := &pb.Fail{TaskId: given.TaskId, Fence: given.Fence, Error: &pb.TaskError{Type: fmt.Sprintf("%T", err), Message: err.Error()}}
		if errors.As(err, new(*Reject)) {
			fail.Verdict = pb.Verdict_VERDICT_REJECT
		}
		results.Failed = []*pb.Fail{fail}
	}
	held.report = &pb.WorkRequest{What: &pb.WorkRequest_Results{Results: results}}
}

func (r *run) release(held *attempt) {
	if held.report == nil {
		results := &pb.ReportResults{Released: []*pb.Attempt{held.held()}}
		held.report = &pb.WorkRequest{What: &pb.WorkRequest_Results{Results: results}}
	}
	held.stop()
}

// drop abandons an attempt that is no longer ours.
func (r *run) drop(name key) {
	if held := r.attempts[name]; held != nil {
		delete(r.attempts, name)
		held.stop()
	}
}

func (r *run) signalled(asked *pb.SignalAsked) {
	held := r.attempts[key{asked.TaskId, asked.Fence}]
	if held == nil || held.report != nil {
		return // Its end is on its way.
	}
	held.signal = asked.Signal
	held.stop() // It has stopped when its handler has returned.
}

// Reports.

// flush sends what the broker does not know yet.
func (r *run) flush() {
	if r.done || r.left {
		return
	}
	if r.leaving && len(r.attempts) == 0 && r.joined {
		r.leave()
		return
	}
	if !r.joined {
		return
	}
	for name, held := range r.attempts {
		if held.report == nil && !held.startSent {
			held.startSent = true
			start := &pb.StartAttempts{Attempts: []*pb.Attempt{held.held()}}
			r.ask(&pb.WorkRequest{What: &pb.WorkRequest_Start{Start: start}}, r.started(name))
		}
		if held.report != nil && !held.reportSent {
			held.reportSent = true
			r.report(name, held)
		}
	}
}

// started handles the answer to a start: only an attempt that belongs to another matters.
func (r *run) started(name key) func(*pb.Answer) {
	return func(answer *pb.Answer) {
		for _, item := range answer.GetAccepted().GetRefused() {
			if item.Refusal.Code == pb.RefusalCode_REFUSAL_CODE_STALE_FENCE {
				r.drop(name)
			}
		}
	}
}

func (r *run) report(name key, held *attempt) {
	if held.result == nil {
		r.ask(held.report, func(answer *pb.Answer) { r.reported(name, held, answer) })
		return
	}
	stream := r.stream
	go func() { // The result goes first, and is named in the report.
		upload, err := r.client.upload(context.Background(), held.result)
		r.tell(func() {
			if r.stream != stream || !r.joined {
				return // The next stream reports it.
			}
			if err != nil {
				r.after(time.Second, func() { held.reportSent = false })
				return
			}
			held.report.GetResults().Finished[0].ResultUpload = upload
			r.ask(held.report, func(answer *pb.Answer) { r.reported(name, held, answer) })
		})
	}()
}

// reported forgets an attempt whose end is acknowledged, and reports again what may be taken later.
func (r *run) reported(name key, held *attempt, answer *pb.Answer) {
	refusal := answer.GetRefusal()
	for _, item := range answer.GetAccepted().GetRefused() {
		refusal = item.Refusal
	}
	if refusal == nil {
		delete(r.attempts, name)
		return
	}
	no := toRefused(refusal)
	r.Log(fmt.Sprintf("task %s: %v", name.task, no))
	switch no.Code {
	case "unknown_session":
		held.reportSent = false
		r.join()
	case "storage_failed", "overloaded", "unknown_blob":
		r.after(no.RetryAfter+time.Second/2, func() { held.reportSent = false })
	default: // stale_fence, wrong_state: it is not ours, or its end is known.
		delete(r.attempts, name)
	}
}

// Leaving.

func (r *run) drain() {
	r.leaving = true
	if r.joined {
		r.join() // Again, now with no slots: nothing new will come.
	}
	r.after(r.Drain, func() {
		for _, held := range r.attempts {
			r.release(held)
		}
		// A broker that is away takes the attempts back by itself, once their lease is over.
		r.after(5*time.Second, func() { r.done = true })
	})
}

func (r *run) leave() {
	r.left = true
	r.ask(&pb.WorkRequest{What: &pb.WorkRequest_Leave{Leave: &pb.Leave{}}}, nil)
	_ = r.stream.CloseSend() // The broker completes the stream: see lost.
}
