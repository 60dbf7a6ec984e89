// The stacks of two cohorts beside each other, that of a suspect on the right, and the lines of source that decided.

const LIBRARY = /\/(site|dist)-packages\/|\/lib\/python\d/;

function showStacks(view) {
  const body = document.getElementById("stacks-body");
  const { divergence, sites } = view.verdict;
  const [first, ...others] = sites.map((site, s) => siteBox(site, s, view));
  const parts = first ? [first] : [];
  if (others.length) parts.push(make("details", "others", make("summary", "", plural(others.length, "more place")), ...others));
  if (divergence) parts.push(stackPair(view));
  if (!parts.length) leaveOut("stacks");
  body.replaceChildren(...parts);
}

function siteBox(site, s, view) {
  const box = make("article", "site", make("h3", "", make("code", "", `${site.file}:${site.line}`), ` in ${site.function}`));
  if (site.why) box.append(make("p", "", prose(capital(site.why))));
  const quote = view.job.sources.find((source) => source.site === s);
  if (quote) box.append(quoteOf(quote));
  else if (site.condition) box.append(make("pre", "condition", make("code", "", site.condition)));
  return box;
}

/** Lines of source: the marked line and that of the condition carry a sign, not only a colour. */
function quoteOf(quote) {
  const lines = quote.lines.map((line, l) => {
    const at = quote.first + l;
    const sign = at === quote.marked ? "▶" : at === quote.condition ? "◆" : " ";
    const kind = sign === " " ? "line" : "line marked";
    return make("span", kind, make("span", "gutter", `${sign}${String(at).padStart(5)} `), words(line || " "), "\n");
  });
  return make("pre", "source", ...lines);
}

function stackPair(view) {
  const { cohorts } = view.verdict.divergence;
  const pair = make("div", "pair");
  if (cohorts.length === 1) {
    pair.append(stackBox(cohorts[0], "All", framesOf(cohorts[0]), -1, view));
    return pair;
  }
  const suspected = cohorts.find((cohort) => cohort.ranks.some((rank) => view.verdict.suspects.has(rank)));
  const shown = suspected ?? cohorts[1];
  const other = cohorts.find((cohort) => cohort !== shown);
  const [left, right] = [framesOf(other), framesOf(shown)];
  const parts = left.length && right.length ? firstDifference(left, right) : -1;
  const [title, against] = stackTitles(suspected, other);
  pair.append(stackBox(other, title, left, parts, view), stackBox(shown, against, right, parts, view));
  return pair;
}

/** Only a suspect is called odd, and only by more ranks than it has on its own side. */
function stackTitles(suspected, other) {
  if (!suspected) return ["One side", "Another side"];
  return other.ranks.count > suspected.ranks.count ? ["Majority", "Odd one out"] : ["Other side", "Suspect"];
}

/** Outermost call first: both stacks begin alike, and part somewhere below. */
function framesOf(cohort) {
  return (cohort.stack ?? []).map(frameOf).reverse();
}

function frameOf(text) {
  const [, file, line, name] = /^(.*):(\d+) (.*)$/s.exec(text) ?? [null, text, "", ""];
  return { text, file, line, name, place: `${file}:${line}`, library: LIBRARY.test(file) };
}

function firstDifference(left, right) {
  let at = 0;
  while (at < left.length && at < right.length && left[at].text === right[at].text) at++;
  return at;
}

function stackBox(cohort, title, frames, parts, view) {
  const box = make("article", "stack", make("h3", "", stateBadge(stateOfCohort(view, cohort.ranks, cohort.role)), `${title}: ${cohort.ranks.named()}`));
  const at = cohort.op === null ? cohort.where : `${cohort.op} ${sizesText(cohort.sizes)}, ${cohort.state ?? cohort.role}`;
  if (at) box.append(make("p", "detail", at));
  if (frames.length) box.append(frameList(frames, parts, view));
  else box.append(nothing(cohort.stack === null ? "No stack: nothing was recorded of them." : "The recorder kept no stack for this call."));
  const dump = view.verdict.timeline.find((m) => m.source === "stack" && cohort.ranks.some((rank) => m.ranks.has(rank)));
  if (dump) box.append(make("p", "detail", `Stack taken of ${dump.ranks.named()}: ${dump.says}. `, evidenceLinks([dump.id])));
  view.onChange(() => box.classList.toggle("dim", !view.concerns(cohort.ranks)));
  return box;
}

function frameList(frames, parts, view) {
  const list = make("ol", "frames");
  frames.forEach((frame, f) => {
    const item = make("li", frame.library ? "library" : "own");
    item.title = short(frame.text, 300);
    item.append(make("span", "function", frame.name || frame.file), make("span", "place", frame.name ? `${fileName(frame.file)}:${frame.line}` : ""));
    if (f === parts) {
      item.classList.add("parts");
      item.append(make("span", "flag", "first difference"));
    }
    const quote = view.job.sources.find((source) => source.frame === frame.place);
    if (quote && !frame.library) item.append(make("details", "", make("summary", "", "source"), quoteOf(quote)));
    list.append(item);
  });
  return list;
}
