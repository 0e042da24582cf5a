package jackalope.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import io.grpc.ClientInterceptor;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import jackalope.v1.BlobServiceGrpc;
import jackalope.v1.DownloadBlobRequest;
import jackalope.v1.SubmitTaskRequest;
import jackalope.v1.Task;
import jackalope.v1.TaskServiceGrpc;
import jackalope.v1.TaskSpec;
import jackalope.v1.TaskState;
import jackalope.v1.UploadBlobRequest;
import jackalope.v1.UploadBlobResponse;
import jackalope.v1.WaitTaskRequest;
import jackalope.v1.WaitTaskResponse;
import jackalope.v1.WorkerServiceGrpc;
import java.io.File;
import java.security.SecureRandom;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import javax.net.ssl.SSLException;

/** A connection to a broker over gRPC, for programs that submit tasks and for workers. */
public final class Client implements AutoCloseable {
  /** The largest body that goes into a message; a larger one is uploaded first. */
  static final int INLINE_BYTES_MAX = 64 * 1024;

  private static final int CHUNK_BYTES = 256 * 1024;
  private static final int WAIT_STEP_S = 30;
  private static final SecureRandom RANDOM = new SecureRandom();

  private final ManagedChannel channel;
  private final TaskServiceGrpc.TaskServiceBlockingStub tasks;
  private final BlobServiceGrpc.BlobServiceBlockingStub blobs;
  private final BlobServiceGrpc.BlobServiceStub uploads;
  final WorkerServiceGrpc.WorkerServiceStub workers;

  /** Connect to {@code host:port}. Token and certificate authority may be empty. */
  public Client(String address, String token, String ca, String name) throws SSLException {
    Metadata metadata = new Metadata();
    put(metadata, "authorization", token.isEmpty() ? "" : "Bearer " + token);
    put(metadata, "jackalope-client", name);
    ClientInterceptor caller = MetadataUtils.newAttachHeadersInterceptor(metadata);
    NettyChannelBuilder builder = NettyChannelBuilder.forTarget(address).intercept(caller);
    // A broker that is cut off says nothing: ask, so that the loss is noticed.
    builder.keepAliveTime(20, TimeUnit.SECONDS).keepAliveTimeout(10, TimeUnit.SECONDS);
    if (ca.isEmpty()) builder.usePlaintext();
    else builder.sslContext(GrpcSslContexts.forClient().trustManager(new File(ca)).build());
    channel = builder.build();
    tasks = TaskServiceGrpc.newBlockingStub(channel);
    blobs = BlobServiceGrpc.newBlockingStub(channel);
    uploads = BlobServiceGrpc.newStub(channel);
    workers = WorkerServiceGrpc.newStub(channel);
  }

  /** Read JACKALOPE_GRPC, JACKALOPE_TOKEN and JACKALOPE_CA. */
  public static Client fromEnvironment(String name) throws SSLException {
    var env = System.getenv();
    return new Client(
        env.getOrDefault("JACKALOPE_GRPC", "127.0.0.1:7422"),
        env.getOrDefault("JACKALOPE_TOKEN", ""),
        env.getOrDefault("JACKALOPE_CA", ""),
        name);
  }

  private static void put(Metadata metadata, String key, String value) {
    if (!value.isEmpty()) metadata.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
  }

  @Override
  public void close() {
    channel.shutdownNow();
  }

  /** Reconnect now rather than after the wait of the channel. */
  void hurry() {
    channel.resetConnectBackoff();
  }

  /** Return an id for a task: a UUID of version 7, which begins with the time. */
  public static String newId() {
    long high = System.currentTimeMillis() << 16 | 0x7000 | RANDOM.nextInt(0x1000);
    long low = RANDOM.nextLong() & 0x3fffffffffffffffL | 0x8000000000000000L;
    return new UUID(high, low).toString();
  }

  /**
   * Submit a task, and return its id once it is durable. Waits for a full queue and for a broker that
   * is away; the id of the task makes that harmless.
   */
  public String submit(TaskSpec given) throws InterruptedException {
    TaskSpec task = given.getId().isEmpty() ? given.toBuilder().setId(newId()).build() : given;
    return again(
        () -> {
          TaskSpec.Builder sent = task.toBuilder();
          if (task.getPayload().size() > INLINE_BYTES_MAX)
            sent.clearPayload().setPayloadUpload(upload(task.getPayload()));
          return tasks.submitTask(SubmitTaskRequest.newBuilder().setTask(sent).build()).getId();
        });
  }

  /** Wait for a task, and return its result. Raises {@link TaskFailed} if it ended without one. */
  public ByteString result(String id) throws InterruptedException {
    Task task = waitFor(id);
    if (task.getState() != TaskState.TASK_STATE_SUCCEEDED) throw new TaskFailed(task);
    if (task.hasResult() || task.getResultSize() == 0) return task.getResult();
    return again(() -> download(DownloadBlobRequest.newBuilder().setTaskId(id).build()));
  }

  /** Return a task when it has ended. */
  public Task waitFor(String id) throws InterruptedException {
    Duration step = Duration.newBuilder().setSeconds(WAIT_STEP_S).build();
    WaitTaskRequest request = WaitTaskRequest.newBuilder().setId(id).setTimeout(step).build();
    while (true) {
      WaitTaskResponse answer = again(() -> tasks.waitTask(request));
      if (answer.getEnded()) return answer.getTask();
    }
  }

  /** Call until there is an answer: again after a lost connection, and after a wait that is asked. */
  private <T> T again(Supplier<T> call) throws InterruptedException {
    for (long waitMs = 50; ; waitMs = Math.min(2 * waitMs, 2_000)) {
      try {
        return call.get();
      } catch (StatusRuntimeException error) {
        Refused refused = Refused.of(error);
        if (refused == null && error.getStatus().getCode() != Status.Code.UNAVAILABLE) throw error;
        if (refused != null && refused.retryAfter.isZero()) throw refused;
        Thread.sleep(refused == null ? waitMs : refused.retryAfter.toMillis());
        hurry();
      }
    }
  }

  /** Send a body in chunks, and return its name for one submit or one result. */
  String upload(ByteString body) {
    var answered = new CompletableFuture<String>();
    StreamObserver<UploadBlobRequest> out =
        uploads.uploadBlob(
            new StreamObserver<>() {
              @Override
              public void onNext(UploadBlobResponse answer) {
                answered.complete(answer.getUpload());
              }

              @Override
              public void onError(Throwable error) {
                answered.completeExceptionally(error);
              }

              @Override
              public void onCompleted() {
                answered.completeExceptionally(Status.INTERNAL.asRuntimeException());
              }
            });
    for (int at = 0; at < body.size(); at += CHUNK_BYTES) {
      ByteString chunk = body.substring(at, Math.min(at + CHUNK_BYTES, body.size()));
      out.onNext(UploadBlobRequest.newBuilder().setData(chunk).build());
    }
    out.onCompleted();
    try {
      return answered.join();
    } catch (java.util.concurrent.CompletionException error) {
      throw Status.fromThrowable(error.getCause()).asRuntimeException(Status.trailersFromThrowable(error));
    }
  }

  ByteString download(DownloadBlobRequest request) {
    ByteString body = ByteString.EMPTY;
    var parts = blobs.downloadBlob(request);
    while (parts.hasNext()) body = body.concat(parts.next().getData());
    return body;
  }
}
