// What each cohort did in the operations around the divergence. A table: there are at most six lanes.

function showLanes(view) {
  const body = document.getElementById("lanes-body");
  const divergence = view.verdict.divergence;
  const lanes = !divergence || view.job.lanes.length ? view.job.lanes : lanesOfCohorts(view.verdict);
  const seqs = divergence ? lanes[0].cells.map((cell) => cell.seq).filter((seq) => seq !== null) : [];
  if (!seqs.length) {
    leaveOut("lanes"); // no recorded call has a number to stand in a lane
    return;
  }
  const table = make("table", "lanes");
  table.append(laneHead(seqs, divergence), ...lanes.map((lane) => laneRow(lane, view)));
  const notes = lanes.filter((lane) => lane.cells.some((cell) => cell.odd)).map(laneNote);
  const scroller = make("div", "scroll", table);
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Lanes, one per cohort");
  body.replaceChildren(make("p", "caption", lanesSay(divergence, seqs)), scroller, make("ul", "notes", ...notes));
  // On a narrow screen the lanes scroll: begin where it matters.
  const here = table.querySelector(".here");
  if (here) scroller.scrollLeft = here.offsetLeft + here.offsetWidth - scroller.clientWidth;
}

function lanesSay(divergence, seqs) {
  const group = short(divergence.group.desc || divergence.group.name, 40);
  const what = divergence.channel ? `messages ${divergence.channel.join(" → ")} in ${group}` : `operations of ${group}`;
  return `${capital(what)}, seq ${seqs[0]} to ${seqs[seqs.length - 1]}; ranks that did the same share a lane. The odd cell is framed.`;
}

function laneHead(seqs, divergence) {
  const row = make("tr", "", make("th", "", "seq"));
  seqs.forEach((seq) => row.append(make("th", seq === divergence.seq ? "here" : "", String(seq))));
  return make("thead", "", row);
}

function laneRow(lane, view) {
  const state = stateOfCohort(view, lane.ranks, lane.role);
  const name = make("th", "", stateBadge(state), capital(lane.ranks.named()));
  if (lane.suspect) name.append(make("span", "flag", "suspect"));
  name.append(make("span", "detail", `${STATES[state].name} `, evidenceLinks(evidenceOfRanks(view.verdict, lane.ranks))));
  const row = make("tr", lane.suspect ? "suspect" : "", name, ...lane.cells.map((cell) => laneCell(cell, view.verdict.divergence.seq)));
  view.onChange(() => row.classList.toggle("dim", !view.concerns(lane.ranks)));
  return row;
}

function laneCell(cell, here) {
  const state = CELLS[cell.state];
  const none = state.name === "not reached" ? "—" : "?";
  const text = cell.op === null ? none : cell.code;
  const node = make("td", `cell cell-${state.name.replace(" ", "-")}${cell.odd ? " odd" : ""}`, text);
  if (cell.seq === here && cell.sizes) node.append(make("span", "size", short(cell.sizes, 24)));
  node.title = short([`seq ${cell.seq}`, cell.op, cell.sizes, state.name, cell.note].filter(Boolean).join(", "), 300);
  return node;
}

/** The first odd cell of a lane in words; those after it follow from it. */
function laneNote(lane) {
  const odd = lane.cells.filter((cell) => cell.odd);
  const [cell] = odd;
  const op = cell.op === null ? "no operation" : `${cell.op} ${cell.sizes}`.trim();
  const after = odd.length > 1 ? `; and ${odd.length - 1} more after it` : "";
  return make("li", "", make("strong", "", `${capital(lane.ranks.named())}, seq ${cell.seq}: `), `${op}, ${cell.note || CELLS[cell.state].name}${after}`);
}

/** Without a picture: what the verdict itself says of each cohort, at the one seq of the divergence. */
function lanesOfCohorts(verdict) {
  const states = { completed: 1, started: 2, scheduled: 3, entering: 3 };
  return verdict.divergence.cohorts.slice(0, 6).map((cohort, c) => ({
    cohort: c,
    role: cohort.role,
    ranks: cohort.ranks,
    suspect: cohort.ranks.some((rank) => verdict.suspects.has(rank)),
    cells: [
      {
        seq: verdict.divergence.seq,
        op: cohort.op,
        code: cohort.op === null ? "" : short(cohort.op, 20),
        sizes: sizesText(cohort.sizes),
        state: states[cohort.state] ?? (cohort.role === "silent" ? 0 : 4),
        odd: c > 0,
        note: cohort.where ?? "",
      },
    ],
  }));
}
