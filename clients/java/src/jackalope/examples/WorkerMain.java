package jackalope.examples;

import com.google.protobuf.ByteString;
import jackalope.client.Client;
import jackalope.client.Worker;
import java.util.Map;

/**
 * A worker with three tasks, for each of which the payload is bytes: {@code --queue demo --name w1}.
 *
 * <p>JACKALOPE_GRPC is the address of the gRPC door, JACKALOPE_TOKEN the token of an API key where one
 * is needed, and JACKALOPE_CA a file with the certificate authority of a broker with TLS.
 */
public final class WorkerMain {
  public static void main(String[] arguments) throws Exception {
    Flags flags = new Flags(arguments);
    String name = flags.get("name", "java-" + ProcessHandle.current().pid() + "-" + Client.newId().substring(30));
    Map<String, Worker.Handler> handlers =
        Map.of("reverse", WorkerMain::reverse, "fail", WorkerMain::fail, "sleep", WorkerMain::sleep);
    int slots = Integer.parseInt(flags.get("slots", "4"));
    double drain = Double.parseDouble(flags.get("drain", "10"));
    long leaseMs = (long) (1000 * Double.parseDouble(flags.get("lease", "30")));
    Client client = Client.fromEnvironment(name);
    Worker worker = new Worker(client, name, flags.get("queue", "demo"), slots, leaseMs, handlers);
    // A hook keeps the process until it returns, and SIGTERM runs it.
    Thread hook =
        new Thread(
            () -> {
              worker.drain(drain);
              worker.awaitEnd();
              Runtime.getRuntime().halt(0);
            });
    Runtime.getRuntime().addShutdownHook(hook);
    try {
      worker.run();
    } catch (RuntimeException refused) {
      System.err.println(refused);
      Runtime.getRuntime().halt(1);
    }
    Runtime.getRuntime().halt(0);
  }

  private static ByteString reverse(Worker.Context context) {
    byte[] bytes = context.payload().toByteArray();
    byte[] reversed = new byte[bytes.length];
    for (int at = 0; at < bytes.length; at++) reversed[bytes.length - 1 - at] = bytes[at];
    return ByteString.copyFrom(reversed);
  }

  private static ByteString fail(Worker.Context context) {
    throw new IllegalStateException(context.payload().toStringUtf8());
  }

  /** Sleep, report how far it has come, and wake up early when it is to stop. */
  private static ByteString sleep(Worker.Context context) throws InterruptedException {
    String seconds = context.payload().toStringUtf8();
    context.progress().report(50, "sleeping");
    Thread.sleep((long) (Double.parseDouble(seconds) * 1000));
    return ByteString.copyFromUtf8("slept " + seconds);
  }
}
