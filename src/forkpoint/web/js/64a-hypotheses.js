// Every reading that nothing contradicts, the best first, with what speaks for it and a replay of how the job goes on.

const STEP_MS = 1200;

function showHypotheses(view) {
  const { hypotheses } = view.verdict;
  document.getElementById("hypotheses").hidden = !hypotheses.length;
  document.getElementById("hypotheses-body").replaceChildren(...hypotheses.map((reading, h) => readingCard(reading, h === 0, view)));
}

function readingCard(reading, first, view) {
  const isVerdict = first && isDecided(view.verdict, reading);
  const title = make("h3", "", make("span", `likelihood ${reading.likelihood}`, reading.likelihood), " ", CAUSES[reading.cause] ?? reading.cause);
  if (isVerdict) title.append(" ", make("span", "flag", "the verdict"));
  const card = make(
    "article",
    isVerdict ? "reading decided" : "reading",
    title,
    make("p", "detail", causeNames(reading), ranksOfReading(reading, view)),
    make("p", "claim", prose(capital(reading.says))),
    readingFacts(reading, view.verdict),
  );
  if (reading.steps.length) card.append(new Player(reading.steps).box);
  const named = ranksNamed(reading).filter((ranks) => ranks.count);
  view.onChange(() => card.classList.toggle("dim", named.length > 0 && !named.some((ranks) => view.concerns(ranks))));
  return card;
}

/** Whether this reading is what the verdict decided on. */
function isDecided(verdict, reading) {
  return verdict.cause === reading.cause && verdict.suspects.named() === reading.suspects.named();
}

function causeNames({ cause, alternatives }) {
  const names = make("span", "", make("code", "tag", cause));
  alternatives.forEach((other) => names.append(" or ", make("code", "tag", other)));
  return names;
}

function ranksNamed({ suspects, sides }) {
  return [suspects, ...sides];
}

function ranksOfReading({ suspects, sides }, view) {
  const meant = suspects.count ? [suspects] : sides;
  if (!meant.length) return words(", no rank in particular");
  const line = make("span", "", " of ");
  meant.forEach((ranks, s) => line.append(s ? " or " : "", ranksButton(ranks, view)));
  return line;
}

/** A press shows only these ranks, a second press all again. Words alone where the report does not carry every rank. */
function ranksButton(ranks, view) {
  const query = ranks.query();
  if (!query) return words(ranks.named());
  const button = make("button", "quiet ranks", ranks.named());
  button.type = "button";
  button.addEventListener("click", () => setQuery(view.query === query ? "" : query));
  view.onChange(() => button.setAttribute("aria-pressed", String(view.query === query)));
  return button;
}

function readingFacts(reading, verdict) {
  const list = make("dl", "");
  const carried = new Set(verdict.evidence.map((row) => row.id));
  const add = (name, value) => list.append(make("dt", "", name), make("dd", "", value));
  for (const [name, cited] of [["For", reading.for], ["Against", reading.against]]) {
    const ids = cited.filter((id) => carried.has(id));
    if (ids.length) add(name, evidenceLinks(ids));
  }
  if (reading.lacks.length) add("Lacks", make("ul", "", ...reading.lacks.map((lack) => make("li", "", prose(lack)))));
  if (reading.decides) add("Decided by", copied(reading.decides, "command"));
  if (reading.repair) add("Replay", prose(capital(reading.repair)));
  return list;
}

/** The steps of a replay, one after the other. A button that cannot go on keeps the focus, so that the keys go on working. */
class Player {
  constructor(steps) {
    this.steps = steps;
    this.last = steps.length - 1;
    this.at = 0;
    this.timer = null;
    this.items = steps.map((step) => make("li", "", prose(step)));
    this.count = make("span", "detail");
    this.slider = this.scrubber();
    this.back = this.button("Back", () => this.byHand(this.at - 1));
    this.play = this.button("Play", () => (this.timer === null ? this.start() : this.byHand(this.at)));
    this.next = this.button("Next", () => this.byHand(this.at + 1));
    this.box = make("div", "player", make("div", "hands", this.back, this.play, this.next, this.slider, this.count), make("ol", "", ...this.items));
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", "Replay, step by step");
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.show();
  }

  button(name, press) {
    const button = make("button", "quiet", name);
    button.type = "button";
    button.addEventListener("click", press);
    return button;
  }

  /** Drag to any step. */
  scrubber() {
    const slider = make("input", "scrubber");
    slider.type = "range";
    slider.min = "0";
    slider.max = String(this.last);
    slider.setAttribute("aria-label", "Step of the replay");
    slider.addEventListener("input", () => this.byHand(Number(slider.value)));
    return slider;
  }

  show() {
    this.slider.value = String(this.at);
    this.items.forEach((item, i) => {
      item.className = i === this.at ? "now" : i > this.at ? "later" : "";
      item.toggleAttribute("aria-current", false);
    });
    this.items[this.at].setAttribute("aria-current", "step");
    this.back.setAttribute("aria-disabled", String(this.at === 0));
    this.next.setAttribute("aria-disabled", String(this.at === this.last));
    this.play.textContent = this.timer === null ? "Play" : "Pause";
    this.count.textContent = `step ${this.at + 1} of ${this.steps.length}`;
  }

  go(to) {
    this.at = Math.max(0, Math.min(this.last, to));
    if (this.at === this.last) this.stop();
    this.show();
    say(`${capital(this.count.textContent)}: ${short(this.steps[this.at], 200)}`);
  }

  /** From the beginning again where it is at the end. */
  start() {
    this.timer = setInterval(() => this.go(this.at + 1), STEP_MS);
    this.go(this.at === this.last ? 0 : this.at);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
  }

  byHand(to) {
    this.stop();
    this.go(to);
  }

  key(event) {
    const { at, last } = this;
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.byHand(to);
  }
}
