package jackalope.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import jackalope.v1.Answer;
import jackalope.v1.AnswerSignal;
import jackalope.v1.Assignment;
import jackalope.v1.Attempt;
import jackalope.v1.BodyKind;
import jackalope.v1.DownloadBlobRequest;
import jackalope.v1.Fail;
import jackalope.v1.Finish;
import jackalope.v1.Heartbeat;
import jackalope.v1.Join;
import jackalope.v1.Leave;
import jackalope.v1.RefusedItem;
import jackalope.v1.ReportProgress;
import jackalope.v1.ReportResults;
import jackalope.v1.SignalAnswer;
import jackalope.v1.SignalAsked;
import jackalope.v1.StartAttempts;
import jackalope.v1.TaskError;
import jackalope.v1.TaskNames;
import jackalope.v1.WorkRequest;
import jackalope.v1.WorkResponse;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Runs tasks of a broker, whatever happens to the connection.
 *
 * <p>An attempt is held from its assignment until the broker has acknowledged how it ended. Until then
 * each join names it, and its report is sent again over whichever stream is open. An attempt that is no
 * longer the worker's own is interrupted, and not reported. One thread, that of {@code loop}, owns all
 * state; the others hand it what happened.
 */
public final class Worker {
  /** Runs a task. Its thread is interrupted when the attempt is to stop. */
  public interface Handler {
    ByteString run(Context context) throws Exception;
  }

  /** One attempt at a task, as a handler sees it. */
  public record Context(Assignment task, ByteString payload, Progress progress) {}

  /** Reports how far an attempt has come, 0 to 100. */
  public interface Progress {
    void report(double percent, String note);
  }

  private final Client client;
  private final String name;
  private final String queue;
  private final int slots;
  private final long leaseMs;
  private final Map<String, Handler> handlers;
  private final ScheduledExecutorService loop = Executors.newSingleThreadScheduledExecutor();
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final CompletableFuture<Void> over = new CompletableFuture<>();
  private final Map<String, Running> attempts = new HashMap<>();
  private final Map<Long, Consumer<Answer>> waiting = new HashMap<>();
  private StreamObserver<WorkRequest> out;
  private Object stream; // Names the stream that is open: what an earlier one says is ignored.
  private boolean isJoined;
  private boolean isLeaving;
  private boolean hasLeft;
  private String session = "";
  private long ref;
  private int failures;

  private static final class Running {
    final Assignment given;
    Future<?> thread;
    boolean isSignalled;
    boolean isStartSent;
    boolean isReportSent;
    WorkRequest report;
    ByteString large; // A result that is too large for a message.

    Running(Assignment given) {
      this.given = given;
    }

    Attempt held() {
      return Attempt.newBuilder().setTaskId(given.getTaskId()).setFence(given.getFence()).build();
    }

    void stop() {
      if (thread != null) thread.cancel(true);
    }
  }

  /** The name stays the same over restarts; the lease is how long the broker waits for silence. */
  public Worker(
      Client client, String name, String queue, int slots, long leaseMs, Map<String, Handler> handlers) {
    this.client = client;
    this.name = name;
    this.queue = queue;
    this.slots = slots;
    this.leaseMs = leaseMs;
    this.handlers = handlers;
  }

  /** Work until {@link #drain} is done. Raises {@link Refused} if the broker does not let it in. */
  public void run() {
    loop.execute(this::connect);
    loop.scheduleWithFixedDelay(this::beat, leaseMs / 4, leaseMs / 4, TimeUnit.MILLISECONDS);
    try {
      over.join();
    } catch (java.util.concurrent.CompletionException error) {
      if (error.getCause() instanceof RuntimeException refused) throw refused;
      throw error;
    } finally {
      loop.shutdownNow();
      threads.shutdownNow();
    }
  }

  /** Take no more tasks, wait for those that run, hand back what is left, and leave. */
  public void drain(double seconds) {
    loop.execute(
        () -> {
          if (isLeaving) return;
          isLeaving = true;
          if (isJoined) join(); // Again, now with no slots: nothing new will come.
          flush();
          later((long) (seconds * 1000), () -> List.copyOf(attempts.values()).forEach(this::release));
          // A broker that is away takes the attempts back by itself, once their lease is over.
          later((long) (seconds * 1000) + 5_000, () -> over.complete(null));
        });
  }

  /** Wait until {@link #run} is about to return. */
  public void awaitEnd() {
    over.handle((done, error) -> null).join();
  }

  private void later(long ms, Runnable action) {
    loop.schedule(() -> tell(action), ms, TimeUnit.MILLISECONDS);
  }

  /** Let the thread that owns the state do something, and send what follows from it. */
  private void tell(Runnable action) {
    if (over.isDone()) return;
    loop.execute(
        () -> {
          try {
            action.run();
            flush();
          } catch (RuntimeException error) {
            over.completeExceptionally(error);
          }
        });
  }

  // The stream.

  private void connect() {
    Object opened = new Object();
    stream = opened;
    waiting.clear();
    client.hurry();
    out =
        client.workers.work(
            new StreamObserver<>() {
              @Override
              public void onNext(WorkResponse message) {
                tell(
                    () -> {
                      if (stream == opened) heard(message);
                    });
              }

              @Override
              public void onError(Throwable error) {
                tell(() -> lost(opened, error));
              }

              @Override
              public void onCompleted() {
                tell(() -> lost(opened, Status.UNAVAILABLE.asRuntimeException()));
              }
            });
    join();
  }

  /** Come back after a lost stream: sooner at first, later each time. */
  private void lost(Object lost, Throwable error) {
    if (stream != lost) return;
    stream = null;
    isJoined = false;
    for (Running each : attempts.values()) each.isStartSent = each.isReportSent = false;
    Refused refused = Refused.of(error);
    if (hasLeft) over.complete(null);
    else if (refused != null && refused.retryAfter.isZero() && isFinal(refused)) over.completeExceptionally(refused);
    else {
      System.err.println("connection lost: " + error.getMessage());
      later(Math.min(50L << Math.min(failures++, 6), 2_000), this::connect);
    }
  }

  private static boolean isFinal(Refused refused) {
    return List.of("unauthorised", "forbidden", "invalid", "stale_session").contains(refused.code);
  }

  private void ask(WorkRequest.Builder message, Consumer<Answer> answered) {
    message.setRef(++ref);
    if (answered != null) waiting.put(ref, answered);
    try {
      out.onNext(message.build());
    } catch (IllegalStateException ended) {
      waiting.remove(ref); // The stream is over, which its observer reports with the reason.
    }
  }

  private void beat() {
    tell(
        () -> {
          if (isJoined) ask(WorkRequest.newBuilder().setHeartbeat(Heartbeat.getDefaultInstance()), null);
        });
  }

  private void join() {
    long now = System.currentTimeMillis() * 1000;
    Join.Builder join =
        Join.newBuilder()
            .setWorker(name)
            .addQueues(queue)
            .setSlots(isLeaving ? 0 : slots)
            .setLease(Duration.newBuilder().setSeconds(leaseMs / 1000).setNanos((int) (leaseMs % 1000) * 1_000_000))
            .setGeneration(now)
            .putLabels("language", "java")
            .setNames(TaskNames.newBuilder().addAllNames(handlers.keySet()));
    for (Running each : attempts.values()) join.addHolding(each.held());
    isJoined = false; // Reports wait for the answer.
    ask(
        WorkRequest.newBuilder().setJoin(join),
        answer -> {
          if (answer.hasRefusal()) {
            lostAfter(Refused.of(answer.getRefusal()));
            return;
          }
          isJoined = true;
          failures = 0;
          session = answer.getJoined().getSession();
          for (Attempt dropped : answer.getJoined().getDropList()) drop(key(dropped));
        });
  }

  private void lostAfter(Refused refused) {
    if (isFinal(refused)) over.completeExceptionally(refused);
    else lost(stream, refused);
  }

  private void heard(WorkResponse message) {
    for (Answer answer : message.getAnswersList()) {
      Consumer<Answer> answered = waiting.remove(answer.getRef());
      if (answered != null) answered.accept(answer);
    }
    message.getAssignmentsList().forEach(this::begin);
    message.getSignalsList().forEach(this::signalled);
    if (message.getDrain()) drain(10);
    if (message.getLeaseLost()) join(); // The answer lists what to drop.
  }

  // Attempts.

  private static String key(Attempt attempt) {
    return attempt.getTaskId() + "/" + attempt.getFence();
  }

  private void begin(Assignment given) {
    Running running = new Running(given);
    if (attempts.putIfAbsent(key(running.held()), running) != null) return; // It may be told twice.
    if (isLeaving) {
      release(running);
      return;
    }
    String joined = session;
    running.thread =
        threads.submit(
            () -> {
              try {
                ByteString result = call(running, joined);
                tell(() -> ended(running, result, null));
              } catch (Throwable error) { // Whatever a handler raises is the failure of its attempt.
                tell(() -> ended(running, null, error));
              }
            });
  }

  private ByteString call(Running running, String joined) throws Exception {
    Assignment given = running.given;
    ByteString payload = given.getPayload();
    if (given.getIsLarge())
      payload =
          client.download(
              DownloadBlobRequest.newBuilder()
                  .setTaskId(given.getTaskId())
                  .setKind(BodyKind.BODY_KIND_PAYLOAD)
                  .setFence(given.getFence())
                  .setSession(joined)
                  .build());
    Progress progress = (percent, note) -> tell(() -> progress(running, percent, note));
    return handlers.get(given.getName()).run(new Context(given, payload, progress));
  }

  private void progress(Running running, double percent, String note) {
    if (!isJoined || running.report != null) return;
    ReportProgress.Builder report =
        ReportProgress.newBuilder()
            .setTaskId(running.given.getTaskId())
            .setFence(running.given.getFence())
            .setPercent(percent)
            .setNote(note);
    ask(WorkRequest.newBuilder().setProgress(report), null);
  }

  /** Note how an attempt ended, unless it was dropped or released before. */
  private void ended(Running running, ByteString result, Throwable error) {
    if (attempts.get(key(running.held())) != running || running.report != null) return;
    String task = running.given.getTaskId();
    long fence = running.given.getFence();
    if (error == null) {
      Finish.Builder finish = Finish.newBuilder().setTaskId(task).setFence(fence);
      if (result.size() > Client.INLINE_BYTES_MAX) running.large = result;
      else finish.setResult(result);
      running.report = results(ReportResults.newBuilder().addFinished(finish));
    } else if (running.isSignalled) {
      AnswerSignal.Builder stopped = AnswerSignal.newBuilder().setTaskId(task).setFence(fence);
      stopped.setAnswer(SignalAnswer.SIGNAL_ANSWER_STOPPED);
      running.report = WorkRequest.newBuilder().setSignal(stopped).build();
    } else {
      TaskError.Builder told = TaskError.newBuilder().setType(error.getClass().getName());
      told.setMessage(String.valueOf(error.getMessage()));
      Fail.Builder fail = Fail.newBuilder().setTaskId(task).setFence(fence).setError(told);
      running.report = results(ReportResults.newBuilder().addFailed(fail));
    }
  }

  private static WorkRequest results(ReportResults.Builder results) {
    return WorkRequest.newBuilder().setResults(results).build();
  }

  private void release(Running running) {
    if (running.report == null) running.report = results(ReportResults.newBuilder().addReleased(running.held()));
    running.stop();
  }

  /** Abandon an attempt that is no longer ours. */
  private void drop(String key) {
    Running running = attempts.remove(key);
    if (running != null) running.stop();
  }

  private void signalled(SignalAsked asked) {
    Running running = attempts.get(asked.getTaskId() + "/" + asked.getFence());
    if (running == null || running.report != null) return; // Its end is on its way.
    running.isSignalled = true;
    running.stop(); // It has stopped when its handler has returned.
  }

  // Reports.

  /** Send what the broker does not know yet. */
  private void flush() {
    if (hasLeft || !isJoined) return;
    if (isLeaving && attempts.isEmpty()) {
      hasLeft = true;
      ask(WorkRequest.newBuilder().setLeave(Leave.getDefaultInstance()), null);
      out.onCompleted(); // The broker completes the stream: see lost.
      return;
    }
    for (Running running : List.copyOf(attempts.values())) {
      if (running.report == null && !running.isStartSent) {
        running.isStartSent = true;
        StartAttempts.Builder start = StartAttempts.newBuilder().addAttempts(running.held());
        ask(WorkRequest.newBuilder().setStart(start), answer -> started(running, answer));
      }
      if (running.report != null && !running.isReportSent) {
        running.isReportSent = true;
        report(running);
      }
    }
  }

  /** Handle the answer to a start: only an attempt that belongs to another matters. */
  private void started(Running running, Answer answer) {
    for (RefusedItem item : answer.getAccepted().getRefusedList())
      if (Refused.of(item.getRefusal()).code.equals("stale_fence")) drop(key(running.held()));
  }

  private void report(Running running) {
    if (running.large == null) {
      ask(running.report.toBuilder(), answer -> reported(running, answer));
      return;
    }
    Object opened = stream;
    threads.execute( // The result goes first, and is named in the report.
        () -> {
          try {
            String upload = client.upload(running.large);
            tell(
                () -> {
                  if (stream != opened || !isJoined) return; // The next stream reports it.
                  WorkRequest.Builder report = running.report.toBuilder();
                  report.getResultsBuilder().getFinishedBuilder(0).setResultUpload(upload);
                  ask(report, answer -> reported(running, answer));
                });
          } catch (RuntimeException error) {
            later(1_000, () -> running.isReportSent = false);
          }
        });
  }

  /** Forget an attempt whose end is acknowledged, and report again what may be taken later. */
  private void reported(Running running, Answer answer) {
    Refused refused = answer.hasRefusal() ? Refused.of(answer.getRefusal()) : null;
    for (RefusedItem item : answer.getAccepted().getRefusedList()) refused = Refused.of(item.getRefusal());
    switch (refused == null ? "" : refused.code) {
      case "unknown_session" -> {
        running.isReportSent = false;
        join();
      }
      case "storage_failed", "overloaded", "unknown_blob" ->
          later(refused.retryAfter.toMillis() + 500, () -> running.isReportSent = false);
      default -> attempts.remove(key(running.held())); // Taken; or not ours, or its end is known.
    }
  }
}
