package jackalope.examples;

import java.util.HashMap;
import java.util.Map;

/** Flags of the form {@code --name value}, and at most one argument without a name. */
final class Flags {
  private final Map<String, String> flags = new HashMap<>();
  final String argument;

  Flags(String[] arguments) {
    String plain = "";
    for (int at = 0; at < arguments.length; at++) {
      if (arguments[at].startsWith("--") && at + 1 < arguments.length) flags.put(arguments[at].substring(2), arguments[++at]);
      else plain = arguments[at];
    }
    argument = plain;
  }

  String get(String name, String otherwise) {
    return flags.getOrDefault(name, otherwise);
  }
}
