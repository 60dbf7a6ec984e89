// What the reader chose: ranks that pass the filter, the selected rank, the group. Pictures listen and redraw.

const KEYS = ["rank", "host", "group", "state"];

class View {
  constructor(job, verdict) {
    this.job = job;
    this.verdict = verdict;
    this.indexOf = new Map(Array.from(job.ranks, (rank, i) => [rank, i]));
    this.query = "";
    this.states = new Set();
    this.passing = new Uint8Array(job.ranks.length).fill(1);
    this.filtered = false;
    this.selected = -1;
    this.group = Math.max(0, job.groups.findIndex((group) => group.isDivergence));
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  changed() {
    this.listeners.forEach((listener) => listener());
  }

  filter(query, states) {
    this.query = query;
    this.states = states;
    const tests = testsOf(query, this.job);
    if (states.size) tests.push((i) => states.has(this.job.state[i]));
    this.filtered = tests.length > 0;
    for (let i = 0; i < this.passing.length; i++) this.passing[i] = tests.every((test) => test(i)) ? 1 : 0;
    this.changed();
  }

  select(index) {
    this.selected = index;
    this.changed();
  }

  choose(group) {
    this.group = group;
    this.changed();
  }

  /** Whether a claim about these ranks is to be shown in full. A claim about no rank always is. */
  concerns(ranks) {
    if (!this.filtered || !ranks.count) return true;
    return ranks.some((rank) => this.passing[this.indexOf.get(rank)] === 1);
  }

  hostOf(index) {
    return this.job.host[index] < 0 ? null : this.job.hosts[this.job.host[index]];
  }

  placeOf(index) {
    const host = this.hostOf(index);
    const local = this.job.local[index] < 0 ? null : `GPU ${this.job.local[index]}`;
    return [host === null ? null : short(host, 48), local].filter(Boolean).join(", ");
  }
}

/** Terms of one kind are alternatives; terms of different kinds must all hold. */
function testsOf(query, job) {
  const kinds = new Map();
  for (const term of query.trim().toLowerCase().split(/\s+/).filter(Boolean)) {
    const [kind, value] = kindOf(term);
    if (value) kinds.set(kind, [...(kinds.get(kind) ?? []), testOf(kind, value, job)]);
  }
  return [...kinds.values()].map((alternatives) => (i) => alternatives.some((test) => test(i)));
}

function kindOf(term) {
  const colon = term.indexOf(":");
  if (colon > 0 && KEYS.includes(term.slice(0, colon))) return [term.slice(0, colon), term.slice(colon + 1)];
  return [/^\d[\d,/-]*$/.test(term) ? "rank" : "name", term];
}

function testOf(kind, value, job) {
  if (kind === "rank") return rankTest(value, job);
  if (kind === "host") return hostTest(value, job);
  if (kind === "group") return groupTest(value, job);
  if (kind === "state") return (i) => STATES[job.state[i]].name.startsWith(value);
  const tests = [hostTest(value, job), groupTest(value, job)];
  return (i) => tests.some((test) => test(i));
}

function rankTest(value, job) {
  const runs = value.split(",").map((run) => {
    const [ends, step] = run.split("/");
    const [first, last] = ends.split("-").map(Number);
    return [first, last ?? first, Number(step) || 1];
  });
  return (i) => runs.some(([first, last, step]) => first <= job.ranks[i] && job.ranks[i] <= last && (job.ranks[i] - first) % step === 0);
}

/** A full name means that one; part of a name means all that have it. */
function named(names, value) {
  const lower = names.map((name) => name.toLowerCase());
  const exact = lower.includes(value);
  return lower.map((name) => (exact ? name === value : name.includes(value)));
}

function hostTest(value, job) {
  const hits = named(job.hosts, value);
  return (i) => job.host[i] >= 0 && hits[job.host[i]];
}

function groupTest(value, job) {
  const byDesc = named(job.groups.map((group) => group.desc), value);
  const byName = job.groups.map((group) => group.name.toLowerCase() === value);
  const members = new Set();
  job.groups.forEach((group, g) => (byDesc[g] || byName[g]) && group.ranks.forEach((rank) => members.add(rank)));
  return (i) => members.has(job.ranks[i]);
}

function groupTitle(group) {
  const name = group.desc && group.desc !== group.name ? `${short(group.desc, 40)} (${short(group.name, 20)})` : short(group.name, 40);
  return group.kind === "p2p" ? `${name}, messages` : name;
}
