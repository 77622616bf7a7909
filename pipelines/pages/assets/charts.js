// Charts of the pages, drawn by Observable Plot from the records in #report-data. Each record is a
// row of the table below its chart.
"use strict";
(() => {
  const element = document.getElementById("report-data");
  if (!element) return;
  const data = JSON.parse(element.textContent);
  const COLOURS = [1, 2, 3, 4, 5, 6, 7].map((n) => `var(--c${n})`);
  const REST = "var(--c8)";
  const OTHERS = "other sources";

  const distinct = (rows, key) => [...new Set(rows.map((row) => row[key]))];
  const short = (text, most = 22) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const whole = (number) => Math.round(number).toLocaleString("en");
  const compact = (number) => Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);
  const percent = (share) => (share < 0.01 && share > 0 ? "<1%" : `${Math.round(share * 100)}%`);
  const exact = (share) => `${(share * 100).toFixed(share < 0.01 ? 3 : 1)}%`;

  // Colours of names, in the order of the data; one name has the same colour in every chart.
  const sources = data.source_names ?? [];
  const colourOf = (name) => (name === OTHERS ? REST : COLOURS[Math.max(sources.indexOf(name), 0) % COLOURS.length]);
  const colours = (names, range) => ({ domain: names, range: range ?? names.map(colourOf), legend: names.length > 1, tickFormat: (name) => short(String(name), 28) });
  const labels = (rows, key) => Math.min(170, 16 + 6.6 * Math.max(4, ...distinct(rows, key).map((name) => short(String(name)).length)));
  const tip = { fontSize: 12, pointerSize: 8, textPadding: 7 };

  const bars = (rows, key) => ({ marginLeft: labels(rows, key), marginRight: 44, height: 56 + 30 * distinct(rows, key).length });
  const edges = (rows) => rows.map((row) => ({ ...row, from: row.at_least, to: row.below ?? row.at_least + 0.25 }));

  const charts = {
    shares: (rows) => ({
      ...bars(rows, "measure"),
      x: { percent: true, label: "share, %", grid: true, domain: [0, 100] },
      y: { label: null, domain: distinct(rows, "measure") },
      color: colours(distinct(rows, "source")),
      marks: [
        Plot.barX(rows, { x: "share", y: "measure", fill: "source", insetRight: 1, title: (d) => `${d.source}: ${exact(d.share)} of ${d.measure}\n${whole(d.value)}`, tip }),
      ],
    }),
    outcomes: (rows) => ({
      ...bars(rows, "source"),
      x: { percent: true, label: "documents, %", grid: true, domain: [0, 100] },
      y: { label: null, domain: distinct(rows, "source"), tickFormat: (name) => short(name) },
      color: colours(["kept", "not selected", "empty", "rejected"], ["var(--c3)", "var(--c8)", "var(--c2)", "var(--c7)"]),
      marks: [
        Plot.barX(rows, { x: "share", y: "source", fill: "outcome", insetRight: 1, title: (d) => `${d.source}, ${d.outcome}: ${whole(d.documents)} documents, ${exact(d.share)}`, tip }),
      ],
    }),
    lengths: (rows) => ({
      x: { type: "log", base: 2, label: "tokens of a document →", tickFormat: (n) => (n < 1 ? "0" : compact(n)), ticks: 7 },
      y: { label: "↑ documents", grid: true, tickFormat: compact },
      color: colours(distinct(rows, "source")),
      marks: [
        Plot.rectY(rows.map((d) => ({ ...d, from: Math.max(d.at_least, 0.5), to: d.below })), { x1: "from", x2: "to", y: "documents", fill: "source", insetLeft: 0.5, insetRight: 0.5, title: (d) => `${d.source}: ${whole(d.documents)} documents\nof ${whole(d.at_least)} to ${whole(d.below - 1)} tokens\n${whole(d.tokens)} tokens together`, tip }),
        Plot.ruleY([0]),
      ],
    }),
    ratios: (rows) => ({
      x: { label: "bytes per token of a document →", ticks: 8 },
      y: { label: "↑ documents", grid: true, tickFormat: compact },
      color: colours(distinct(rows, "source")),
      marks: [
        Plot.rectY(edges(rows), { x1: "from", x2: "to", y: "documents", fill: "source", insetLeft: 0.5, insetRight: 0.5, title: (d) => `${d.source}: ${whole(d.documents)} documents\nof ${d.at_least.toFixed(2)} to ${d.to.toFixed(2)} bytes per token`, tip }),
        Plot.ruleY([0]),
      ],
    }),
    compression: (rows) => ({
      ...bars(rows, "source"),
      x: { label: "bytes per token →", grid: true, zero: true },
      y: { label: null, domain: distinct(rows, "source"), tickFormat: (name) => short(name) },
      marks: [
        Plot.barX(rows, { x: "bytes_per_token", y: "source", fill: (d) => colourOf(d.source) }),
        Plot.text(rows, { x: "bytes_per_token", y: "source", text: (d) => d.bytes_per_token.toFixed(2), textAnchor: "start", dx: 5, fill: "currentColor" }),
      ],
    }),
    curve: (rows) => ({
      height: 290,
      x: { type: "log", label: "ids of the vocabulary →", tickFormat: compact, ticks: 6 },
      y: { label: "↑ bytes per token", grid: true, nice: true },
      color: colours(distinct(rows, "source"), distinct(rows, "source").map((name) => (name === "all" ? "var(--ink)" : colourOf(name)))),
      marks: [
        Plot.line(rows, { x: "ids", y: "bytes_per_token", stroke: "source", strokeWidth: (d) => 2, curve: "monotone-x" }),
        Plot.dot(rows, { x: "ids", y: "bytes_per_token", fill: "source", r: 2.5, title: (d) => `${d.source}: ${d.bytes_per_token.toFixed(3)} bytes per token\nwith ${whole(d.ids)} ids`, tip }),
      ],
    }),
    ranks: (rows) => ({
      height: 290,
      x: { type: "log", label: "rank of the id →", tickFormat: compact, ticks: 5 },
      y: { type: "log", label: "↑ uses", grid: true, tickFormat: compact, ticks: 5 },
      marks: [
        Plot.line(rows, { x: "rank", y: "uses", stroke: "var(--c1)", strokeWidth: 2 }),
        Plot.tip(rows, Plot.pointer({ x: "rank", y: "uses", title: (d) => `${JSON.stringify(d.token)}\nrank ${whole(d.rank)}, used ${whole(d.uses)} times`, ...tip })),
        Plot.dot(rows, Plot.pointer({ x: "rank", y: "uses", fill: "var(--c1)", r: 4 })),
      ],
    }),
    coverage: (rows) => ({
      height: 290,
      x: { type: "log", label: "most frequent ids →", tickFormat: compact, ticks: 5 },
      y: { label: "↑ share of all tokens, %", percent: true, grid: true, domain: [0, 100] },
      marks: [
        Plot.areaY(rows, { x: "rank", y: "share", fill: "var(--c3)", fillOpacity: 0.16 }),
        Plot.line(rows, { x: "rank", y: "share", stroke: "var(--c3)", strokeWidth: 2 }),
        Plot.tip(rows, Plot.pointer({ x: "rank", y: "share", title: (d) => `the ${whole(d.rank)} most frequent ids\nare ${exact(d.share)} of all tokens`, ...tip })),
        Plot.dot(rows, Plot.pointer({ x: "rank", y: "share", fill: "var(--c3)", r: 4 })),
      ],
    }),
    scripts: (rows) => groups(rows.slice(0, 14)),
    kinds: groups,
    compared_scripts: pairs,
    compared_kinds: pairs,
    compared_lengths: (rows) => ({
      x: { type: "log", base: 2, label: "tokens of a document →", tickFormat: (n) => (n < 1 ? "0" : compact(n)), ticks: 7 },
      y: { label: "↑ share of documents, %", percent: true, grid: true },
      color: colours(distinct(rows, "source")),
      marks: [
        Plot.areaY(rows, { x: middle, y2: "share", fill: "source", fillOpacity: 0.15, curve: "step" }),
        Plot.line(rows, { x: middle, y: "share", stroke: "source", strokeWidth: 2, curve: "step" }),
        Plot.dot(rows, { x: middle, y: "share", fill: "source", r: 2.5, title: (d) => `${d.source}: ${exact(d.share)} of the documents\nhave ${whole(d.at_least)} to ${whole(d.below - 1)} tokens`, tip }),
      ],
    }),
    compared_ranks: (rows) => ({
      height: 290,
      x: { type: "log", label: "rank of the id →", tickFormat: compact, ticks: 5 },
      y: { type: "log", label: "↑ share of all tokens, %", percent: true, grid: true, ticks: 5, tickFormat: "~g" },
      color: colours(distinct(rows, "source")),
      marks: [
        Plot.line(rows, { x: "rank", y: "share", stroke: "source", strokeWidth: 2 }),
        Plot.tip(rows, Plot.pointer({ x: "rank", y: "share", title: (d) => `${d.source}\n${JSON.stringify(d.token)}\nrank ${whole(d.rank)}, ${exact(d.share)} of all tokens`, ...tip })),
      ],
    }),
    times: (rows) => ({
      ...bars(rows, "stage"),
      x: { label: "seconds →", grid: true, zero: true },
      y: { label: null, domain: distinct(rows, "stage") },
      marks: [
        Plot.barX(rows, { x: "seconds", y: "stage", fill: "var(--c1)" }),
        Plot.text(rows, { x: "seconds", y: "stage", text: (d) => `${d.seconds.toFixed(1)} s`, textAnchor: "start", dx: 5, fill: "currentColor" }),
      ],
    }),
  };

  function middle(row) {
    return Math.max(row.at_least, 0.5) * Math.SQRT2;
  }

  // The shares of each name in the ids and in the tokens.
  function groups(rows) {
    const known = rows.some((row) => row.share_of_tokens !== null);
    const series = [{ key: "share_of_ids", of: "ids", colour: "var(--c8)" }];
    if (known) series.push({ key: "share_of_tokens", of: "tokens", colour: "var(--c1)" });
    return dots(rows, series);
  }

  // The shares of each name in the ids of two tokenizers.
  function pairs(rows) {
    const [first, second] = sources;
    return dots(rows, [
      { key: "first", of: first, colour: colourOf(first) },
      { key: "second", of: second, colour: colourOf(second) },
    ]);
  }

  // A line for each name, with a dot for each series.
  function dots(rows, series) {
    const points = rows.flatMap((row) => series.map(({ key, of }) => ({ name: row.name, of, share: row[key] })));
    const [first, last] = [series[0].key, series.at(-1).key];
    return {
      marginLeft: labels(rows, "name"), marginRight: 24, height: 64 + 22 * rows.length,
      x: { percent: true, label: "share, %", grid: true, nice: true },
      y: { label: null, domain: distinct(rows, "name"), tickFormat: (name) => short(name) },
      color: colours(series.map(({ of }) => of), series.map(({ colour }) => colour)),
      marks: [
        Plot.link(rows, { x1: first, x2: last, y: "name", stroke: "var(--c8)", strokeWidth: 2, strokeOpacity: 0.6 }),
        Plot.dot(points, { x: "share", y: "name", fill: "of", r: 5, title: (d) => `${d.name}\n${exact(d.share)} of ${d.of}`, tip }),
      ],
    };
  }

  function draw(place) {
    const rows = data.charts[place.dataset.chart];
    const width = place.clientWidth;
    if (!rows || !width) return;
    const options = charts[place.dataset.chart](rows);
    const plot = Plot.plot({
      width, marginTop: 26, marginBottom: 38, height: 270, marginLeft: 48, ...options,
      style: { background: "transparent", color: "currentColor", fontFamily: "inherit", fontSize: "12px", overflow: "visible" },
    });
    plot.setAttribute("aria-hidden", "true");
    place.replaceChildren(plot);
  }

  const widths = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (widths.get(target) === target.clientWidth) continue;
      widths.set(target, target.clientWidth);
      draw(target);
    }
  });
  for (const place of document.querySelectorAll("[data-chart]")) observer.observe(place);
})();
