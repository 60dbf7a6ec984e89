// A store of incidents, drawn from the data in the page. Everything from the store is put in as text.
"use strict";
{
  const CAUSES = ["divergent-path", "order-inversion", "metadata-mismatch", "host-stall", "gpu-stall", "transport", "rank-lost",
    "never-joined", "straggler", "silent-corruption", "inconclusive"];
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const day = (at) => new Date(at * 1000).toISOString().slice(0, 10);
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  const hours = (value) => (value === null ? "not known" : number(value));
  const hue = (cause) => `c${CAUSES.includes(cause) ? CAUSES.indexOf(cause) : 11}`;

  const make = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const draw = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const table = (headings, rows, nothing) => {
    if (rows.length === 0) return make("p", nothing, "faint");
    const whole = make("table");
    const head = make("tr");
    for (const [text, kind] of headings) {
      const cell = make("th", text, kind);
      cell.scope = "col";
      head.append(cell);
    }
    whole.append(make("thead"), make("tbody"));
    whole.tHead.append(head);
    for (const row of rows) {
      const line = make("tr");
      row.forEach((text, at) => line.append(make("td", text, headings[at][1])));
      whole.tBodies[0].append(line);
    }
    return whole;
  };

  const wanted = () => ({ cause: by("cause").value, job: by("job").value, text: by("search").value.trim().toLowerCase() });
  const jobOf = (job) => job ?? "";
  const shownJobs = new Set(data.bars.map((bar) => bar[2]));
  const inJob = (job, choice) => !choice || (choice === "(others)" ? !shownJobs.has(jobOf(job)) : jobOf(job) === choice.slice(1));

  const numbers = (bars) => {
    const total = (at) => bars.reduce((sum, bar) => sum + bar[at], 0);
    const told = [[number(total(3)), "incidents"], [number(total(4)), "GPU hours lost, where known"],
      [number(data.totals.undated), "incidents without a known cost, in all"], [number(data.nodes.filter((node) => node.notable).length), "nodes worth a check"]];
    by("numbers").replaceChildren(...told.map(([value, text]) => {
      const box = make("div");
      box.append(make("strong", value), make("span", text, "faint"));
      return box;
    }));
  };

  const chart = (bars, measure) => {
    const width = 1000, height = 200, left = 46, bottom = 18;
    const first = data.totals.first === null ? 0 : data.totals.first - (data.totals.first % data.bar_s);
    const count = data.totals.last === null ? 0 : Math.floor((data.totals.last - first) / data.bar_s) + 1;
    const stacks = Array.from({ length: count }, () => new Map());
    for (const bar of bars) {
      const stack = stacks[(bar[0] - first) / data.bar_s];
      stack.set(bar[1], (stack.get(bar[1]) ?? 0) + bar[measure]);
    }
    const sums = stacks.map((stack) => [...stack.values()].reduce((sum, value) => sum + value, 0));
    const most = Math.max(1, ...sums);
    const what = measure === 3 ? "incidents" : "GPU hours";
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height + bottom}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${what} over time by cause, at most ${number(most)} in ${data.bar_s / 86400} days` });
    for (const part of [0, 0.5, 1]) {
      const y = height - part * (height - 12);
      svg.append(draw("line", { x1: left, x2: width, y1: y, y2: y }), draw("text", { x: 2, y: y - 2 }, number(most * part)));
    }
    const step = (width - left) / Math.max(1, count);
    stacks.forEach((stack, at) => {
      let y = height;
      for (const cause of [...CAUSES, ...stack.keys()].filter((name, place, all) => stack.has(name) && all.indexOf(name) === place)) {
        const tall = (stack.get(cause) / most) * (height - 12);
        y -= tall;
        const box = draw("rect", { x: left + at * step + step * 0.1, y, width: step * 0.8, height: tall, class: hue(cause) });
        box.append(draw("title", {}, `${day(first + at * data.bar_s)} ${cause}: ${number(stack.get(cause))} ${what}`));
        svg.append(box);
      }
    });
    if (count) svg.append(draw("text", { x: left, y: height + 14 }, day(first)), draw("text", { x: width, y: height + 14, "text-anchor": "end" }, day(data.totals.last)));
    by("chart").replaceChildren(svg);
  };

  const legend = () => {
    const present = CAUSES.filter((cause) => data.bars.some((bar) => bar[1] === cause));
    by("legend").replaceChildren(...present.map((cause) => {
      const item = make("span");
      const square = draw("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" });
      square.append(draw("rect", { width: 1, height: 1, class: hue(cause) }));
      item.append(square, document.createTextNode(cause));
      return item;
    }));
  };

  const show = () => {
    const { cause, job, text } = wanted();
    const bars = data.bars.filter((bar) => (!cause || bar[1] === cause) && (!job || (job === "(others)" ? bar[2] === job : bar[2] === job.slice(1))));
    numbers(bars);
    chart(bars, Number(by("measure").value));
    const forks = data.forks.filter((fork) => !cause || fork.cause === cause);
    by("forks").replaceChildren(table(
      [["Fork", ""], ["Cause", "short"], ["Times", "number"], ["Jobs", "number"], ["First", "short"], ["Last", "short"], ["GPU hours", "number"], ["Resolved", "number"]],
      forks.map((fork) => [fork.fork, fork.cause, number(fork.count), number(fork.jobs), day(fork.first), day(fork.last), hours(fork.gpu_hours), number(fork.resolved)]),
      "No fork is known yet."));
    const found = data.incidents.filter((one) => (!cause || one.cause === cause) && inJob(one.job, job)
      && (!text || [one.id, one.headline, one.job, one.user, one.commit, one.fork, one.run, one.resolution].some((part) => (part ?? "").toLowerCase().includes(text))));
    by("found").textContent = `${number(found.length)} of the newest ${number(data.incidents.length)}; forkpoint history --since, --job and --host look further back`;
    by("incidents").replaceChildren(table(
      [["When", "short"], ["Id", "short"], ["Cause", "short"], ["What happened", ""], ["Job", ""], ["Commit", "short"], ["GPU hours", "number"], ["Resolved", ""]],
      found.map((one) => [day(one.at), one.id.slice(0, 8), one.cause, one.headline, one.job ?? "", (one.commit ?? "").slice(0, 10), hours(one.gpu_hours), one.resolution]),
      "Nothing fits."));
  };

  const choices = (select, every, values, value = (text) => text, text = (one) => one) => {
    select.replaceChildren(new Option(every, ""), ...values.map((one) => new Option(text(one), value(one))));
  };

  by("store").textContent = `${data.store}, read ${new Date(data.at * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
  choices(by("cause"), "every cause", [...new Set(data.bars.map((bar) => bar[1]))].sort());
  choices(by("job"), "every job", [...shownJobs].sort(), (job) => (job === "(others)" ? job : `=${job}`), (job) => job || "(no name)");
  by("nodes").replaceChildren(table(
    [["Node", ""], ["Suspect", "number"], ["Took part", "number"], ["Expected", "number"], ["By chance", "short"], ["What would confirm it", ""]],
    data.nodes.map((node) => [node.name, number(node.suspected), number(node.took_part), number(node.expected), node.odds, node.notable ? node.confirm : ""]),
    "No host is a suspect of an incident that code does not explain."));
  [...by("nodes").querySelectorAll("tbody tr")].forEach((row, at) => { if (data.nodes[at].notable) row.cells[0].className = "alarm"; });
  for (const id of ["cause", "job", "measure", "search"]) by(id).addEventListener("input", show);
  by("bar").addEventListener("submit", (event) => event.preventDefault());
  legend();
  show();
  document.documentElement.dataset.ready = "yes";
}
