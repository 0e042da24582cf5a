package jackalope.client;

import jackalope.v1.Task;
import java.util.Locale;

/** A task ended without success. */
public final class TaskFailed extends RuntimeException {
  public final Task task;

  TaskFailed(Task task) {
    super(
        task.getReason().name().replace("DEATH_REASON_", "").toLowerCase(Locale.ROOT)
            + ": "
            + task.getError().getMessage());
    this.task = task;
  }
}
