package jackalope.examples;

import com.google.protobuf.ByteString;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import jackalope.client.Client;
import jackalope.client.Refused;
import jackalope.client.TaskFailed;
import jackalope.v1.TaskSpec;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Submit tasks and print their results: {@code --queue demo --name reverse --count 10 abc}. */
public final class SubmitMain {
  private static final int THREADS = 64;

  public static void main(String[] arguments) throws Exception {
    Flags flags = new Flags(arguments);
    Client client = Client.fromEnvironment("submit");
    var threads = Executors.newFixedThreadPool(THREADS);
    Struct headers = Struct.newBuilder().putFields("content", Value.newBuilder().setStringValue("bytes").build()).build();
    int code = 0;
    try {
      List<String> ids = new ArrayList<>();
      List<Future<String>> submits = new ArrayList<>();
      for (int n = 0; n < Integer.parseInt(flags.get("count", "1")); n++) {
        ByteString payload = ByteString.copyFromUtf8(flags.argument.replace("%", String.valueOf(n)));
        TaskSpec.Builder task = TaskSpec.newBuilder().setQueue(flags.get("queue", "demo"));
        task.setName(flags.get("name", "reverse")).setPayload(payload).setHeaders(headers);
        submits.add(threads.submit(() -> client.submit(task.build())));
      }
      for (Future<String> each : submits) ids.add(each.get());
      List<Future<ByteString>> results = new ArrayList<>();
      for (String id : ids) results.add(threads.submit(() -> client.result(id)));
      for (int n = 0; n < ids.size(); n++) System.out.println(n + " " + results.get(n).get().toStringUtf8());
    } catch (ExecutionException error) {
      code = 1;
      if (error.getCause() instanceof Refused refused) System.err.println("refused " + refused.code + ": " + refused.getMessage());
      else if (error.getCause() instanceof TaskFailed failed) System.err.println(failed.getMessage());
      else throw error;
    } finally {
      threads.shutdownNow();
      client.close();
    }
    System.exit(code);
  }
}
