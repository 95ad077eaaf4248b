"""The page's look, light and dark, on screens, phones and paper, and the script that draws its plots."""

from __future__ import annotations

#: No request leaves the page, whatever a script in it tries.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"

#: Variables are all a scheme is made of; plots read them too. Contrast: text at least 4.5, lines 3.
LIGHT = """
  color-scheme: light;
  --page: #f6f5f2; --panel: #ffffff; --ink: #1c2430; --soft: #566072; --line: #d9d7d0; --grid: #e9e7e1;
  --accent: #1f5fa8; --mark: #fdf3d3; --gain: #1a6b3c; --loss: #a8321f;
  --plain: #6d7a8d; --heat0: #eef4fb; --heat1: #8fbcea;
  --part0: #1f6fb5; --part1: #b8651b; --part2: #157a5b; --part3: #9b3f8e; --part4: #7d8694;
  --alone: #6b7480; --pooled: #1c2430; --up: #355070; --down: #7b8fa8;
  --att0: #cfe0f2; --att1: #f1efea; --att2: #f0c568; --att3: #e58d7d;
  --s0: #1f6fb5; --s1: #c4500c; --s2: #157a5b; --s3: #9b3f8e; --s4: #8a6a00; --s5: #c0354f; --s6: #5b57b8;
  --s7: #4d6470;
"""
DARK = """
  color-scheme: dark;
  --page: #12151a; --panel: #1a1e25; --ink: #e7e9ed; --soft: #a7b0be; --line: #363d49; --grid: #2a303a;
  --accent: #7fb4ee; --mark: #3a3316; --gain: #74d09a; --loss: #f19a86;
  --plain: #93a0b4; --heat0: #222a35; --heat1: #2a64a6;
  --part0: #5aa5e6; --part1: #e59a4f; --part2: #4cc39a; --part3: #d68ac9; --part4: #8e98a8;
  --alone: #98a2b0; --pooled: #e7e9ed; --up: #c3d2e4; --down: #6f88a8;
  --att0: #2f4a69; --att1: #232830; --att2: #7d5c10; --att3: #8c3b2e;
  --s0: #5aa5e6; --s1: #f0894a; --s2: #4cc39a; --s3: #d68ac9; --s4: #d3b13c; --s5: #ef7f94; --s6: #a5a1f2;
  --s7: #9fb4bf;
"""

STYLE = (
    f"""
:root {{{LIGHT}}}
@media (prefers-color-scheme: dark) {{ :root:not(.printing) {{{DARK}}} }}
"""
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif; }
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 44px; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 6px; text-wrap: balance;
  overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; letter-spacing: -.01em; margin: 0 0 4px; }
h3 { font-size: 1rem; margin: 24px 0 2px; overflow-wrap: anywhere; }
p { margin: 0 0 12px; max-width: 75ch; }
a { color: var(--accent); }
.soft, figcaption { color: var(--soft); }
.brand { display: flex; align-items: center; gap: 9px; margin-bottom: 22px; color: var(--soft);
  font-weight: 600; }
.brand svg { width: 26px; height: 26px; color: var(--accent); }
.finding { font-size: 1.15rem; margin: 18px 0 20px; max-width: 88ch; text-wrap: pretty;
  overflow-wrap: anywhere; }
nav { border-block: 1px solid var(--line); margin: 26px 0 0; padding: 9px 0; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 22px; list-style: none; margin: 0; padding: 0; }
nav a { text-decoration: none; } nav a:hover { text-decoration: underline; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 12px; padding: 24px;
  margin: 22px 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin: 0;
  padding: 0; }
.cards div { background: var(--panel); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 16px; }
.cards dt { color: var(--soft); font-size: .86rem; overflow-wrap: anywhere; }
.cards dd { margin: 0; }
.cards .value { font-size: 1.75rem; font-weight: 650; letter-spacing: -.02em; line-height: 1.25; }
.cards .note { color: var(--soft); font-size: .84rem; }
.swatch { display: inline-block; width: .7em; height: .7em; border-radius: 3px; margin-right: .45em; }
.value, td, time { font-variant-numeric: tabular-nums; }
.scroll { overflow: auto; max-height: 640px; margin: 6px 0 0; }
.scroll:focus-visible, a:focus-visible, summary:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: 7px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { padding-left: 4px; }
th:last-child, td:last-child { padding-right: 4px; }
thead th { position: sticky; top: 0; background: var(--panel); color: var(--soft); font-weight: 600;
  font-size: .84rem; }
thead th[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
tbody th { text-align: left; font-weight: 550; }
.long { display: inline-block; min-width: 22ch; white-space: normal; overflow-wrap: anywhere; }
th:first-child, .words { text-align: left; }
td.words { white-space: normal; overflow-wrap: break-word; }
tbody tr:last-child > * { border-bottom: 0; }
.total > * { border-top: 2px solid var(--line); font-weight: 600; }
.std { color: var(--soft); font-size: .92em; }
details { margin: 14px 0 0; } summary { cursor: pointer; color: var(--accent); font-size: .92rem; }
.joining { margin: 8px 0 0; padding-left: 1.2em; max-width: 88ch; overflow-wrap: anywhere; }
.key { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 2px 0 0; font-size: .88rem;
  color: var(--soft); }
.key .swatch { border: 1px solid var(--line); }
.marked > * { background: var(--mark); }
.gain { color: var(--gain); } .loss { color: var(--loss); } .even, .none { color: var(--soft); }
.notice { border-left: 4px solid var(--accent); background: var(--mark); padding: 10px 14px; margin: 14px 0 0;
  border-radius: 0 8px 8px 0; max-width: none; overflow-wrap: anywhere; }
.notice + .cards { margin-top: 16px; }
figure { margin: 18px 0 0; } figure + p { margin-top: 14px; }
figcaption { font-size: .88rem; max-width: 100ch; }
.title { display: block; color: var(--ink); font-weight: 600; overflow-wrap: anywhere; }
.plot { width: 100%; min-width: 0; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(225px, 1fr)); gap: 4px 22px; }
.grid figure { min-width: 0; }
.failed { color: var(--loss); }
dl.terms { display: grid; grid-template-columns: max-content 1fr; gap: 6px 18px; margin: 12px 0 0; }
dl.terms dt { font-weight: 600; } dl.terms dd { margin: 0; max-width: 75ch; }
footer { color: var(--soft); font-size: .88rem; padding-bottom: 44px; }
@media (max-width: 640px) {
  main, header, footer { padding-inline: 14px; } header { padding-top: 24px; } section { padding: 16px; }
  h1 { font-size: 1.55rem; } dl.terms { grid-template-columns: 1fr; gap: 0; }
  dl.terms dd { margin-bottom: 10px; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
.printing body { width: 670px; margin: 0 auto; background: none; font-size: 13px; }
.printing nav, .printing .modebar { display: none; }
.printing :is(header, main, footer, section) { padding: 0; border: 0; }
.printing .scroll { overflow: visible; max-height: none; }
.printing table { font-size: 11px; } .printing thead th { position: static; font-size: 10px; }
.printing :is(th, td) { padding: 4px 5px; white-space: normal; }
.printing :is(figure, .cards, tr) { break-inside: avoid; }
.printing :is(h2, h3, figcaption) { break-after: avoid; }
@page { margin: 14mm; }
"""
)


SCRIPT = """
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dashes = ["solid", "dash", "dot", "dashdot"];

  const WIDE = 620;  // pixels from which lines are named at their ends rather than in a legend

  const steps = n => Array.from({length: n}, (_, i) => variable("--att" + i))
    .flatMap((colour, i) => [[i / n, colour], [(i + 1) / n, colour]]);

  const paint = (trace, room) => {
    const {series, dash} = trace.meta;
    const colour = variable("--" + series);
    const whiskers = trace.error_y && {error_y: {...trace.error_y, color: variable("--ink")}};
    const styles = {
      scatter: () => ({
        line: {width: 2.5, color: colour, dash: dashes[dash % 4], ...trace.line},
        marker: {color: colour, line: {width: 1.5, color: variable("--panel")}, ...trace.marker},
        fillcolor: colour + "33",
        ...(whiskers && {error_y: {...trace.error_y, color: colour}}),
      }),
      bar: () => ({
        marker: {color: colour, pattern: {shape: ["", "/", "x", "."][dash % 4]}},
        outsidetextfont: {color: variable("--soft"), size: 11}, ...whiskers,
        ...(room < WIDE && trace.orientation !== "h" && {textposition: "none"}),  // too narrow for numbers
      }),
      box: () => ({marker: {color: colour, size: 4}, line: {color: colour}}),
      heatmap: () => ({
        colorscale: series === "attendance" ? steps(4) : [[0, variable("--heat0")], [1, variable("--heat1")]],
        textfont: {color: variable("--ink")},
      }),
    };
    return {...trace, ...styles[trace.type]()};
  };

  const nameEnds = ends => {
    const longest = Math.max(...ends.map(([, name]) => name.replace(/&[^;]+;/g, "x").length));
    return {
      showlegend: false, margin: {l: 40, r: 14 + 7 * longest, t: 32, b: 24},
      annotations: ends.map(([series, name, y, shift]) => ({
        xref: "paper", x: 1, xanchor: "left", xshift: 4, y, yshift: shift, yanchor: "middle", text: name,
        showarrow: false, font: {color: variable("--" + series), size: 12},
      })),
    };
  };

  const axis = given => ({
    gridcolor: variable("--grid"), linecolor: variable("--line"), zerolinecolor: variable("--line"),
    automargin: true, ...given,
  });

  let printing = false;
  const draw = id => {
    const {data, layout, height, tools, ends} = figures[id];
    const room = document.getElementById(id).clientWidth;
    const ink = variable("--ink"), panel = variable("--panel");
    const style = {
      height, width: printing ? room : undefined,
      margin: {l: 40, r: 12, t: tools ? 32 : 12, b: 24}, paper_bgcolor: panel, plot_bgcolor: panel,
      font: {color: variable("--soft"), family: getComputedStyle(document.body).fontFamily, size: 12.5},
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal",
        font: {color: ink}},
      hoverlabel: {bgcolor: panel, bordercolor: variable("--line"), font: {color: ink}, align: "left"},
      ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      ...(ends.length && room >= WIDE ? nameEnds(ends) : {}),
    };
    const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];  // none that sends the data anywhere
    const config = {responsive: true, displaylogo: false, displayModeBar: tools && room >= WIDE && "hover",
      modeBarButtons: buttons};
    return Plotly.react(id, data.map(trace => paint(trace, room)), style, config);
  };

  const drawAll = () => Object.keys(figures).forEach(id => {
    const fail = error => {
      const place = document.getElementById(id);
      place.classList.add("failed");
      place.textContent = "This plot could not be drawn: " + error.message;
    };
    try { draw(id).catch(fail); } catch (error) { fail(error); }
  });

  const print = on => {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    drawAll();
    if (!on) Object.keys(figures).forEach(id => Plotly.Plots.resize(id));  // back to the screen's width
  };
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
"""
