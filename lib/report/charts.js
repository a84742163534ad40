// Charts: values under the cursor and zoom, from the numbers embedded in each figure. Without this script the drawing
// in the page is complete.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;  // coordinates of a .shapes svg, as in svg.h
const make = (name, attributes, text) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const html = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Numbers as number_text() of axis.cpp writes them.
const RAISED = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
const superscript = (n) => String(n).replace(/-/, "\u207b").replace(/\d/g, (digit) => RAISED[digit]);
const grouped = (value, decimals) => {
  const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
  const text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
  return (value < 0 && /[1-9]/.test(text) ? "\u2212" : "") + text;
};
const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const numberText = (value, digits = 6) => {
  if (value === null || !Number.isFinite(value)) return "\u2013";
  if (value === 0) return "0";
  const [mantissa, power] = value.toExponential(digits - 1).split("e").map(Number);
  if (power < digits && power >= -4) return trimmed(grouped(value, Math.max(0, digits - 1 - power)));
  return `${trimmed(grouped(mantissa, digits - 1))}\u00d710${superscript(power)}`;
};
const placesText = (first, last) =>
  numberText(first, 12) + (first === last ? "" : `\u2013${numberText(last, 12)}`);
const roundStep = (wanted) => {
  const power = 10 ** Math.floor(Math.log10(wanted));
  return power * ([1, 2, 5].find((factor) => factor * power >= wanted * 0.999) || 10);
};
const ticksOf = ([low, high], wanted, whole) => {
  const step = Math.max(roundStep((high - low) / wanted), whole ? 1 : 0);
  const begin = Math.ceil(low / step - 1e-9), end = Math.floor(high / step + 1e-9);
  if (!(end - begin < 100)) return [];
  const largest = Math.max(Math.abs(begin), Math.abs(end)) * step;
  const exponent = largest > 0 ? Math.floor(Math.log10(largest * 1.0000001)) : 0;
  const decimals = -Math.floor(Math.log10(step) + 1e-9);
  const text = (at) => {
    if (exponent < 6 && exponent >= -4) return grouped(at, Math.max(0, decimals));
    if (at === 0) return "0";
    return `${trimmed(grouped(at / 10 ** exponent, Math.max(0, exponent + decimals)))}\u00d710${superscript(exponent)}`;
  };
  return Array.from({ length: end - begin + 1 }, (_, i) => (begin + i) * step).map((at) => ({ at, text: text(at) }));
};

// One series: arrays first, last, mean, low, high of equal length.
const seriesOf = (data) => data.series.map((one) => {
  const place = data.places[one.place];
  const last = place.last || place.first;
  const { name, mean, low = mean, high = mean } = one;
  return { name, first: place.first, last, mean, low, high, at: place.first.map((x, i) => (x + last[i]) / 2) };
});
// Index of the element of the ascending array nearest to x.
const nearest = (array, x) => {
  let low = 0, high = array.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (array[middle] <= x) low = middle; else high = middle;
  }
  return Math.abs(array[high] - x) < Math.abs(array[low] - x) ? high : low;
};
const medianGap = (at) => {
  const distances = at.slice(1).map((x, i) => x - at[i]).sort((a, b) => a - b);
  return distances.length ? distances[distances.length >> 1] : 0;
};

class Chart {
  constructor(figure, plot, data) {
    Object.assign(this, { figure, plot, data, kind: figure.dataset.kind });
    this.svg = plot.querySelector("svg");
    this.shapes = this.svg.querySelector(".shapes");
    this.original = this.shapes.innerHTML;
    this.axes = [".y-axis", ".x-axis", ".marks"].map((name) => this.svg.querySelector(name)).filter(Boolean)
      .map((group) => ({ group, html: group.innerHTML }));
    this.leftWidth = plot.style.paddingLeft;
    this.key = `zoom ${figure.dataset.chart}`;
    if (this.kind === "histogram") {
      this.centers = data.bins.map(([low, high]) => (low + high) / 2);
      this.full = [data.bins[0][0], data.bins[data.bins.length - 1][1]];
    } else {
      this.series = seriesOf(data);
      this.piles = data.stacked ? this.pile() : null;
      this.gaps = this.series.map((one) => medianGap(one.at));
      this.centers = [...new Set(this.series.flatMap((one) => one.at))].sort((a, b) => a - b);
      const low = Math.min(...this.series.map((one) => one.first.length ? one.first[0] : Infinity));
      const high = Math.max(...this.series.map((one) => one.last.length ? one.last[one.last.length - 1] : -Infinity));
      const margin = this.kind === "strip" ? 1 : 0;
      this.full = low < high + margin ? [low, high + margin] : [low - 0.5, low + 0.5];
    }
    this.x = this.full;
    this.tooltip = html("div", "tooltip");
    this.tooltip.setAttribute("role", "status");
    plot.append(this.tooltip);
    this.overlay = make("g", { class: "overlay" });
    this.svg.append(this.overlay);
  }

  get zooms() { return this.kind !== "histogram"; }
  share(x) { return (x - this.x[0]) / (this.x[1] - this.x[0]); }
  percent(x) { return `${(100 * this.share(x)).toFixed(3)}%`; }
  placeAt(event) {
    const box = this.svg.getBoundingClientRect();
    return this.x[0] + clamp((event.clientX - box.left) / box.width, 0, 1) * (this.x[1] - this.x[0]);
  }

  // The value of a series at x, as an index; -1 in a gap.
  indexAt(i, x) {
    const { at, first, last } = this.series[i];
    if (!at.length) return -1;
    const k = nearest(at, x);
    return (x >= first[k] && x <= last[k]) || Math.abs(at[k] - x) <= Math.max(this.gaps[i], 1e-12) ? k : -1;
  }
  pile() {
    const longest = this.series.reduce((a, b) => (b.at.length > a.at.length ? b : a));
    const below = longest.at.map(() => 0);
    return this.series.map((one) => {
      const low = below.slice();
      longest.at.forEach((x, k) => {
        let i = one.at.length ? nearest(one.at, x) : -1;
        while (i >= 0 && one.first[i] > x) --i;
        below[k] += i < 0 ? 0 : one.mean[i];
      });
      return { ...longest, low, mean: below.slice(), high: below.slice() };
    });
  }

  // ---- what is under the cursor
  show(x) {
    this.cursor = x;
    if (this.kind === "histogram") this.showBin(x); else this.showSeries(x);
    const left = this.share(x) < 0.5;
    const offset = parseFloat(this.plot.style.paddingLeft), inner = this.svg.getBoundingClientRect().width;
    const at = offset + this.share(x) * inner;
    this.tooltip.style.left = this.tooltip.style.right = "";
    const room = this.plot.clientWidth - this.tooltip.offsetWidth - 2;
    this.tooltip.style.left = `${clamp(left ? at + 12 : at - this.tooltip.offsetWidth - 12, 2, Math.max(2, room))}px`;
    this.tooltip.style.top = `${this.data.plot_top + 4}px`;
  }
  showBin(x) {
    const i = nearest(this.centers, x), [low, high, count] = this.data.bins[i];
    const range = `${numberText(low)}\u2013${numberText(high)} ${this.data.unit}`.trim();
    this.tooltip.replaceChildren(html("b", "", range),
      html("div", "", `${numberText(count, 12)} ${count === 1 ? "value" : "values"}`));
    this.drawCursor(this.centers[i], []);
  }
  showSeries(x) {
    const found = this.series.map((_, i) => this.indexAt(i, x));
    const known = found.flatMap((k, i) => (k < 0 ? [] : [{ i, k, far: Math.abs(this.series[i].at[k] - x) }]));
    if (!known.length) { this.hide(); this.cursor = x; return; }
    const { i, k } = known.reduce((a, b) => (b.far < a.far ? b : a));
    const first = this.series[i].first[k], last = this.series[i].last[k];
    const places = placesText(first, last);
    const steps = first === last ? "step" : "steps";
    const title = this.data.x_title === "step" ? `${steps} ${places}` : `${places} ${this.data.x_title}`;
    const table = html("table");
    for (const one of known.slice(0, 24)) table.append(this.rowOf(one.i, one.k, first, last));
    const more = known.length - 24;
    const rest = more > 0 ? [html("div", "range", `and ${more} more, in the table of numbers`)] : [];
    this.tooltip.replaceChildren(html("b", "", title), table, ...rest, ...this.marksNear(first, last));
    this.drawCursor(this.series[i].at[k], this.kind === "strip" ? [] : known);
  }
  rowOf(i, k, first, last) {
    const one = this.series[i], row = html("tr"), name = html("td"), value = html("td");
    const swatch = this.figure.querySelectorAll(".legend li .swatch")[i];
    if (swatch) name.append(swatch.cloneNode(true));
    name.append(one.name);
    if (one.first[k] !== first || one.last[k] !== last) {
      name.append(html("span", "range", ` (${placesText(one.first[k], one.last[k])})`));
    }
    const unit = this.data.unit ? ` ${this.data.unit}` : "";
    value.append(html("b", "", numberText(one.mean[k]) + unit));
    if (one.low[k] !== one.high[k])
      value.append(html("span", "range", ` ${numberText(one.low[k])}\u2013${numberText(one.high[k])}`));
    row.append(name, value);
    return row;
  }
  marksNear(first, last) {
    const reach = (this.x[1] - this.x[0]) / 100;
    return this.data.marks.filter(([x]) => x >= first - reach && x <= last + reach).slice(0, 5)
      .map(([, text]) => html("div", "range", text));
  }
  drawCursor(x, known) {
    const { plot_top: top, plot_height: height } = this.data;
    const cursor = this.percent(clamp(x, ...this.x));
    const nodes = [make("line", { class: "cursor", x1: cursor, x2: cursor, y1: top, y2: top + height })];
    for (const { i, k } of known) {
      const pile = this.piles && this.piles[i], at = this.series[i].at[k];
      const value = pile ? pile.mean[nearest(pile.at, at)] : this.series[i].mean[k];
      const y = this.yRange ? this.yOf(value) : null;
      if (y !== null && y >= 0 && y <= height && at >= this.x[0] && at <= this.x[1])
        nodes.push(make("circle", { class: `dot c${i % 7}`, r: 4, cx: this.percent(at), cy: top + y }));
    }
    this.overlay.replaceChildren(...nodes);
  }
  yOf(value) { return this.data.plot_height * (this.yRange[1] - value) / (this.yRange[1] - this.yRange[0]); }
  hide() {
    this.cursor = null;
    this.tooltip.replaceChildren();
    this.overlay.replaceChildren();
  }
  // To the by-th place from here; the visible part follows.
  moveCursor(by) {
    const { centers } = this, [low, high] = this.x;
    if (!centers.length) return;
    let at = this.cursor == null ? -1 : nearest(centers, this.cursor) + by;
    if (this.cursor == null && by > 0) at = Number.isFinite(by) ? nearest(centers, low) : by;
    if (this.cursor == null && by < 0) at = Number.isFinite(by) ? nearest(centers, high) : by;
    const x = centers[clamp(at, 0, centers.length - 1)];
    if (x < low || x > high) this.zoom([x - (high - low) / 2, x + (high - low) / 2]);
    this.show(x);
  }

  // ---- zoom
  zoom(x) {
    const whole = this.full[1] - this.full[0];
    const size = clamp(x[1] - x[0], Math.max(whole / 1e6, this.data.whole ? Math.min(2, whole) : 0), whole);
    const low = clamp(x[0], this.full[0], this.full[1] - size);
    this.x = [low, low + size];
    const out = size >= whole * 0.9999;
    if (out) this.restore(); else this.redraw();
    stored.set("sessionStorage", this.key, out ? "" : JSON.stringify(this.x));
    const visible = this.cursor != null && this.cursor >= low && this.cursor <= low + size;
    if (visible) this.show(this.cursor); else this.hide();
  }
  // After a change of the width: fewer or more labels, and the values in their place.
  fit() {
    if (this.x !== this.full) this.drawPlaces(this.data.plot_top, this.data.plot_height);
    if (this.cursor != null) this.show(this.cursor);
  }
  zoomBy(factor, around = this.cursor ?? (this.x[0] + this.x[1]) / 2) {
    if (this.zooms) this.zoom([around - (around - this.x[0]) * factor, around + (this.x[1] - around) * factor]);
  }
  restore() {
    this.x = this.full;
    this.shapes.innerHTML = this.original;
    this.axes.forEach(({ group, html: text }) => { group.innerHTML = text; });
    this.plot.style.paddingLeft = this.leftWidth;
    if (this.kind === "line") this.findRange();
  }
  findRange() {
    const drawn = this.piles || this.series;
    let low = Infinity, high = -Infinity;
    for (const one of drawn)
      for (let k = 0; k < one.at.length; ++k)
        if (one.last[k] >= this.x[0] && one.first[k] <= this.x[1]) {
          low = Math.min(low, one.low[k]);
          high = Math.max(high, one.high[k]);
        }
    this.yRange = padded(low, high, this.data.from_zero, this.data.top);
  }
  redraw() {
    const { plot_top: top, plot_height: height } = this.data;
    if (this.kind === "line") {
      this.findRange();
      this.shapes.innerHTML = this.linesText();
      const labels = ticksOf(this.yRange, 5, false);
      this.svg.querySelector(".y-axis").replaceChildren(...labels.flatMap(({ at, text }) => {
        const y = top + this.yOf(at);
        return [make("line", { class: "grid", x1: 0, x2: "100%", y1: y, y2: y }),
          make("text", { class: "label", x: 0, y: y + 4, dx: -8, "text-anchor": "end" }, text)];
      }));
      const widest = Math.max(0, ...labels.map(({ text }) => text.length));
      this.plot.style.paddingLeft = `${Math.max(parseFloat(this.leftWidth), 6.8 * widest + 12)}px`;
    } else {
      this.shapes.innerHTML = this.cellsText();
    }
    this.drawPlaces(top, height);
  }
  drawPlaces(top, height) {
    const group = this.svg.querySelector(".x-axis"), bottom = top + height;
    const width = this.svg.getBoundingClientRect().width || 300;
    let labels = [];
    for (let wanted = 8; wanted >= 1; --wanted) {
      labels = ticksOf(this.x, wanted, this.data.whole);
      if (labels.length * (6.8 * Math.max(0, ...labels.map(({ text }) => text.length)) + 16) <= width) break;
    }
    const nodes = labels.flatMap(({ at, text }) => [
      make("line", { class: "base", x1: this.percent(at), x2: this.percent(at), y1: bottom, y2: bottom + 4 }),
      make("text", { class: "label", x: this.percent(at), y: bottom + 18, "text-anchor": "middle" }, text)]);
    group.replaceChildren(make("line", { class: "base", x1: 0, x2: "100%", y1: bottom, y2: bottom }), ...nodes,
      make("text", { class: "label axis-title", x: "100%", y: bottom + 32, "text-anchor": "end" }, this.data.x_title));
    const marks = this.svg.querySelector(".marks");
    if (!marks) return;
    const named = this.data.marks.length <= 4;
    marks.replaceChildren(...this.data.marks.flatMap(([x, text], i) => {
      const share = this.share(x), late = share > 0.55;
      if (!(share >= 0 && share <= 1)) return [];
      const node = make("g", {}), at = this.percent(x);
      const begin = named ? 2 + 15 * i : top, place = { dx: late ? -5 : 5, "text-anchor": late ? "end" : "start" };
      node.append(make("title", {}, text), make("line", { class: "mark", x1: at, x2: at, y1: begin, y2: bottom }));
      if (named) node.append(make("text", { class: "label", x: at, y: 11 + 15 * i, ...place }, text));
      return [node];
    }));
  }
  linesText() {
    const at = (x) => (WIDTH * this.share(x)).toFixed(1), y = (value) => this.yOf(value).toFixed(1);
    return (this.piles || this.series).map((one, i) => {
      let line = "", band = "", k = 0;
      const [begin, end] = visibleRange(one, this.x);
      while (k = Math.max(k, begin), k < end) {
        const from = k;
        do { ++k; } while (k < end && one.at[k] - one.at[k - 1] <= 5 * this.gaps[this.piles ? 0 : i]);
        const run = Array.from({ length: k - from }, (_, j) => from + j);
        line += `M${run.map((j) => `${at(one.at[j])} ${y(one.mean[j])}`).join("L")}${run.length === 1 ? "h0" : ""}`;
        band += `M${run.map((j) => `${at(one.at[j])} ${y(one.high[j])}`).join("L")}L${
          run.reverse().map((j) => `${at(one.at[j])} ${y(one.low[j])}`).join("L")}z`;
      }
      const classes = `c${i % 7} d${i % 5}`;
      return `<path class="band ${classes}" d="${band}"/><path class="line ${classes}" d="${line}"/>`;
    }).reverse().join("");
  }
  cellsText() {
    const all = this.series.flatMap((one) => one.mean), low = Math.min(...all), high = Math.max(...all);
    const h = this.data.row_height;
    return this.series.map((one, row) => {
      const [begin, end] = visibleRange(one, this.x);
      let text = "";
      for (let k = begin; k < end; ++k) {
        const share = high > low ? (one.mean[k] - low) / (high - low) : 0.5;
        const joined = k + 1 < one.first.length && one.first[k + 1] - one.last[k] <= 1;
        const x1 = WIDTH * this.share(one.first[k]);
        const x2 = WIDTH * this.share(joined ? one.first[k + 1] : one.last[k] + 1);
        const shade = Math.min(7, Math.floor(8 * share)), width = Math.max(0.1, x2 - x1).toFixed(1);
        text += `<rect class="shade h${shade}" x="${x1.toFixed(1)}" y="${row * h}" `;
        text += `width="${width}" height="${h - 2}"/>`;
      }
      return text;
    }).join("");
  }
}

// As padded() of axis.cpp.
const padded = (low, high, fromZero, top) => {
  if (!(low <= high)) return [0, 1];
  if (fromZero) { low = Math.min(low, 0); high = Math.max(high, 0); }
  const size = Math.max(Math.abs(low), Math.abs(high));
  const margin = size === 0 ? 1 : high - low < size * 1e-5 ? size * 0.05 : 0.05 * (high - low);
  const bottom = low >= 0 && (fromZero || low < margin) ? 0 : low - margin;
  const range = [bottom, top ?? (high <= 0 && fromZero && low < 0 ? 0 : high + margin)];
  return range[0] < range[1] ? range : [range[1] - 1, range[1]];
};
// The columns that touch the range and one more at each side, so that lines reach its edges.
const visibleRange = (one, [low, high]) => {
  let begin = 0, end = one.at.length;
  while (begin < end && one.last[begin] < low) ++begin;
  while (end > begin && one.first[end - 1] > high) --end;
  return [Math.max(0, begin - 1), Math.min(one.at.length, end + 1)];
};

const listenToKeys = (chart) => chart.plot.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 10 : 1;
  const act = {
    ArrowLeft: () => chart.moveCursor(-far), ArrowRight: () => chart.moveCursor(far),
    Home: () => chart.moveCursor(-Infinity), End: () => chart.moveCursor(Infinity),
    "+": () => chart.zoomBy(0.5), "=": () => chart.zoomBy(0.5), "-": () => chart.zoomBy(2),
    0: () => chart.zooms && chart.zoom(chart.full), Escape: () => { chart.hide(); chart.plot.blur(); },
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

const listenToPointer = (chart) => {
  let began = null;
  const { plot } = chart;
  plot.addEventListener("pointermove", (event) => {
    if (!event.isPrimary) return;
    const x = chart.placeAt(event);
    chart.show(x);
    if (began === null || x === began) return;
    const [low, high] = [Math.min(began, x), Math.max(began, x)];
    chart.overlay.append(make("rect", { class: "selection", x: chart.percent(low), y: chart.data.plot_top,
      width: `${100 * (high - low) / (chart.x[1] - chart.x[0])}%`, height: chart.data.plot_height }));
  });
  plot.addEventListener("pointerdown", (event) => {
    chart.show(chart.placeAt(event));
    if (event.pointerType === "touch" || event.button !== 0 || !chart.zooms) return;  // a finger moves the cursor
    began = chart.placeAt(event);
    plot.setPointerCapture(event.pointerId);
    event.preventDefault();  // no selection of text
    plot.focus({ preventScroll: true });
  });
  plot.addEventListener("pointerup", (event) => {
    if (began === null) return;
    const x = chart.placeAt(event), from = began;
    began = null;
    const far = Math.abs(x - from) / (chart.x[1] - chart.x[0]) * chart.svg.getBoundingClientRect().width;
    if (far > 6) chart.zoom([Math.min(x, from), Math.max(x, from)]); else chart.show(x);
  });
  plot.addEventListener("pointercancel", () => { began = null; });
  plot.addEventListener("pointerleave", () => { if (began === null) chart.hide(); });
  plot.addEventListener("dblclick", () => chart.zooms && chart.zoom(chart.full));
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !chart.zooms) return;
    event.preventDefault();
    chart.zoomBy(event.deltaY < 0 ? 0.8 : 1.25, chart.placeAt(event));
  }, { passive: false });
  plot.addEventListener("blur", () => chart.hide());
};

const addButtons = (chart) => {
  const tools = html("span", "chart-tools");
  tools.append(html("span", "hint", "drag to zoom, arrow keys for values"));
  const actions = [["\u2212", "Zoom out", () => chart.zoomBy(2)], ["+", "Zoom in", () => chart.zoomBy(0.5)],
    ["reset", "Show all (double click or 0)", () => chart.zoom(chart.full)]];
  for (const [text, label, act] of actions) {
    const button = html("button", "", text);
    button.type = "button";
    button.setAttribute("aria-label", label);
    button.title = label;
    button.addEventListener("click", act);
    tools.append(button);
  }
  chart.figure.querySelector("figcaption").append(tools);
};

const addChart = (figure) => {
  const plot = figure.querySelector(".plot");
  const embedded = figure.querySelector('script[type="application/json"]');
  if (!plot || !embedded) return;
  const chart = new Chart(figure, plot, JSON.parse(embedded.textContent));
  listenToKeys(chart);
  listenToPointer(chart);
  new ResizeObserver(() => chart.fit()).observe(plot);
  if (!chart.zooms) return;
  addButtons(chart);
  if (chart.kind === "line") chart.findRange();
  const before = stored.get("sessionStorage", chart.key);
  if (before && root.dataset.reloadS) chart.zoom(JSON.parse(before));
};
