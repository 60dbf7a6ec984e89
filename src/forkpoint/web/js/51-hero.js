// The first panel: the sentence, two lanes that part, the line of code and the change. It fits one screen.

const HERO_LINES = 9;
const HERO_PATCH = 15;

function hero(view) {
  const verdict = view.verdict;
  const cause = make("p", "cause", capital(verdict.cause.replaceAll("-", " ")).replace("Gpu", "GPU"));
  const words = make("div", "hero-words", cause, make("h1", "sentence", prose(verdict.headline)), forkDrawing());
  const code = heroCode(view);
  return make("div", code ? "hero with-code" : "hero", words, code);
}

/** Drawn where the report was made: the same lanes as in the image to share. */
function forkDrawing() {
  const drawing = document.getElementById("fork").content.firstElementChild;
  return drawing.childElementCount ? drawing.cloneNode(true) : null;
}

function heroCode(view) {
  const site = view.verdict.sites[0];
  const quote = view.job.sources.find((source) => source.site === 0);
  const fix = heroFix(view);
  const parts = [];
  if (site && quote) parts.push(heroPlace(site, quote), quoteOf(nearest(quote)));
  else if (site?.condition) parts.push(heroPlace(site, null), make("pre", "condition", make("code", "", site.condition)));
  if (fix) parts.push(make("p", "hero-fix", prose(capital(fix.title))));
  const rows = patchRows(view.verdict);
  if (rows.length) parts.push(patchInShort(rows, fix.patch));
  return parts.length ? make("div", "hero-code", ...parts) : null;
}

/** The first fix, where the code that it changes is shown, or the change itself. */
function heroFix(view) {
  const { sites, fixes } = view.verdict;
  const code = sites[0]?.condition || view.job.sources.some((source) => source.site === 0);
  return fixes[0] && (code || patchRows(view.verdict).length) ? fixes[0] : null;
}

function patchRows({ fixes, sites }) {
  return fixes[0]?.patch ? shortPatch(fixes[0].patch, sites[0]?.line) : [];
}

function heroPlace(site, quote) {
  const place = make("p", "hero-place", make("code", "", `${site.file}:${site.line}`));
  if (opens(quote?.editor, "vscode:")) place.append(" ", linkTo(quote.editor, "open in editor"));
  if (opens(quote?.forge, "https:")) place.append(" ", linkTo(quote.forge, "on the forge"));
  return place;
}

function opens(address, scheme) {
  return Boolean(address) && URL.canParse(address) && new URL(address).protocol === scheme;
}

function linkTo(address, name) {
  const link = make("a", "", name);
  link.href = address;
  link.rel = "noreferrer noopener";
  return link;
}

/** The lines around the marked one, without empty ones at the ends and without what all are indented by; two empty
 * lines end a function.
 */
function nearest(quote) {
  const at = quote.marked - quote.first;
  let from = Math.max(0, at - 3);
  while (from < at && !quote.lines[from].trim()) from++;
  let end = at + 1;
  while (end < quote.lines.length && end - from < HERO_LINES && (quote.lines[end].trim() || quote.lines[end + 1]?.trim())) end++;
  const lines = quote.lines.slice(from, end);
  const indents = lines.filter((line) => line.trim()).map((line) => /^[ \t]*/.exec(line)[0].length);
  const shared = Math.min(...indents);
  return { ...quote, first: quote.first + from, lines: lines.map((line) => line.slice(shared)) };
}

/** What changes; the button copies the patch as it applies. */
function patchInShort(rows, patch) {
  const shown = make("pre", "patch");
  rows.forEach((row) => shown.append(patchLine(row), "\n"));
  return make("div", "copied", shown, copyButton(patch, shown));
}

/** The rows of a patch of a few lines, or of the part that changes the line; none where nothing is short enough. */
function shortPatch(patch, line) {
  const rows = patch.trimEnd().split("\n");
  if (rows.length <= HERO_PATCH) return withoutEmpty(rows.slice(2));
  const parts = rows.slice(2).join("\n").split(/^(?=@@ )/m).map((part) => part.trimEnd());
  const fits = parts.filter((part) => part.split("\n").length + 2 <= HERO_PATCH);
  const here = fits.find((part) => {
    const [, first, count] = /^@@ -(\d+)(?:,(\d+))?/.exec(part) ?? [];
    return line >= Number(first) && line < Number(first) + Number(count ?? 1);
  });
  const shown = here ?? fits[0];
  return shown ? withoutEmpty(shown.split("\n")) : [];
}

/** Without the head of a part, and without empty lines of context at its ends. */
function withoutEmpty(rows) {
  const kept = rows.filter((row) => !row.startsWith("@@ "));
  while (kept.length && !kept[0].trim()) kept.shift();
  while (kept.length && !kept[kept.length - 1].trim()) kept.pop();
  return kept;
}

/** What the claim rests on, as it stands in the files. */
function proof(view) {
  const { findings, evidence, suspects } = view.verdict;
  const cited = new Set(findings[0]?.evidence ?? []);
  const rows = evidence.filter((row) => cited.has(row.id));
  rows.sort((one, other) => suspects.has(other.rank ?? -1) - suspects.has(one.rank ?? -1));
  if (!rows.length) return "";
  return make("ul", "proof", ...rows.slice(0, 3).map((row) => {
    const place = `${fileName(row.file)} ${row.where}`;
    return make("li", "", evidenceLinks([row.id]), " ", make("span", "detail-place", place), " ", make("code", "", row.says));
  }));
}
