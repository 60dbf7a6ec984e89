// What happened when: one row per moment, clock by clock. Clocks that cannot be compared are kept apart.

const FIRST_MOMENTS = 60;
const FIRST_CLOCKS = 5;

function showTimeline(view) {
  const body = document.getElementById("timeline-body");
  const clocks = new Map();
  for (const moment of view.verdict.timeline) {
    if (!clocks.has(moment.clock)) clocks.set(moment.clock, []);
    clocks.get(moment.clock).push(moment);
  }
  if (!clocks.size) {
    body.replaceChildren(nothing("No dump, log or stack says when anything happened."));
    return;
  }
  const lanes = [...clocks].map(([clock, moments]) => clockLane(clock, moments, view));
  body.replaceChildren(marksLegend(view.verdict.timeline), ...lanes.slice(0, FIRST_CLOCKS));
  if (lanes.length <= FIRST_CLOCKS) return;
  const rest = lanes.slice(FIRST_CLOCKS);
  body.append(make("details", "", make("summary", "", `${plural(rest.length, "more clock")}, none comparable with another`), ...rest));
}

function marksLegend(moments) {
  const used = new Set(moments.map((moment) => markOf(moment.kind)));
  return make("p", "marks", ...[...used].map((mark) => make("span", "", markPicture(mark), mark.name)));
}

function clockLane(clock, moments, view) {
  const joined = moments.every((moment) => moment.utc);
  const dated = moments.some((moment) => moment.when);
  const name = joined ? clock : dated ? `Own clock, ${clock}` : "Not dated";
  const note = joined ? "" : dated ? "in its own order; cannot be compared with other clocks" : "in no order";
  const lane = make("article", joined ? "clock" : "clock own-clock", make("h3", "", name), note ? make("p", "detail", note) : null);
  const places = joined ? byTime(moments) : byOrder(moments, dated);
  const list = make("ol", "moments");
  const add = (from, to) =>
    moments.slice(from, to).forEach((moment, m) => list.append(momentRow(moment, places[from + m], moments[0], view)));
  add(0, FIRST_MOMENTS);
  lane.append(list);
  if (moments.length > FIRST_MOMENTS) {
    const more = make("button", "quiet", `Show ${number(moments.length - FIRST_MOMENTS)} more`);
    more.type = "button";
    more.addEventListener("click", () => {
      add(FIRST_MOMENTS, moments.length);
      more.remove();
    });
    lane.append(more);
  }
  return lane;
}

/** Where on its track each mark stands, 0 to 1. */
function byTime(moments) {
  const times = moments.map((moment) => Date.parse(moment.utc));
  const first = Math.min(...times);
  const span = Math.max(...times) - first || 1;
  return times.map((time) => (time - first) / span);
}

function byOrder(moments, dated) {
  if (!dated) return moments.map(() => null);
  return moments.map((_, m) => (moments.length > 1 ? m / (moments.length - 1) : 0));
}

function momentRow(moment, place, first, view) {
  const mark = markOf(moment.kind);
  const track = make("span", "track");
  if (place !== null) {
    const picture = markPicture(mark);
    picture.style.left = `${place * 100}%`;
    track.append(picture);
  } else track.append(markPicture(mark));
  const row = make(
    "li",
    "moment",
    make("span", "when", whenOf(moment)),
    make("span", "since", sinceOf(moment, first)),
    track,
    make("span", "what", make("strong", "", moment.ranks.count ? capital(moment.ranks.named()) : hostName(moment)), " ", moment.says, " ", evidenceLinks([moment.id])),
  );
  row.title = short(`${mark.name}: ${moment.kind}, from ${moment.source}`);
  view.onChange(() => row.classList.toggle("dim", !view.concerns(moment.ranks)));
  return row;
}

function hostName(moment) {
  return moment.host === null ? "" : short(moment.host, 60);
}

function whenOf(moment) {
  const stamp = moment.utc ?? moment.when;
  if (!stamp) return "";
  const shown = stamp.replace(/^\d{4}-\d\d-\d\d[T ](?=\d)/, "").replace(/Z$/, "");
  return `${moment.bound ? "≤ " : ""}${short(shown, 40)}`;
}

function sinceOf(moment, first) {
  if (!moment.utc || !first.utc) return "";
  const seconds = (Date.parse(moment.utc) - Date.parse(first.utc)) / 1000;
  return seconds ? `+${number(Math.round(seconds))} s` : "";
}
