package jackalope.client;

import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import jackalope.details.ErrorInfo;
import jackalope.details.RetryInfo;
import jackalope.details.Status;
import jackalope.v1.Refusal;
import java.time.Duration;
import java.util.Locale;

/** What a broker answers when it refuses. */
public final class Refused extends RuntimeException {
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  /** The kind of refusal, such as {@code queue_full}. */
  public final String code;

  /** When asking again may help; zero when it will not. */
  public final Duration retryAfter;

  Refused(String code, String message, Duration retryAfter) {
    super(message);
    this.code = code;
    this.retryAfter = retryAfter;
  }

  static Refused of(Refusal refusal) {
    String code = refusal.getCode().name().substring("REFUSAL_CODE_".length());
    return new Refused(lower(code), refusal.getMessage(), duration(refusal.getRetryAfter()));
  }

  /** Return the refusal in the details of an error, or null if there is none. */
  static Refused of(Throwable error) {
    if (!(error instanceof StatusRuntimeException failed) || failed.getTrailers() == null) return null;
    byte[] details = failed.getTrailers().get(DETAILS);
    if (details == null) return null;
    String code = null;
    Duration retryAfter = Duration.ZERO;
    try {
      Status status = Status.parseFrom(details);
      for (var detail : status.getDetailsList()) {
        if (detail.getTypeUrl().endsWith("/google.rpc.ErrorInfo")) {
          ErrorInfo info = ErrorInfo.parseFrom(detail.getValue());
          if (info.getDomain().equals("jackalope")) code = lower(info.getReason());
        } else if (detail.getTypeUrl().endsWith("/google.rpc.RetryInfo")) {
          retryAfter = duration(RetryInfo.parseFrom(detail.getValue()).getRetryDelay());
        }
      }
      return code == null ? null : new Refused(code, status.getMessage(), retryAfter);
    } catch (com.google.protobuf.InvalidProtocolBufferException unreadable) {
      return null;
    }
  }

  static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }

  private static String lower(String text) {
    return text.toLowerCase(Locale.ROOT);
  }
}
