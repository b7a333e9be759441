// What the page shows. Each look at /state.json gives counts; rates are differences between two looks.
"use strict";

const PAUSE_MS = 2000;
const KEPT = 150;
const ROWS_MAX = 20;

const $ = (id) => document.getElementById(id);
const past = { read: [], write: [], names: [] };
let before = null;
let token = sessionStorage.getItem("weft.token") || "";

// make("td", {class: "number"}, "5"): text is text, never markup.
function make(tag, attributes, ...children) {
  const spaces = { svg: 1, rect: 1, polyline: 1, line: 1 };
  const node = spaces[tag] ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

const count = (number) => Math.round(number).toLocaleString("en-US").replaceAll(",", "\u202f");

const speed = (bytes) => `${size(bytes)}/s`;
const known = (value, text) => (value === undefined ? "" : text(value));

// Prometheus' text: [{name, labels, value}].
function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || "").matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    samples.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

// {key: value} of a metric, summed over what `key` makes the same.
function sums(samples, name, key) {
  const all = new Map();
  for (const sample of samples) {
    if (sample.name !== name) continue;
    const at = key(sample.labels);
    if (at !== null) all.set(at, (all.get(at) || 0) + sample.value);
  }
  return all;
}

// What is done a second since the look before; a count that became less began anew.
function rates(now, was, seconds) {
  const all = new Map();
  for (const [key, value] of now) {
    const less = was && was.has(key) ? was.get(key) : value;
    all.set(key, seconds > 0 && value >= less ? (value - less) / seconds : 0);
  }
  return all;
}

const total = (values) => [...values.values()].reduce((sum, value) => sum + value, 0);

function table(id, heads, rows, nothing) {
  const node = $(id);
  node.replaceChildren();
  if (rows.length === 0) { node.append(make("tbody", {}, make("tr", {}, make("td", {}, nothing)))); return; }
  const cell = (tag) => (value, column) => make(tag, heads[column].startsWith("#") ? { class: "number" } : {}, value);
  const head = make("tr", {}, ...heads.map((name, column) => cell("th")(name.replace("#", ""), column)));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell("td"))));
  node.append(make("thead", {}, head), make("tbody", {}, ...body));
}

function bar(part) {
  const svg = make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" });
  const width = Math.max(0, Math.min(100, part * 100));
  svg.append(make("rect", { width, height: 10, class: part > 0.9 ? "full" : "" }));
  return make("span", { class: "bar", role: "img", "aria-label": `${Math.round(part * 100)} % used` }, svg);
}

function plot(id, lines, unit) {
  const most = Math.max(1, ...lines.flatMap(({ values }) => values));
  const svg = make("svg", { viewBox: "0 0 100 50", preserveAspectRatio: "none" });
  for (const y of [0.5, 25, 49.5]) svg.append(make("line", { x1: 0, x2: 100, y1: y, y2: y }));
  for (const { values, style } of lines) {
    const first = KEPT - values.length;
    const at = (value, n) => `${((first + n) / (KEPT - 1)) * 100},${49.5 - (value / most) * 48}`;
    svg.append(make("polyline", { class: style, points: values.map(at).join(" ") }));
  }
  const key = make("p", { class: "key" }, `most ${unit(most)}/s in 5 min; now `);
  for (const { name, values, style } of lines) {
    key.append(make("b", { class: style }, name), ` ${unit(values[values.length - 1] || 0)}/s `);
  }
  const node = $(id);
  node.replaceChildren(svg);
  const old = node.parentNode.querySelector(".key");
  if (old) old.remove();
  node.parentNode.append(key);
}

function note(values, value) {
  values.push(value);
  if (values.length > KEPT) values.shift();
}

function slowness({ index, takes_us, others_take_us }) {
  const ms = (us) => `${(us / 1000).toFixed(1)} ms`;
  return `OST${index.toString(16).padStart(4, "0")} is slow: it takes ${ms(takes_us)} for a MiB that is written from here, the others ${ms(others_take_us)}`;
}

function health(state) {
  const node = $("health");
  const mounts = state.mounts;
  const well = mounts.length > 0 ? mounts.every((mount) => mount.healthy) : state.metrics.some((s) => s.name === "lustre_health_healthy" && s.value === 1);
  node.className = well ? "good" : "bad";
  node.textContent = well ? "\u2713 all is well" : "\u2717 something is not well";
  $("where").textContent = `${state.host}, weft ${state.version}, ${new Date(state.asked_ms).toLocaleTimeString()}`;
  const lines = mounts.map((mount) => make("p", { class: mount.healthy ? "" : "bad" }, `${mount.mountpoint}: ${mount.verdict}`));
  for (const mount of mounts) for (const slow of mount.slow || []) lines.push(make("p", { class: "bad" }, `${mount.mountpoint}: ${slowness(slow)}`));
  lines.push(...state.served.map((line) => make("p", {}, line)));
  $("verdicts").replaceChildren(...lines);
}

function targets(state, samples, perTarget, spaces) {
  const value = (name) => sums(samples, name, (labels) => labels.target || null);
  const up = value("weft_target_up");
  const [sessions, locks, recovery] = ["lustre_exports_total", "lustre_lock_count_total", "recovery_status"].map(value);
  const stages = { 0: "complete", 1: "", 3: "waits for clients", 4: "recovers" };
  const told = new Map();
  for (const mount of state.mounts) for (const target of mount.targets) told.set(target.name, target);
  const names = [...new Set([...up.keys(), ...told.keys()])].sort();
  const rows = names.map((name) => {
    const target = told.get(name) || {};
    const answers = up.has(name) ? up.get(name) === 1 : Boolean(target.space);
    const { all, left, unused } = spaces.get(name) || { all: 0, left: 0, unused: 0 };
    const stage = recovery.has(name) ? stages[recovery.get(name)] || "" : target.state ? target.state.recovery.stage : "";
    const problems = target.state ? target.state.problems.join(", ") : "";
    return [
      make("span", { class: answers ? "good" : "bad" }, answers ? "\u2713" : "\u2717"), name, target.server || "",
      all ? bar(1 - unused / all) : "", all ? `${size(all - unused)} of ${size(all)}` : "", all ? size(left) : "",
      known(sessions.get(name) ?? target.state?.sessions, count), known(locks.get(name), count),
      known(perTarget.read.get(name), speed), known(perTarget.write.get(name), speed), known(perTarget.names.get(name), (n) => `${count(n)}/s`),
      [stage === "inactive" ? "" : stage, problems, target.not_served || ""].filter(Boolean).join("; "),
    ];
  });
  table("targets", ["", "Target", "Server", "Used", "", "#Available", "#Sessions", "#Locks", "#Read", "#Written", "#Operations", "State"], rows, "no target is reached from here");
}

// The space of each target that says so: {name: {all, left, unused}}.
function spaces(state, samples) {
  const value = (name) => sums(samples, name, (labels) => labels.target || null);
  const [capacity, free, available] = ["lustre_capacity_kilobytes", "lustre_free_kilobytes", "lustre_available_kilobytes"].map(value);
  const found = new Map();
  for (const mount of state.mounts) {
    for (const { name, space } of mount.targets) {
      if (space) found.set(name, { all: space.bytes_total || 0, left: space.bytes_available || 0, unused: space.bytes_free || 0 });
    }
  }
  for (const [name, kilobytes] of capacity) {
    found.set(name, { all: kilobytes * 1024, left: (available.get(name) || 0) * 1024, unused: (free.get(name) || 0) * 1024 });
  }
  return found;
}

function pools(state, space) {
  const rows = state.pools.map(({ fsname, name, osts }) => {
    const known = osts.filter((ost) => space.has(ost)).map((ost) => space.get(ost));
    const sum = (part) => known.reduce((all, one) => all + one[part], 0);
    const [all, left, unused] = ["all", "left", "unused"].map(sum);
    const short = osts.map((ost) => ost.replace(`${fsname}-`, ""));
    return [
      `${fsname}.${name}`, all ? bar(1 - unused / all) : "", all ? `${size(all - unused)} of ${size(all)}` : "", all ? size(left) : "",
      `${short.slice(0, 8).join(" ")}${short.length > 8 ? ` and ${short.length - 8} more` : ""}`,
    ];
  });
  table("pools", ["Pool", "Used", "", "#Available", "OSTs"], rows, "there are no pools: lctl pool_new FSNAME.POOL makes one");
}

function owners(state) {
  const rows = state.owners.map(({ fsname, kind, id, name, inodes, bytes }) => [fsname, kind, name ? `${name} (${id})` : String(id), size(bytes), count(inodes)]);
  table("owners", ["File system", "Kind", "Owner", "#Space", "#Files"], rows, "nobody has files");
}

function ranked(values, most) {
  return [...values].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, most);
}

function jobs(samples, was, seconds) {
  const job = (labels) => labels.jobid || null;
  const rate = (name) => rates(sums(samples, name, job), was && sums(was, name, job), seconds);
  const [operations, read, written] = ["lustre_job_stats_total", "lustre_job_read_bytes_total", "lustre_job_write_bytes_total"].map(rate);
  const names = new Set([...operations.keys(), ...read.keys(), ...written.keys()]);
  const weight = new Map([...names].map((name) => [name, (operations.get(name) || 0) + ((read.get(name) || 0) + (written.get(name) || 0)) / 65536]));
  const rows = ranked(weight, ROWS_MAX).map(([name]) => [
    name, `${count(operations.get(name) || 0)}/s`, `${size(read.get(name) || 0)}/s`, `${size(written.get(name) || 0)}/s`,
  ]);
  table("jobs", ["Job", "#Operations", "#Read", "#Written"], rows, "no target counts jobs: lctl set_param jobid_var=... on the clients has them counted");
}

function operations(samples, was, seconds) {
  const of = (labels) => (labels.component === "mdt" ? labels.operation : null);
  const done = rates(sums(samples, "lustre_stats_total", of), was && sums(was, "lustre_stats_total", of), seconds);
  const took = rates(sums(samples, "lustre_stats_time_total", of), was && sums(was, "lustre_stats_time_total", of), seconds);
  const rows = ranked(done, ROWS_MAX).filter(([, rate]) => rate > 0).map(([name, rate]) => [
    name, `${count(rate)}/s`, `${count((took.get(name) || 0) / rate)} \u00b5s`,
  ]);
  table("operations", ["Operation", "#Rate", "#Mean time"], rows, "nothing is done just now");
}

function show(state) {
  // Several browsers are answered the same.
  if (before && state.asked_ms === before.asked_ms) return;
  const samples = parse(state.metrics);
  state = { ...state, metrics: samples };
  const seconds = before ? (state.asked_ms - before.asked_ms) / 1000 : 0;
  const was = before && before.samples;
  const target = (labels) => labels.target || null;
  const rate = (name, key) => rates(sums(samples, name, key), was && sums(was, name, key), seconds);
  const perTarget = {
    read: rate("lustre_read_bytes_total", target),
    write: rate("lustre_write_bytes_total", target),
    names: rate("lustre_stats_total", target),
  };
  const names = rate("lustre_stats_total", (labels) => (labels.component === "mdt" ? labels.target : null));
  if (seconds > 0) {
    note(past.read, total(perTarget.read));
    note(past.write, total(perTarget.write));
    note(past.names, total(names));
  }
  health(state);
  plot("plot-data", [{ name: "read", values: past.read, style: "one" }, { name: "written", values: past.write, style: "two" }], size);
  plot("plot-names", [{ name: "operations", values: past.names, style: "one" }], count);
  const space = spaces(state, samples);
  targets(state, samples, perTarget, space);
  pools(state, space);
  owners(state);
  jobs(samples, was, seconds);
  operations(samples, was, seconds);
  const more = state.clients_count > state.clients.length ? [[`and ${state.clients_count - state.clients.length} more`, ""]] : [];
  table("clients", ["Address", "#Mounts"], [...state.clients.map((client) => [client.nid, count(client.mounts)]), ...more], "no MDT is reached from here");
  const memory = sums(samples, "lustre_mem_used", (labels) => labels.pid);
  const memoryMost = sums(samples, "lustre_mem_used_max", (labels) => labels.pid);
  table("processes", ["Process", "#Memory", "#Most"], [...memory].map(([pid, bytes]) => [pid, size(bytes), size(memoryMost.get(pid) || 0)]), "no server process is here");
  const work = state.work.flatMap(({ name, text }) => [make("h3", {}, name), make("pre", {}, text)]);
  $("work").replaceChildren(...(work.length ? work : ["nothing lasts long just now"]));
  before = { asked_ms: state.asked_ms, samples };
}

function login(why) {
  $("login").hidden = false;
  $("main").hidden = true;
  $("refused").textContent = why;
  $("health").textContent = "";
}

async function look() {
  try {
    const answer = await fetch("state.json", { headers: { Authorization: `Bearer ${token}` } });
    if (answer.status === 401) {
      login(token ? "That is not the token." : "weft web has said in which file the token is.");
      return;
    }
    if (!answer.ok) throw new Error((await answer.text()).trim());
    $("login").hidden = true;
    $("main").hidden = false;
    show(await answer.json());
  } catch (error) {
    $("health").className = "bad";
    $("health").textContent = `\u2717 ${error.message}`;
  }
  setTimeout(look, PAUSE_MS);
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("weft.token", token);
  look();
});

// http://HOST:PORT/#TOKEN: what is behind # never leaves the browser.
if (location.hash.length > 1) {
  token = location.hash.slice(1);
  sessionStorage.setItem("weft.token", token);
  window.history.replaceState(null, "", location.pathname);
}
look();
