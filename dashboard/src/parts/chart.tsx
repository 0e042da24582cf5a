// Charts over time, drawn by uPlot.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "./theme";
import { useStore } from "../store";

export interface Line {
  label: string;
  tone: string;
  values: (number | null)[];
  isFilled?: boolean;
}

export interface ChartProps {
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  label: string;
  from: number;
  to: number;
  /** There are no halves of what is counted. */
  isWhole?: boolean;
}

const HEIGHT = 190;

export function Chart({ times, lines, format, label, from, to, isWhole }: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const range = useRef<[number, number]>([from, to]);
  range.current = [from, to];
  const look = useStore(theme);
  const kinds = lines.map((line) => line.label).join();
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const tone = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: tone("dim"), grid: { stroke: tone("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options: uPlot.Options = {
      width: element.clientWidth || 300,
      height: HEIGHT,
      scales: {
        x: { range: () => range.current },
        y: { range: (_, __, top) => [0, top > 0 ? top * 1.1 : 1] },
      },
      axes: [
        { ...axis, space: 70, size: 34, values: (_, ticks) => ticks.map((tick) => tickText(tick, range.current[1] - range.current[0])) },
        { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (isWhole && !Number.isInteger(tick) ? "" : format(tick))) },
      ],
      series: [
        { label: "Time", value: (_, at) => (at == null ? "-" : new Date(at * 1000).toLocaleString("en-GB")) },
        ...lines.map((line) => ({
          label: line.label,
          stroke: tone(line.tone),
          width: 1.75,
          ...(line.isFilled ? { fill: `${tone(line.tone)}22` } : {}),
          points: { show: (plot: uPlot) => (plot.data[0]?.length ?? 0) < 3 },
          value: (_: uPlot, value: number | null) => (value == null ? "-" : format(value)),
        })),
      ],
      legend: { live: true },
      cursor: { y: false, drag: { x: false, y: false } },
    };
    const drawn = new uPlot(options, data, element);
    plot.current = drawn;
    const watch = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [kinds, look]);

  useEffect(() => {
    const drawn = plot.current;
    drawn?.setData(data);
    // Where nobody points, the legend tells the latest.
    if (drawn && (drawn.cursor.left ?? -1) < 0) drawn.setLegend({ idx: times.length - 1 });
  }, [times, lines, from, to]);

  const latest = lines.map((line) => `${line.label} ${format(line.values.findLast((value) => value != null) ?? 0)}`);
  return <div ref={holder} class="chart" role="img" aria-label={`${label}. Latest: ${latest.join(", ")}`} />;
}

function tickText(seconds: number, spanSeconds: number): string {
  const time = new Date(seconds * 1000);
  if (spanSeconds > 2 * 86_400) return time.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}
