// What each detector claims and on which evidence; then what to try, what to change, what to run.

// Lists whose name in the document does not say what is in them.
const LISTS = { for: "evidence for a reading", against: "evidence against a reading", lacks: "what readings lack", steps: "replay steps" };

function showFindings(view) {
  const { findings, probes, fixes, next } = view.verdict;
  const parts = findings.map((finding) => findingBox(finding, view));
  if (fixes.length) parts.push(stepList("Fixes", fixes));
  if (probes.length) parts.push(stepList("Probes: the smallest experiment that decides", probes));
  if (next.length) parts.push(commandList(next));
  const left = leftOut(view.verdict);
  if (left) parts.push(make("p", "caption", left));
  const body = document.getElementById("findings-body");
  if (!parts.length) leaveOut("findings");
  body.replaceChildren(...parts);
}

/** What the report does not carry, and how to get it. */
function leftOut(verdict) {
  const { patch, ...lists } = verdict.left_out;
  const parts = Object.entries(lists).map(([name, count]) => `${number(count)} of ${LISTS[name] ?? short(name, 20)}`);
  if (patch) parts.unshift(`${plural(patch, "patch").replace("patchs", "patches")} (made without --no-embed-source, the report holds them)`);
  return parts.length ? `Left out of this report: ${parts.join(", ")}.` : "";
}

function findingBox(finding, view) {
  const box = make(
    "article",
    "finding",
    make("h3", "", CAUSES[finding.cause] ?? finding.cause, " ", make("code", "tag", finding.detector)),
    make("p", "", `${finding.suspects.count ? capital(finding.suspects.named()) : "No rank named"}; confidence ${Math.round(finding.confidence * 100)} %; evidence `, evidenceLinks(finding.evidence)),
  );
  view.onChange(() => box.classList.toggle("dim", !view.concerns(finding.suspects)));
  return box;
}

function stepList(title, steps) {
  const list = make("ol", "steps");
  for (const step of steps) {
    const item = make("li", "", prose(capital(step.title)));
    if (step.where) item.append(" ", make("code", "", step.where));
    if (step.patch) item.append(patchBox(step.patch));
    list.append(item);
  }
  return make("article", "", make("h3", "", title), list);
}

/** A long patch is folded: the titles are what is read first. */
function patchBox(patch) {
  const lines = patch.split("\n").length;
  const box = copied(patch, "patch");
  return lines > 24 ? make("details", "", make("summary", "", `Patch of ${lines} lines`), box) : box;
}

function commandList(commands) {
  return make("article", "", make("h3", "", "Next"), ...commands.map((command) => copied(command, "command")));
}

function copied(text, kind) {
  const shown = make("pre", kind);
  if (kind === "patch" && text.length < MORE) text.split("\n").forEach((line) => shown.append(patchLine(line), "\n"));
  else shown.append(words(text, MORE));
  return make("div", "copied", shown, copyButton(text, shown));
}

function patchLine(line) {
  const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
  return make("span", kind, words(line));
}
