import { expect, test } from "vitest";
import { addLines, type LogLine, rowsOf, shownText } from "../src/logs";

function line(number: number, attempt = 1, fence = attempt): LogLine {
  return { id: `${fence}-${number}`, attempt, number, at: null, level: "info", stream: "stdout", logger: "", text: `line ${number}` };
}

test("text shows no colours and nothing that moves the cursor or turns the writing", () => {
  expect(shownText("\x1b[31mred\x1b[0m")).toBe("red");
  expect(shownText("a\x1b[2Jb\x07")).toBe("a\\x1b[2Jb\\x07");
  expect(shownText("\u202egnp.exe")).toBe("\\u202egnp.exe");
  expect(shownText("tab\there")).toBe("tab\there");
});

test("attempts are marked, and so are lines that are missing", () => {
  const rows = rowsOf([line(1), line(4), line(3, 2)], false, true);
  expect(rows.map((row) => (row.kind === "line" ? row.line.number : row.kind === "gap" ? `gap ${row.count}` : `attempt ${row.attempt}`))).toEqual([
    "attempt 1", 1, "gap 2", 4, "attempt 2", "gap 2", 3,
  ]);
});

test("a filter makes no gaps, nor does what was not loaded", () => {
  expect(rowsOf([line(1), line(4)], true, true).filter((row) => row.kind === "gap")).toEqual([]);
  expect(rowsOf([line(50), line(51)], false, false).filter((row) => row.kind === "gap")).toEqual([]);
});

test("lines that come again are left out, and the oldest are forgotten", () => {
  const first = addLines([], [line(1), line(2)]);
  expect(addLines(first.lines, [line(2), line(3)]).lines.map((each) => each.number)).toEqual([1, 2, 3]);
  const cut = addLines(first.lines, [line(3)], 2);
  expect([cut.lines.map((each) => each.number), cut.isCut]).toEqual([[2, 3], true]);
});
