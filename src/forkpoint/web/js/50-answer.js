// The verdict in words: who left, where, why, what now, and how much of the job the evidence shows.

function showAnswer(view) {
  const verdict = view.verdict;
  document.getElementById("symptom").textContent = verdict.symptom && verdict.symptom !== "none" ? short(verdict.symptom.replaceAll("-", " ")) : "";
  document.getElementById("answer").replaceChildren(hero(view), proof(view), facts(view), confidence(verdict), coverage(verdict));
}

function facts(view) {
  const verdict = view.verdict;
  return make(
    "dl",
    "facts",
    fact("Who", who(view)),
    fact("Where", where(verdict)),
    fact("Why", why(verdict)),
    fact("What now", whatNow(view)),
  );
}

function fact(name, [main, ...rest]) {
  const body = make("dd", "", make("strong", "", main));
  rest.filter(Boolean).forEach((line) => body.append(make("span", "detail", typeof line === "string" ? prose(line) : line)));
  return make("div", "", make("dt", "", name), body);
}

function who(view) {
  const { suspects, cause } = view.verdict;
  if (!suspects.count) return [cause === "healthy" ? "Nobody: all ranks agree" : "No rank can be named"];
  const places = suspects
    .take(3)
    .map((rank) => view.indexOf.get(rank)).map((i) => (i === undefined ? "" : view.placeOf(i)));
  const cohort = verdictCohort(view.verdict, suspects.first);
  return [
    capital(suspects.named()),
    [...new Set(places.filter(Boolean))].join("; "),
    standing(view, suspects.first, cohort),
  ];
}

/** In what the first suspect was last seen. */
function standing(view, rank, cohort) {
  const state = STATES[view.job.state[view.indexOf.get(rank)]];
  if (view.job.drawn && state.name === "lost") return state.says;
  if (!cohort) return view.job.drawn && !isCited(view.verdict, rank) ? state.says : "";
  if (cohort.op !== null) return `${cohort.state ?? cohort.role} ${cohort.op} ${sizesText(cohort.sizes)}`;
  return `${cohort.role}${cohort.where ? `: ${cohort.where}` : ""}`;
}

/** Its stack, its log or its values say more than that it left no dump. */
function isCited(verdict, rank) {
  return verdict.evidence.some((item) => item.rank === rank);
}

function sizesText(sizes) {
  return sizes.map((size) => `[${size.join(", ")}]`).join(" ");
}

function verdictCohort(verdict, rank) {
  return verdict.divergence?.cohorts.find((cohort) => cohort.ranks.has(rank));
}

function where(verdict) {
  const site = verdict.sites[0];
  const code = site ? make("code", "", `${fileName(site.file)}:${site.line} ${site.function}`) : null;
  const divergence = verdict.divergence;
  if (verdict.cause === "silent-corruption") return ["In values, not in calls", code];
  if (!divergence) return site ? [`${fileName(site.file)}:${site.line}`, `in ${site.function}`] : ["No divergence was found"];
  const group = divergence.group.desc || divergence.group.name;
  const place = divergence.channel
    ? `Message ${divergence.seq} of ${divergence.channel.join(" → ")} in ${group}`
    : divergence.seq === null ? String(group) : `${group}, seq ${divergence.seq}`;
  const began = divergence.hang_seq !== divergence.seq ? `it hangs at seq ${divergence.hang_seq}` : "";
  return [place, began, code];
}

/** What the condition of a site has to do with the cause; of other causes it is an argument, or not known to matter. */
const CONDITION = { "divergent-path": "decided by ", "order-inversion": "decided by ", "host-stall": "under " };

function why(verdict) {
  const condition = CONDITION[verdict.cause] && verdict.sites.find((one) => one.condition)?.condition;
  const link = condition?.startsWith("except") ? "in " : CONDITION[verdict.cause];
  const told = condition ? make("span", "", link, make("code", "condition", condition)) : null;
  return [CAUSES[verdict.cause] ?? verdict.cause, told];
}

/** The step itself only where the first panel does not tell it. */
function whatNow(view) {
  const { verdict } = view;
  const decides = verdict.cause === "inconclusive" && verdict.next[0] ? `what decides: ${verdict.next[0]}` : null;
  const step = heroFix(view) ? "" : verdict.fixes[0]?.title ?? decides ?? verdict.next[0] ?? verdict.probes[0]?.title ?? "";
  const jump = make("a", "", "findings and fixes");
  jump.href = "#findings";
  return [ACTIONS[verdict.action] ?? verdict.action, step ? capital(step) : "", verdict.findings.length ? jump : null];
}

function confidence(verdict) {
  if (verdict.cause === "inconclusive") return "";
  const percent = Math.round(verdict.confidence * 100);
  const meter = make("meter", "");
  meter.min = 0;
  meter.max = 100;
  meter.value = percent;
  const line = make("p", "confidence", `Confidence ${percent} %`, meter);
  const cited = verdict.findings[0]?.evidence ?? [];
  if (cited.length) line.append(make("span", "detail", "rests on ", evidenceLinks(cited)));
  return line;
}

function coverage(verdict) {
  const { ranks, dumps, logs, stacks, notes } = verdict.coverage;
  const list = make("ul", "coverage");
  for (const [name, count] of [["dumps", dumps], ["logs", logs], ["stacks", stacks]]) {
    const full = ranks > 0 && count >= ranks;
    const text = `${name} of ${number(count)}${ranks ? ` / ${number(ranks)}` : ""} ranks`;
    list.append(make("li", full ? "full" : "partial", full ? `✓ ${text}` : `△ ${text}`));
  }
  notes.forEach((note) => list.append(make("li", "note", note)));
  verdict.coverage.set_aside.forEach(({ file, why }) => list.append(make("li", "note", `Set aside ${file}: ${why}`)));
  return make("div", "coverage-box", make("span", "label", "Evidence"), list);
}
