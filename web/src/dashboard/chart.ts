// A chart: uPlot in the theme's colours, with a legend of the values under the cursor or the latest ones.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { h } from "../common/dom";
import { clock, moment, tickTime, UNKNOWN } from "./format";
import { setText } from "./page";
import { largest, latest, lonely, timeRange, type Column } from "./series";

export interface Line {
  readonly label: string;
  readonly colour: `--series-${1 | 2 | 3 | 4 | 5 | 6}`;
  readonly fill?: boolean;
}

export interface ChartOptions {
  readonly title: string;
  readonly id: string;
  readonly lines: readonly Line[];
  readonly format: (value: number | null) => string;
  readonly log?: boolean;
  readonly ticks?: "bytes" | "whole"; // at powers of two; never between whole numbers
  /** `on`: a value holds from its sample on; `until`: up to its sample; without steps lines join the samples. */
  readonly steps?: "on" | "until";
  readonly days?: boolean; // times may be days apart: the legend shows the date
}

const HEIGHT = 176;
const STEPS = {
  bytes: Array.from({ length: 50 }, (_, at) => 2 ** at),
  whole: Array.from({ length: 15 }, (_, at) => [1, 2, 5].map((digit) => digit * 10 ** at)).flat(),
};

export class Chart {
  readonly element: HTMLElement;
  private readonly box = h("div", { class: "plot" });
  private readonly values: HTMLElement[];
  private readonly when = h("span", { class: "chart-when" });
  private readonly empty = h("p", { class: "chart-empty" }, "no samples yet");
  private readonly words = h("p", { class: "visually-hidden" });
  private readonly resized = new ResizeObserver(() => this.fit());
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private plot: uPlot | null = null;
  private data: [number[], ...Column[]] = [[]];
  private now: Column = [];
  private mark: { at: number; label: string } | null = null;

  constructor(private readonly options: ChartOptions) {
    this.values = options.lines.map(() => h("b", {}, UNKNOWN));
    const legend = options.lines.map((line, at) =>
      h("span", { class: "key" }, h("i", { style: `background: var(${line.colour})` }), line.label, this.values[at]));
    this.element = h("figure", { class: "panel chart", id: options.id, "data-testid": options.id },
      h("figcaption", {}, h("h2", {}, options.title), h("span", { class: "keys" }, ...legend, this.when)),
      this.words, this.box, this.empty);
    this.resized.observe(this.box);
    document.addEventListener("lorogo:theme", this.recolour);
    this.dark.addEventListener("change", this.recolour);
  }

  /**
   * Show new values; `now` are newer than the last samples, for the legend; `mark` is a level to draw where it is
   * visible.
   */
  show(times: number[], columns: Column[], now: Column = [], mark: { at: number; label: string } | null = null): void {
    this.data = [times, ...columns];
    this.now = now;
    this.mark = mark;
    const some = columns.some((column) => latest(column) !== null);
    this.empty.hidden = some;
    this.box.hidden = !some;
    if (!some) {
      this.drop();
      return this.legend();
    }
    if (this.plot === null) this.draw();
    else this.plot.setData(this.data);
    this.legend();
    const summary = this.options.lines.map((line, at) => {
      const column = columns[at] ?? [];
      return `${line.label}: now ${this.options.format(this.now[at] ?? latest(column))}, at most ${this.options.format(largest(column))}`;
    });
    setText(this.words, summary.join("; "));
  }

  close(): void {
    this.resized.disconnect();
    document.removeEventListener("lorogo:theme", this.recolour);
    this.dark.removeEventListener("change", this.recolour);
    this.drop();
  }

  private readonly recolour = (): void => {
    if (this.plot === null) return;
    this.drop();
    this.draw();
  };

  private drop(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private fit(): void {
    const width = this.box.clientWidth;
    if (width === 0) return;
    if (this.plot === null) {
      if (!this.box.hidden) this.draw();
    } else if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
  }

  private draw(): void {
    const width = this.box.clientWidth;
    if (width === 0) return;
    const { lines, log, ticks, steps, format } = this.options;
    const muted = this.colour("--muted");
    const grid = { stroke: this.colour("--line"), width: 1 };
    const axis = { stroke: muted, grid, ticks: { show: false }, font: `11px ${getComputedStyle(this.box).fontFamily}` };
    const paths = steps ? uPlot.paths.stepped?.({ align: steps === "on" ? 1 : -1 }) : undefined;
    this.plot = new uPlot({
      width,
      height: HEIGHT,
      padding: [8, 26, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: {
        // from the data: for a single sample uPlot would show years
        x: { time: true, range: () => timeRange(this.data[0][0] ?? 0, this.data[0].at(-1) ?? 0) },
        y: log ? { distr: 3 } : { range: (_u, _low, high) => [0, high > 0 ? high * 1.15 : 1] },
      },
      axes: [
        { ...axis, size: 26, gap: 6, space: 84, values: timeTicks },
        {
          ...axis, size: 66, gap: 6, space: 32,
          ...(ticks ? { incrs: STEPS[ticks] } : {}),
          ...(log ? { filter: decades, grid: { ...grid, filter: decades } } : {}),
          values: (_u, places) => places.map((tick) => (tick === null ? "" : tickText(format(tick)))),
        },
      ],
      series: [
        {},
        ...lines.map((line): uPlot.Series => {
          const stroke = this.colour(line.colour);
          return {
            label: line.label, stroke, width: 1.75, spanGaps: false,
            points: { show: false, size: 5, fill: stroke, filter: (plot, at) => lonely((plot.data[at] ?? []) as Column) },
            ...(paths ? { paths } : {}),
            ...(line.fill ? { fill: faded(stroke) } : {}),
          };
        }),
      ],
      hooks: { setCursor: [() => this.legend()], draw: [(plot) => this.drawMark(plot)] },
    }, this.data, this.box);
  }

  private legend(): void {
    const [times, ...columns] = this.data;
    const at = this.plot?.cursor.idx ?? null;
    this.values.forEach((element, line) => {
      const column = columns[line] ?? [];
      setText(element, this.options.format(at === null ? (this.now[line] ?? latest(column)) : (column[at] ?? null)));
    });
    const time = at === null ? undefined : times[at];
    setText(this.when, time === undefined ? "" : this.options.days ? moment(time * 1000) : clock(time * 1000));
  }

  private drawMark(plot: uPlot): void {
    const { mark } = this;
    const top = plot.scales["y"]?.max ?? null;
    if (mark === null || top === null || mark.at > top) return;
    const y = Math.round(plot.valToPos(mark.at, "y", true));
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = this.colour("--warn");
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.textAlign = "left";
    ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(this.box).fontFamily}`;
    ctx.fillText(mark.label, bbox.left + 6 * devicePixelRatio, y - 4 * devicePixelRatio);
    ctx.restore();
  }

  /** Resolves CSS variables and light-dark(), which a canvas does not support. */
  private colour(name: string): string {
    this.box.style.color = `var(${name})`;
    const { color } = getComputedStyle(this.box);
    this.box.style.color = "";
    return color;
  }
}

function faded(colour: string): string {
  const parts = colour.match(/[\d.]+/g) ?? [];
  return `rgb(${parts.slice(0, 3).join(" ")} / 0.12)`;
}

/** Round numbers need no decimals on an axis. */
function tickText(text: string): string {
  return text.replace(/\.0+(?=\D|$)/, "");
}

/** On a logarithmic axis only powers of ten are labelled. */
function decades(_plot: uPlot, ticks: number[]): (number | null)[] {
  return ticks.map((tick) => (Math.abs(Math.log10(tick) % 1) < 1e-9 ? tick : null));
}

const timeTicks: uPlot.Axis.DynamicValues = (_plot, ticks, _axis, _space, step) => {
  const whole = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0);
  return ticks.map((tick) => tickTime(tick * 1000, step, whole));
};
