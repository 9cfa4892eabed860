"use strict";
const TICK_MS = 2000, SLOW_TICKS = 5;
const at = id => document.getElementById(id);
let experiment = null, ticks = 0, last = 0, answering = false; // an answer takes seconds: nothing waits for it

const ask = async (part) => {
  const answer = await fetch(`api/${part}` + (experiment === null ? "" : `?experiment=${encodeURIComponent(experiment)}`));
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
};

const ink = () => getComputedStyle(document.body).color;
const layout = (x, y, log) => ({
  autosize: true,
  margin: { l: 60, r: 10, t: 10, b: 45 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  font: { color: ink(), size: 12 }, legend: { orientation: "h", y: -0.2 }, uirevision: experiment,
  xaxis: { title: { text: x }, type: log ? "log" : "linear", gridcolor: "rgba(128,128,128,.25)" },
  yaxis: { title: { text: y }, gridcolor: "rgba(128,128,128,.25)" },
});
const draw = (id, traces, shape) => Plotly.react(at(id), traces, shape, { responsive: true, displayModeBar: false });

const table = (id, rows) => {
  const place = at(id);
  place.replaceChildren();
  if (!rows.length) return;
  const names = Object.keys(rows[0]);
  const isNumber = name => rows.every(row => row[name] === null || typeof row[name] === "number");
  const line = (values, tag) => {
    const row = place.appendChild(document.createElement("tr"));
    values.forEach((value, n) => {
      const cell = row.appendChild(document.createElement(tag));
      cell.textContent = value === null ? "-" : typeof value === "number" ? Number(value.toPrecision(4)).toLocaleString("en") : value;
      if (isNumber(names[n])) cell.className = "number";
    });
  };
  line(names, "th");
  rows.forEach(row => line(names.map(name => row[name]), "td"));
};

const showProgress = async () => {
  const state = await ask("progress");
  at("headline").textContent = state.headline;
  at("share").value = state.share;
  document.title = `${Math.round(100 * state.share)}% ${experiment}`;
  table("rows", state.rows);
  return state;
};

const showCurves = async () => {
  const seen = new Set();
  const traces = (await ask("curves")).map(run => {
    const first = !seen.has(run.label);
    seen.add(run.label);
    return {
      x: run.n_tokens, y: run.loss, name: run.label, legendgroup: run.label, showlegend: first, mode: "lines",
      line: { color: run.colour, width: run.state === "running" ? 2.5 : 1.2 },
      hovertemplate: `${run.label} ${run.size} ${run.budget} (${run.run_id.slice(0, 8)}, ${run.state})<br>%{x:,} tokens: %{y:.4f}<extra></extra>`,
    };
  });
  draw("curves", traces, layout("training tokens", "loss", false));
};

const showLosses = async () => {
  const traces = (await ask("losses")).map(method => ({
    x: method.flops, y: method.loss, text: method.words, name: method.label, mode: "markers",
    marker: { color: method.colour, size: 8 }, hovertemplate: "%{text}<br>%{x:.3g} FLOPs: %{y:.4f}<extra>%{fullData.name}</extra>",
  }));
  draw("losses", traces, layout("training FLOPs", "final loss", true));
};

const showAnswer = async () => {
  const answer = await ask("answer");
  const lines = answer.sentences.length ? answer.sentences : answer.reason ? [answer.reason] : [];
  at("answer").hidden = !lines.length;
  at("sentences").replaceChildren(...lines.map(text => Object.assign(document.createElement("li"), { textContent: text })));
  at("coming").hidden = !answer.forecasts.length;
  table("forecasts", answer.forecasts.map(row => ({ run: row.name, method: row.label, "forecast of its loss": row.predicted, low: row.low, high: row.high })));
};

const tick = async () => {
  try {
    await showProgress();
    if (ticks++ % SLOW_TICKS === 0) await Promise.all([showCurves(), showLosses()]);
    if (!answering) {
      answering = true;
      showAnswer().catch(() => {}).finally(() => { answering = false; });
    }
    last = Date.now();
    at("age").textContent = `as of ${new Date(last).toLocaleTimeString()}`;
  } catch (error) {
    at("age").textContent = last ? `no answer since ${new Date(last).toLocaleTimeString()}` : "no answer";
  }
  setTimeout(tick, TICK_MS);
};

const begin = async () => {
  const { names, chosen } = await ask("experiments");
  const select = at("experiment");
  names.forEach(name => select.add(new Option(name, name, false, name === chosen)));
  select.addEventListener("change", () => { experiment = select.value; ticks = 0; });
  experiment = select.value;
  tick();
};
begin();
